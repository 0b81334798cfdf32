"""Rows of the overlaps that are NP-hard, and of Smatch."""

import itertools
from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from tensormetrics import structured

from .case import FunctionCase, LeftOut, MetricCase

WIN = {"<->": min, "->": lambda p, r: p * (r > 0), "<-": lambda p, r: r * (p > 0), "~": lambda p, r: p * r}


def bound_items(props: np.ndarray, is_var: np.ndarray, names: Any) -> Counter:
    """Items whose variables are called by `names`."""
    called = [
        tuple(("variable", names[x]) if v else ("constant", x) for x, v in zip(*item, strict=True))
        for item in zip(props.tolist(), is_var.tolist(), strict=True)
    ]
    return Counter(called)


def best_of_all_mappings(
    pred: np.ndarray, pred_is_var: np.ndarray, ref: np.ndarray, ref_is_var: np.ndarray, constraint: str = "<->"
) -> int:
    """The overlap by trying every one-to-one mapping of the variables: (N, F) and (M, F) arrays."""
    n, m = (int(side[is_var].max(initial=-1)) + 1 for side, is_var in ((pred, pred_is_var), (ref, ref_is_var)))
    items = bound_items(ref, ref_is_var, range(m))

    def value(mapping: tuple[int, ...]) -> int:
        mapped = bound_items(pred, pred_is_var, mapping)
        return sum(WIN[constraint](count, items[item]) for item, count in mapped.items())

    return max(map(value, itertools.permutations(range(max(n, m)), n)))


def items_with_variables(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, ...]:
    sides = []
    for size in (5, 6):
        props = torch.randint(0, 3, (*lead, size, 3), generator=generator)
        props[..., 1] = props[..., 1] % 2
        is_var = torch.rand(*lead, size, 3, generator=generator) < 0.6
        sides += [props, is_var & torch.tensor([True, False, True])]
    return *sides, *(torch.randint(0, size + 1, lead, generator=generator) for size in (5, 6))


def pad_items(garbage: float, *arguments: Tensor) -> tuple[Tensor, ...]:
    *sides, n_pred, n_ref = arguments
    number = int(garbage) if np.isfinite(garbage) else 7
    padded = []
    for side, n in zip(sides, (n_pred, n_pred, n_ref, n_ref), strict=True):
        filled = torch.nn.functional.pad(side.long(), (0, 0, 0, 4), value=number)
        filled[torch.arange(filled.shape[-2]) >= n[..., None].cpu()] = number
        padded.append(filled.to(side.dtype))
    return *padded, n_pred, n_ref


def micro(cross: float, pred: float, ref: float) -> list[float]:
    return [cross / pred, cross / ref, 2 * cross / (pred + ref)]


def latent_oracle(
    pred: np.ndarray, pred_is_var: np.ndarray, ref: np.ndarray, ref_is_var: np.ndarray, n: np.ndarray, m: np.ndarray
) -> list[float]:
    documents = [
        best_of_all_mappings(pred[d, : n[d]], pred_is_var[d, : n[d]], ref[d, : m[d]], ref_is_var[d, : m[d]])
        for d in range(len(n))
    ]
    return micro(sum(documents), n.sum(), m.sum())


def graphs(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, ...]:
    similarity = torch.rand(*lead, 4, 5, generator=generator, dtype=torch.float64) - 0.3
    reach = [structured.reachability(torch.rand(*lead, n, n, generator=generator) < 0.2) for n in (4, 5)]
    return similarity, *reach, *(torch.randint(0, n + 1, lead, generator=generator) for n in (4, 5))


def pad_graphs(garbage: float, *arguments: Tensor) -> tuple[Tensor, ...]:
    similarity, pred_reach, ref_reach, n_pred, n_ref = arguments
    padded = torch.nn.functional.pad(similarity, (0, 1, 0, 2), value=garbage)
    padded[torch.arange(6) >= n_pred[:, None].cpu()] = garbage
    padded.mT[torch.arange(6) >= n_ref[:, None].cpu()] = garbage
    reaches = [
        torch.nn.functional.pad(reach, (0, extra, 0, extra), value=garbage == 0)
        for reach, extra in ((pred_reach, 2), (ref_reach, 1))
    ]
    return padded, *reaches, n_pred, n_ref


# text, triples with variables 0, 1, ... in order of their instances, the root's last
GRAPHS = [
    ("(a / Cat)", [(0, "instance", "cat"), (0, "top", "top")]),
    (
        "(a / see-01 :ARG0 (b / cat) :ARG1 b)",
        [(0, "instance", "see-01"), (1, "instance", "cat"), (0, "arg0", 1), (0, "arg1", 1), (0, "top", "top")],
    ),
    (
        '(c / cat :ARG1-of (s / see-01 :polarity "-") :mod (d / dog))',
        [
            (0, "instance", "cat"),
            (1, "instance", "see-01"),
            (2, "instance", "dog"),
            (1, "arg1", 0),
            (1, "polarity", "-"),
            (2, "domain", 0),
            (0, "top", "top"),
        ],
    ),
]


class NumberedSmatch(structured.Smatch):
    """Smatch of graphs given as their numbers in GRAPHS."""

    def update(self, preds: Tensor, refs: Tensor, **items) -> None:
        super().update(*([GRAPHS[number][0] for number in side.tolist()] for side in (preds, refs)), **items)


def smatch_oracle(preds: np.ndarray, refs: np.ndarray) -> list[float]:
    table: dict[str, int] = {}

    def encode(triples: list[tuple]) -> tuple[np.ndarray, np.ndarray]:
        is_var = np.array([[isinstance(entry, int) for entry in triple] for triple in triples])
        numbers = [
            [entry if isinstance(entry, int) else table.setdefault(entry, len(table)) for entry in triple]
            for triple in triples
        ]
        return np.array(numbers), is_var

    sides = [encode(triples) for _, triples in GRAPHS]
    best = [[best_of_all_mappings(*pred, *ref) for ref in sides] for pred in sides]
    sizes = np.array([len(props) for props, _ in sides])
    scores = micro(np.array(best)[preds, refs].sum(), sizes[preds].sum(), sizes[refs].sum())
    return [*scores, 1.0, scores[-1]]


def of_pairs(generator: Generator, items: int) -> tuple[Tensor, ...]:
    return tuple(torch.randint(0, len(GRAPHS), (items,), generator=generator) for _ in range(2))


METRICS = {
    "LatentMatch": MetricCase(
        structured.LatentMatch,
        lambda generator, items: items_with_variables(generator, (items,)),
        latent_oracle,
        bad=((torch.zeros(2, 3, 2), *(torch.zeros(2, 3, 2).long() for _ in range(3))),),
        waits=True,
        not_finite="no floats",
    ),
    "Smatch": MetricCase(
        NumberedSmatch,
        of_pairs,
        smatch_oracle,
        bad=((torch.zeros(2).long(), torch.zeros(3).long()),),
        waits=True,
        not_finite="no floats",
    ),
}


def overlap_of_graphs(*arguments: Tensor) -> tuple[Tensor, ...]:
    return tuple(structured.graph_overlap(*arguments))


FORBIDDEN = LeftOut(
    "a similarity of -inf forbids the pair", lambda s, *rest: overlap_of_graphs(s.nan_to_num(neginf=-1.0), *rest)
)
FUNCTIONS = {
    "latent_overlap": FunctionCase(
        lambda *items: structured.latent_overlap(*items)[:3],  # the mapping is as wide as the batch has variables
        items_with_variables,
        pad_items,
        not_finite="no floats",
    ),
    "graph_overlap": FunctionCase(
        overlap_of_graphs,
        graphs,
        pad_graphs,
        rtol=1e-12,
        not_finite=lambda place, value: FORBIDDEN if value == -torch.inf else "nan",
    ),
    "reachability": FunctionCase(
        lambda adjacency: (structured.reachability(adjacency),),
        lambda generator, lead: (torch.rand(*lead, 6, 6, generator=generator) < 0.2,),
        not_finite="no floats",
    ),
}
