"""Rows of the structured domain."""

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import scipy.optimize
import torch
from torch import Generator, Tensor

from tensormetrics import structured
from tensormetrics.structured import functional

from .case import FunctionCase, LeftOut, MetricCase

CONSTRAINTS = ("<->", "->", "<-", "~")


def exact_similarities(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Sample multiples of 1/8, whose sums are exact in any order, and lengths."""
    similarity = torch.randint(-2, 9, (*batch_shape, 4, 5), generator=generator) / 8
    return similarity, *(torch.randint(0, n + 1, batch_shape, generator=generator) for n in (4, 5))


def key_lists(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    keys = (torch.randint(0, 4, (*batch_shape, n), generator=generator) for n in (5, 6))
    return *keys, *(torch.randint(0, n + 1, batch_shape, generator=generator) for n in (5, 6))


def best_assignment(similarity: np.ndarray) -> float:
    gain = np.maximum(similarity, 0)
    return gain[scipy.optimize.linear_sum_assignment(gain, maximize=True)].sum()


def best_chain(similarity: np.ndarray) -> float:
    table = np.zeros((similarity.shape[0] + 1, similarity.shape[1] + 1))
    for i, j in np.ndindex(*similarity.shape):
        table[i + 1, j + 1] = max(table[i, j + 1], table[i + 1, j], table[i, j] + max(similarity[i, j], 0))
    return table[-1, -1]


def ratios(cross: float, pred: float, ref: float) -> list[float]:
    return [cross / pred, cross / ref, 2 * cross / (pred + ref)]


def overlap_oracle(overlap):
    def oracle(similarity: np.ndarray, n_pred: np.ndarray, n_ref: np.ndarray) -> list[float]:
        cross = sum(overlap(s[:n, :m]) for s, n, m in zip(similarity, n_pred, n_ref, strict=True))
        return ratios(cross, n_pred.sum(), n_ref.sum())

    return oracle


def multiset_oracle(pred: np.ndarray, ref: np.ndarray, n_pred: np.ndarray, n_ref: np.ndarray) -> list[float]:
    rows = zip(pred, ref, n_pred, n_ref, strict=True)
    cross = sum((Counter(p[:n].tolist()) & Counter(r[:m].tolist())).total() for p, r, n, m in rows)
    return ratios(cross, n_pred.sum(), n_ref.sum())


def partitions(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    pred, ref = (torch.randint(-1, 4, (items, 9), generator=generator) for _ in range(2))
    return pred.where(torch.rand(items, 9, generator=generator) < 0.6, ref), ref


def coref_oracle(pred: np.ndarray, ref: np.ndarray) -> list[float]:
    """Compute mentions, MUC and CEAF-m from tables, and BLANC over all pairs of mentions."""
    sums, links = np.zeros((3, 3)), np.zeros((2, 3))
    for p, r in zip(pred, ref, strict=True):
        rows, cols = sorted({*p} - {-1}), sorted({*r} - {-1})
        table = np.array([[((p == i) & (r == j)).sum() for j in cols] for i in rows]).reshape(len(rows), len(cols))
        n, m = (p >= 0).sum(), (r >= 0).sum()
        sums[0] += table.sum(), n, m
        sums[1] += np.maximum(table - 1, 0).sum(), n - len(rows), m - len(cols)
        sums[2] += best_assignment(table), n, m
        for x, y in combinations(range(len(p)), 2):
            kinds = [None if ids[x] < 0 or ids[y] < 0 else int(ids[x] != ids[y]) for ids in (p, r)]
            for kind in {*kinds} - {None}:
                links[kind] += kinds[0] == kinds[1], kinds[0] == kind, kinds[1] == kind
    return [*(x for row in sums for x in ratios(*row)), *np.mean([ratios(*row) for row in links], 0)]


def rankings(generator: Generator, items: int) -> tuple[Tensor, ...]:
    pred, ref = torch.randint(0, 9, (items, 6), generator=generator), torch.rand(items, 9, generator=generator)
    return pred, ref.argsort(-1)[:, :5], *(torch.randint(0, n + 1, (items,), generator=generator) for n in (6, 5))


def ranking_oracle(pred: np.ndarray, ref: np.ndarray, n_pred: np.ndarray, n_ref: np.ndarray) -> list[float]:
    num_hits = [
        [len({*p[: min(k, n)]} & {*r[:m]}) for p, r, n, m in zip(pred, ref, n_pred, n_ref, strict=True)]
        for k in (1, 2, 4)
    ]
    return [
        *(np.mean(f) / k for f, k in zip(num_hits, (1, 2, 4), strict=True)),
        *(np.mean(np.sign(f)) for f in num_hits),
    ]


def noisy_boxes(generator: Generator, items: int) -> tuple[Tensor, ...]:
    start = torch.rand(items, 4, 2, generator=generator) * 10
    ref = torch.cat([start, start + 2 + 4 * torch.rand(items, 4, 2, generator=generator)], -1)
    pred = ref[:, torch.tensor([2, 0, 3])] + torch.randn(items, 3, 4, generator=generator) / 2
    pred[..., 2:] = torch.maximum(pred[..., :2], pred[..., 2:])
    return pred, ref, *(torch.randint(0, n + 1, (items,), generator=generator) for n in (3, 4))


def box_oracle(pred: np.ndarray, ref: np.ndarray, n_pred: np.ndarray, n_ref: np.ndarray) -> list[float]:
    def iou(a: np.ndarray, b: np.ndarray) -> float:
        shared = np.prod(np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0))
        area = [np.prod(np.maximum(box[2:] - box[:2], 0)) for box in (a, b)]
        return shared / (sum(area) - shared) if min(area) > 0 else 0.0

    pairs = 0
    for p, r, n, m in zip(pred, ref, n_pred, n_ref, strict=True):
        pairs += best_assignment(
            np.array([[iou(a, b) >= 0.5 for b in r[:m]] for a in p[:n]], dtype=float).reshape(n, m)
        )
    return ratios(pairs, n_pred.sum(), n_ref.sum())


def random_spans(generator: Generator, items: int) -> tuple[Tensor, ...]:
    def spans(n: int) -> Tensor:
        first = torch.randint(0, 3, (items, n), generator=generator)
        length = torch.randint(0, 2, (items, n), generator=generator)
        return torch.stack([torch.randint(0, 2, (items, n), generator=generator), first, first + length], -1)

    return spans(4), spans(5), *(torch.randint(0, n + 1, (items,), generator=generator) for n in (4, 5))


def span_oracle(pred: np.ndarray, ref: np.ndarray, n_pred: np.ndarray, n_ref: np.ndarray) -> list[float]:
    sums = np.zeros((2, 3))
    for p, r, n, m in zip(pred, ref, n_pred, n_ref, strict=True):
        for label in range(2):
            pred_counts, ref_counts = (Counter(map(tuple, spans[spans[:, 0] == label])) for spans in (p[:n], r[:m]))
            sums[label] += (pred_counts & ref_counts).total(), pred_counts.total(), ref_counts.total()
    return np.array([ratios(*row) for row in (sums.sum(0), *sums)]).T.ravel().tolist()


def random_relations(generator: Generator, items: int) -> tuple[Tensor, ...]:
    relations = (torch.randint(0, 2, (items, n, 5), generator=generator) for n in (6, 7))
    return *relations, *(torch.randint(0, n + 1, (items,), generator=generator) for n in (6, 7))


def random_events(generator: Generator, items: int) -> tuple[Tensor, ...]:
    def random_rows(*highs: int, rows: int) -> Tensor:
        return torch.stack([torch.randint(0, high, (items, rows), generator=generator) for high in highs], -1)

    ranges = ((3, 4), (3, 5), (0, 6), (0, 8))
    lengths = (torch.randint(low, high, (items,), generator=generator) for low, high in ranges)
    triggers = random_rows(2, 2, 1, rows=3), random_rows(2, 2, 1, rows=4)
    return *triggers, random_rows(3, 2, 2, 1, rows=5), random_rows(3, 2, 2, 1, rows=7), *lengths


def event_oracle(*arguments: np.ndarray) -> list[float]:
    """Compare all pairs of events, which are lists."""
    sums = np.zeros((4, 3))
    for row in zip(*arguments, strict=True):
        lengths = row[4:]
        triggers = [list(map(tuple, t[:n])) for t, n in zip(row[:2], lengths, strict=False)]
        args = [a[:n] for a, n in zip(row[2:4], lengths[2:], strict=True)]
        for metric, columns in enumerate((slice(1, 3), slice(0, 3))):
            trigger_counts = [Counter(trigger[columns] for trigger in document) for document in triggers]
            sums[metric] += (trigger_counts[0] & trigger_counts[1]).total(), len(triggers[0]), len(triggers[1])
        for metric, columns in ((2, slice(2, 4)), (3, slice(1, 4))):
            events = [
                [
                    (trigger, Counter(tuple(a[columns]) for a in table if a[0] == n))
                    for n, trigger in enumerate(document)
                ]
                for document, table in zip(triggers, args, strict=True)
            ]
            shared = np.array([[(x & y).total() * (s == t) for t, y in events[1]] for s, x in events[0]], dtype=float)
            sums[metric] += best_assignment(shared), len(args[0]), len(args[1])
    return [value for row in sums for value in ratios(*row)]


def cluster_oracle(pred: np.ndarray, ref: np.ndarray) -> list[float]:
    tables = [
        np.array([[((p == i) & (r == j)).sum() for j in range(4)] for i in range(4)])
        for p, r in zip(pred, ref, strict=True)
    ]
    return [sum(best_assignment(t) for t in tables) / sum(t.sum() for t in tables)]


@dataclass
class Item:
    label: str
    value: int


@structured.metametric(normalizer="f1")
@dataclass
class Document:
    items: list[Item]


def documents(rows: Tensor) -> list[Document]:
    return [Document([Item("ab"[value % 2], value) for value in row]) for row in rows.tolist()]


class FamilyOfRows(structured.Family):
    """Family whose update takes tensors, as all rows do."""

    def update(self, preds: Tensor, refs: Tensor, **items: Any) -> None:
        super().update(documents(preds), documents(refs), **items)


AVERAGES = {"micro": structured.micro_average(["f1"]), "macro": structured.macro_average(["recall"])}


def random_values(generator: Generator, items: int) -> tuple[Tensor, ...]:
    return tuple(torch.randint(0, 6, (items, n), generator=generator) for n in (3, 4))


def overlaps_of(pred: np.ndarray, ref: np.ndarray, parity: bool | None = None) -> np.ndarray:
    # pred: (B, N)  ref: (B, M)  ->  (B, 3) overlaps of the items of one label, or of all
    def count_values(row: np.ndarray) -> Counter:
        return Counter(value for value in row.tolist() if parity is None or value % 2 == parity)

    counters = [(count_values(p), count_values(r)) for p, r in zip(pred, ref, strict=True)]
    return np.array([((p & r).total(), p.total(), r.total()) for p, r in counters])


def f1_and_mean_recall(pred: np.ndarray, ref: np.ndarray) -> list[float]:
    rows = overlaps_of(pred, ref)
    return [ratios(*rows.sum(0))[2], float((rows[:, 0] / rows[:, 2]).mean())]


def family_oracle(pred: np.ndarray, ref: np.ndarray) -> list[float]:
    """Compute F1 and recall by label, in the order of the first predictions, with their means, after the averages."""
    parities = [bool(pred[0, 0] % 2), not pred[0, 0] % 2]
    sums = [overlaps_of(pred, ref, parity).sum(0) for parity in parities]
    means = []
    for position in (2, 1):  # f1, recall
        scores = [ratios(*row)[position] for row in sums]
        weights = [row[2] for row in sums]
        means += [*scores, np.mean(scores), np.average(scores, weights=weights)]
    return [*f1_and_mean_recall(pred, ref), *means]


class FieldScoresOfRows(structured.FieldScores):
    """Scores of fields whose update takes tensors: an integer, and a list of integers."""

    def __init__(self, replicates: int | None = None) -> None:
        integers = {"type": "array", "items": {"type": "integer"}}
        schema = {"type": "object", "properties": {"first": {"type": "integer"}, "others": integers}}
        super().__init__(schema, replicates=replicates)

    def update(self, preds: Tensor, refs: Tensor, **items: Any) -> None:
        fields = ([{"first": row[0], "others": row[1:]} for row in rows.tolist()] for rows in (preds, refs))
        super().update(*fields, **items)


def field_oracle(pred: np.ndarray, ref: np.ndarray) -> list[float]:
    """Compute precision, recall and F1 of all values, the fields' mean F1, rates of documents, and both fields' F1."""
    first = pred[:, 0] == ref[:, 0]
    others = overlaps_of(pred[:, 1:], ref[:, 1:])
    precision, recall, f1 = ratios(*(others.sum(0) + [first.sum(), len(pred), len(ref)]))
    by_path = [first.mean(), ratios(*others.sum(0))[2]]
    similarity = (first + 2 * others[:, 0] / others[:, 1:].sum(1)) / 2
    exact = first & (others[:, 0] == others[:, 1]) & (others[:, 0] == others[:, 2])
    return [precision, recall, f1, np.mean(by_path), similarity.mean(), exact.mean(), 1.0, 1.0, *by_path]


SIMILARITY_BAD = (
    (torch.zeros(3),),
    (torch.zeros(2, 3, dtype=torch.int64),),
    (torch.zeros(2, 3, 4), torch.zeros(3, dtype=torch.int64)),
    (torch.zeros(2, 3, 4), torch.zeros(2)),
)
KEYS_BAD = (
    (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.int64)),
    (torch.zeros(2, 3, dtype=torch.int64), torch.zeros(4, 3, dtype=torch.int64)),
)


def compute_values(metric):
    def scores(*arguments: Tensor) -> tuple[Tensor, ...]:
        updated = metric().to(arguments[0].device)
        updated.update(*arguments)
        return tuple(updated.compute().values())

    return scores


def policy_of_negative_infinity(call):
    forbidden = LeftOut(
        "a similarity of -inf forbids the pair", lambda s, *rest: call(s.nan_to_num(neginf=-1.0), *rest)
    )
    return lambda position, value: forbidden if value == -np.inf else "nan"


METRICS = {
    "SetMatch": MetricCase(
        structured.SetMatch,
        lambda g, n: exact_similarities(g, (n,)),
        overlap_oracle(best_assignment),
        bad=SIMILARITY_BAD,
        not_finite=policy_of_negative_infinity(compute_values(structured.SetMatch)),
    ),
    "SequenceMatch": MetricCase(
        structured.SequenceMatch,
        lambda g, n: exact_similarities(g, (n,)),
        overlap_oracle(best_chain),
        bad=SIMILARITY_BAD,
        not_finite=policy_of_negative_infinity(compute_values(structured.SequenceMatch)),
    ),
    "MultisetMatch": MetricCase(
        structured.MultisetMatch, lambda g, n: key_lists(g, (n,)), multiset_oracle, bad=KEYS_BAD
    ),
    "CorefScores": MetricCase(
        lambda: structured.CorefScores(("mentions", "muc", "ceaf_m", "blanc")),
        partitions,
        coref_oracle,
        bad=KEYS_BAD,
    ),
    "RankingScores": MetricCase(
        lambda: structured.RankingScores((1, 2, 4), ("precision", "hit")),
        rankings,
        ranking_oracle,
        bad=KEYS_BAD,
    ),
    "BoxMatch": MetricCase(
        lambda: structured.BoxMatch(objective="count"),
        noisy_boxes,
        box_oracle,
        bad=((torch.zeros(2, 3, 5), torch.zeros(2, 3, 4)), (torch.zeros(2, 3, 4), torch.zeros(3, 3, 4))),
        not_finite="nan",
    ),
    "SpanScores": MetricCase(
        lambda: structured.SpanScores(labels=("a", "b")),
        random_spans,
        span_oracle,
        bad=((torch.zeros(2, 3, 3), torch.zeros(2, 3, 3)), (torch.zeros(2, 4).long(), torch.zeros(2, 3).long())),
    ),
    "RelationScores": MetricCase(
        lambda: structured.RelationScores(labels=("a", "b")),
        random_relations,
        span_oracle,
        bad=((torch.zeros(2, 3, 5), torch.zeros(2, 3, 5)), (torch.zeros(2, 4, 5).long(), torch.zeros(2, 4, 3).long())),
    ),
    "EventScores": MetricCase(
        structured.EventScores,
        random_events,
        event_oracle,
        bad=(
            (torch.zeros(2, 3, 3), *[torch.zeros(2, 3, 4).long()] * 3),
            (*[torch.zeros(2, 3, 3).long()] * 2, torch.zeros(2, 3, 4), torch.zeros(2, 3, 4).long()),
        ),
    ),
    "Family": MetricCase(
        lambda: FamilyOfRows(Document.metric, AVERAGES, by="label"),
        random_values,
        family_oracle,
        bad=((torch.zeros(2, 3).long(), torch.zeros(3, 3).long()),),
        synchronizes=True,
        has_data_dependent_keys=True,
    ),
    "FieldScores": MetricCase(
        FieldScoresOfRows,
        random_values,
        field_oracle,
        rtol=1e-9,  # similarities are rounded, so that their sums do not depend on the order
        bad=((torch.zeros(2, 3).long(), torch.zeros(3, 3).long()),),
        synchronizes=True,
    ),
    "ClusterMatchScores": MetricCase(structured.ClusterMatchScores, partitions, cluster_oracle, bad=KEYS_BAD),
}


def pad_similarity(garbage: float, similarity: Tensor, n_pred: Tensor, n_ref: Tensor) -> tuple[Tensor, ...]:
    padded = similarity.new_full((*similarity.shape[:-2], 7, 9), garbage)
    padded[..., :4, :5] = similarity
    row, col = torch.arange(7).to(n_pred.device), torch.arange(9).to(n_pred.device)
    is_valid = (row < n_pred[..., None])[..., None] & (col < n_ref[..., None])[..., None, :]
    return padded.where(is_valid, garbage), n_pred, n_ref


def pad_keys(garbage: float, pred: Tensor, ref: Tensor, n_pred: Tensor, n_ref: Tensor) -> tuple[Tensor, ...]:
    wide = (torch.nn.functional.pad(keys, (0, 3), value=2) for keys in (pred, ref))
    garbage = int(garbage) if np.isfinite(garbage) else 1
    lengths = (n_pred, n_ref)
    return *(
        keys.where(torch.arange(keys.shape[-1]).to(n.device) < n[..., None], garbage)
        for keys, n in zip(wide, lengths, strict=True)
    ), *lengths


def call_with_all_constraints(overlap):
    return lambda *arguments: tuple(overlap(*arguments, c) for c in CONSTRAINTS)


def random_overlaps(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.randint(0, 4, batch_shape, generator=generator).double() for _ in range(3))


def random_boxes(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.rand(*batch_shape, n, 4, generator=generator) for n in (3, 5))


FUNCTIONS = {
    "set_overlap": FunctionCase(
        call_with_all_constraints(functional.set_overlap),
        exact_similarities,
        pad_similarity,
        compiles=True,
        not_finite=policy_of_negative_infinity(call_with_all_constraints(functional.set_overlap)),
    ),
    "sequence_overlap": FunctionCase(
        call_with_all_constraints(functional.sequence_overlap),
        exact_similarities,
        pad_similarity,
        compiles=True,
        not_finite=policy_of_negative_infinity(call_with_all_constraints(functional.sequence_overlap)),
    ),
    "multiset_overlap": FunctionCase(
        lambda *a: tuple(part for c in CONSTRAINTS for part in functional.multiset_overlap(*a, c)),
        key_lists,
        pad_keys,
        compiles=True,
    ),
    "normalize": FunctionCase(
        lambda *a: tuple(functional.normalize(*a, n) for n in ("none", "p", "r", "j", "f2")),
        random_overlaps,
        compiles=True,
        not_finite="nan",
    ),
    "box_iou": FunctionCase(lambda a, b: (functional.box_iou(a, b),), random_boxes, compiles=True, not_finite="nan"),
}
