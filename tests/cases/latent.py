"""Rows of the overlaps that are NP-hard, and of Smatch."""

import itertools
from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from tensormetrics import structured
from tensormetrics.structured import functional

from .case import FunctionCase, LeftOut, MetricCase

WIN = {"<->": min, "->": lambda p, r: p * (r > 0), "<-": lambda p, r: r * (p > 0), "~": lambda p, r: p * r}


def bound_items(props: np.ndarray, is_var: np.ndarray, names: Any) -> Counter:
    """Count the items after replacing variables by `names`."""
    called = [
        tuple(("variable", names[x]) if v else ("constant", x) for x, v in zip(*item, strict=True))
        for item in zip(props.tolist(), is_var.tolist(), strict=True)
    ]
    return Counter(called)


def best_of_all_mappings(
    pred: np.ndarray, pred_is_var: np.ndarray, ref: np.ndarray, ref_is_var: np.ndarray, constraint: str = "<->"
) -> int:
    """Compute the overlap by trying every one-to-one mapping of the variables: (N, F) and (M, F) arrays."""
    n, m = (int(props[is_var].max(initial=-1)) + 1 for props, is_var in ((pred, pred_is_var), (ref, ref_is_var)))
    items = bound_items(ref, ref_is_var, range(m))

    def value(mapping: tuple[int, ...]) -> int:
        mapped = bound_items(pred, pred_is_var, mapping)
        return sum(WIN[constraint](count, items[item]) for item, count in mapped.items())

    return max(map(value, itertools.permutations(range(max(n, m)), n)))


def items_with_variables(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    items = []
    for size in (5, 6):
        props = torch.randint(0, 3, (*batch_shape, size, 3), generator=generator)
        props[..., 1] = props[..., 1] % 2
        is_var = torch.rand(*batch_shape, size, 3, generator=generator) < 0.6
        items += [props, is_var & torch.tensor([True, False, True])]
    return *items, *(torch.randint(0, size + 1, batch_shape, generator=generator) for size in (5, 6))


def pad_items(garbage: float, *arguments: Tensor) -> tuple[Tensor, ...]:
    *items, n_pred, n_ref = arguments
    filler = int(garbage) if np.isfinite(garbage) else 7
    padded = []
    for array, n in zip(items, (n_pred, n_pred, n_ref, n_ref), strict=True):
        filled = torch.nn.functional.pad(array.long(), (0, 0, 0, 4), value=filler)
        filled[torch.arange(filled.shape[-2]) >= n[..., None].cpu()] = filler
        padded.append(filled.to(array.dtype))
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


def graphs(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    similarity = torch.rand(*batch_shape, 4, 5, generator=generator, dtype=torch.float64) - 0.3
    reachable = [functional.reachability(torch.rand(*batch_shape, n, n, generator=generator) < 0.2) for n in (4, 5)]
    return similarity, *reachable, *(torch.randint(0, n + 1, batch_shape, generator=generator) for n in (4, 5))


def pad_graphs(garbage: float, *arguments: Tensor) -> tuple[Tensor, ...]:
    similarity, pred_reachable, ref_reachable, n_pred, n_ref = arguments
    padded = torch.nn.functional.pad(similarity, (0, 1, 0, 2), value=garbage)
    padded[torch.arange(6) >= n_pred[:, None].cpu()] = garbage
    padded.mT[torch.arange(6) >= n_ref[:, None].cpu()] = garbage
    padded_reachable = [
        torch.nn.functional.pad(reachable, (0, extra, 0, extra), value=garbage == 0)
        for reachable, extra in ((pred_reachable, 2), (ref_reachable, 1))
    ]
    return padded, *padded_reachable, n_pred, n_ref


# text, triples; variables are 0, 1, ... in order of their instances, the triple of the root is last
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


class SmatchOfIndices(structured.Smatch):
    """Smatch of graphs that are given by their index in GRAPHS."""

    def update(self, preds: Tensor, refs: Tensor, **items) -> None:
        super().update(*([GRAPHS[index][0] for index in indices.tolist()] for indices in (preds, refs)), **items)


def smatch_oracle(preds: np.ndarray, refs: np.ndarray) -> list[float]:
    table: dict[str, int] = {}

    def encode(triples: list[tuple]) -> tuple[np.ndarray, np.ndarray]:
        is_var = np.array([[isinstance(entry, int) for entry in triple] for triple in triples])
        codes = [
            [entry if isinstance(entry, int) else table.setdefault(entry, len(table)) for entry in triple]
            for triple in triples
        ]
        return np.array(codes), is_var

    encoded = [encode(triples) for _, triples in GRAPHS]
    best = [[best_of_all_mappings(*pred, *ref) for ref in encoded] for pred in encoded]
    sizes = np.array([len(props) for props, _ in encoded])
    scores = micro(np.array(best)[preds, refs].sum(), sizes[preds].sum(), sizes[refs].sum())
    return [*scores, 1.0, scores[-1]]


def graph_pairs(generator: Generator, items: int) -> tuple[Tensor, ...]:
    return tuple(torch.randint(0, len(GRAPHS), (items,), generator=generator) for _ in range(2))


METRICS = {
    "LatentMatch": MetricCase(
        structured.LatentMatch,
        lambda generator, items: items_with_variables(generator, (items,)),
        latent_oracle,
        bad=((torch.zeros(2, 3, 2), *(torch.zeros(2, 3, 2).long() for _ in range(3))),),
        synchronizes=True,
    ),
    "Smatch": MetricCase(
        SmatchOfIndices,
        graph_pairs,
        smatch_oracle,
        bad=((torch.zeros(2).long(), torch.zeros(3).long()),),
        synchronizes=True,
    ),
}


def overlap_of_graphs(*arguments: Tensor) -> tuple[Tensor, ...]:
    return tuple(functional.graph_overlap(*arguments))


FORBIDDEN = LeftOut(
    "a similarity of -inf forbids the pair", lambda s, *rest: overlap_of_graphs(s.nan_to_num(neginf=-1.0), *rest)
)
FUNCTIONS = {
    "latent_overlap": FunctionCase(
        lambda *items: functional.latent_overlap(*items)[:3],  # the mapping is as wide as the batch has variables
        items_with_variables,
        pad_items,
    ),
    "graph_overlap": FunctionCase(
        overlap_of_graphs,
        graphs,
        pad_graphs,
        rtol=1e-12,
        not_finite=lambda position, value: FORBIDDEN if value == -torch.inf else "nan",
    ),
    "reachability": FunctionCase(
        lambda adjacency: (functional.reachability(adjacency),),
        lambda generator, batch_shape: (torch.rand(*batch_shape, 6, 6, generator=generator) < 0.2,),
    ),
}
