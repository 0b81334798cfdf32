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

from .case import FunctionCase, LeftOut, MetricCase

CONSTRAINTS = ("<->", "->", "<-", "~")


def eighths(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Similarities whose sums are exact, so that the order of adding never shows."""
    similarity = torch.randint(-2, 9, (*lead, 4, 5), generator=generator) / 8
    return similarity, *(torch.randint(0, n + 1, lead, generator=generator) for n in (4, 5))


def key_lists(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, ...]:
    keys = (torch.randint(0, 4, (*lead, n), generator=generator) for n in (5, 6))
    return *keys, *(torch.randint(0, n + 1, lead, generator=generator) for n in (5, 6))


def best(similarity: np.ndarray) -> float:
    gain = np.maximum(similarity, 0)
    return gain[scipy.optimize.linear_sum_assignment(gain, maximize=True)].sum()


def chain(similarity: np.ndarray) -> float:
    table = np.zeros((similarity.shape[0] + 1, similarity.shape[1] + 1))
    for i, j in np.ndindex(*similarity.shape):
        table[i + 1, j + 1] = max(table[i, j + 1], table[i + 1, j], table[i, j] + max(similarity[i, j], 0))
    return table[-1, -1]


def ratios(cross: float, pred: float, ref: float) -> list[float]:
    return [cross / pred, cross / ref, 2 * cross / (pred + ref)]


def matched_by(overlap):
    def oracle(similarity: np.ndarray, n_pred: np.ndarray, n_ref: np.ndarray) -> list[float]:
        cross = sum(overlap(s[:n, :m]) for s, n, m in zip(similarity, n_pred, n_ref, strict=True))
        return ratios(cross, n_pred.sum(), n_ref.sum())

    return oracle


def counted(pred: np.ndarray, ref: np.ndarray, n_pred: np.ndarray, n_ref: np.ndarray) -> list[float]:
    rows = zip(pred, ref, n_pred, n_ref, strict=True)
    cross = sum((Counter(p[:n].tolist()) & Counter(r[:m].tolist())).total() for p, r, n, m in rows)
    return ratios(cross, n_pred.sum(), n_ref.sum())


def two_clusterings(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    pred, ref = (torch.randint(-1, 4, (items, 9), generator=generator) for _ in range(2))
    return pred.where(torch.rand(items, 9, generator=generator) < 0.6, ref), ref


def coreference(pred: np.ndarray, ref: np.ndarray) -> list[float]:
    """Mentions, MUC and CEAF-m from tables; BLANC by looking at every pair of mentions."""
    sums, links = np.zeros((3, 3)), np.zeros((2, 3))
    for p, r in zip(pred, ref, strict=True):
        rows, cols = sorted({*p} - {-1}), sorted({*r} - {-1})
        table = np.array([[((p == i) & (r == j)).sum() for j in cols] for i in rows]).reshape(len(rows), len(cols))
        n, m = (p >= 0).sum(), (r >= 0).sum()
        sums[0] += table.sum(), n, m
        sums[1] += np.maximum(table - 1, 0).sum(), n - len(rows), m - len(cols)
        sums[2] += best(table), n, m
        for x, y in combinations(range(len(p)), 2):
            kinds = [None if ids[x] < 0 or ids[y] < 0 else int(ids[x] != ids[y]) for ids in (p, r)]
            for kind in {*kinds} - {None}:
                links[kind] += kinds[0] == kinds[1], kinds[0] == kind, kinds[1] == kind
    return [*(x for row in sums for x in ratios(*row)), *np.mean([ratios(*row) for row in links], 0)]


def rankings(generator: Generator, items: int) -> tuple[Tensor, ...]:
    pred, ref = torch.randint(0, 9, (items, 6), generator=generator), torch.rand(items, 9, generator=generator)
    return pred, ref.argsort(-1)[:, :5], *(torch.randint(0, n + 1, (items,), generator=generator) for n in (6, 5))


def ranked(pred: np.ndarray, ref: np.ndarray, n_pred: np.ndarray, n_ref: np.ndarray) -> list[float]:
    found = [
        [len({*p[: min(k, n)]} & {*r[:m]}) for p, r, n, m in zip(pred, ref, n_pred, n_ref, strict=True)]
        for k in (1, 2, 4)
    ]
    return [*(np.mean(f) / k for f, k in zip(found, (1, 2, 4), strict=True)), *(np.mean(np.sign(f)) for f in found)]


def noisy_boxes(generator: Generator, items: int) -> tuple[Tensor, ...]:
    start = torch.rand(items, 4, 2, generator=generator) * 10
    ref = torch.cat([start, start + 2 + 4 * torch.rand(items, 4, 2, generator=generator)], -1)
    pred = ref[:, torch.tensor([2, 0, 3])] + torch.randn(items, 3, 4, generator=generator) / 2
    return pred, ref, *(torch.randint(0, n + 1, (items,), generator=generator) for n in (3, 4))


def paired_boxes(pred: np.ndarray, ref: np.ndarray, n_pred: np.ndarray, n_ref: np.ndarray) -> list[float]:
    def iou(a: np.ndarray, b: np.ndarray) -> float:
        shared = np.prod(np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0))
        area = [np.prod(np.maximum(box[2:] - box[:2], 0)) for box in (a, b)]
        return shared / (sum(area) - shared) if min(area) > 0 else 0.0

    pairs = 0
    for p, r, n, m in zip(pred, ref, n_pred, n_ref, strict=True):
        pairs += best(np.array([[iou(a, b) >= 0.5 for b in r[:m]] for a in p[:n]], dtype=float).reshape(n, m))
    return ratios(pairs, n_pred.sum(), n_ref.sum())


def some_spans(generator: Generator, items: int) -> tuple[Tensor, ...]:
    def side(n: int) -> Tensor:
        first = torch.randint(0, 3, (items, n), generator=generator)
        length = torch.randint(0, 2, (items, n), generator=generator)
        return torch.stack([torch.randint(0, 2, (items, n), generator=generator), first, first + length], -1)

    return side(4), side(5), *(torch.randint(0, n + 1, (items,), generator=generator) for n in (4, 5))


def strict_spans(pred: np.ndarray, ref: np.ndarray, n_pred: np.ndarray, n_ref: np.ndarray) -> list[float]:
    sums = np.zeros((2, 3))
    for p, r, n, m in zip(pred, ref, n_pred, n_ref, strict=True):
        for label in range(2):
            one, two = (Counter(map(tuple, side[side[:, 0] == label])) for side in (p[:n], r[:m]))
            sums[label] += (one & two).total(), one.total(), two.total()
    return np.array([ratios(*row) for row in (sums.sum(0), *sums)]).T.ravel().tolist()


def some_relations(generator: Generator, items: int) -> tuple[Tensor, ...]:
    sides = (torch.randint(0, 2, (items, n, 5), generator=generator) for n in (6, 7))
    return *sides, *(torch.randint(0, n + 1, (items,), generator=generator) for n in (6, 7))


def some_events(generator: Generator, items: int) -> tuple[Tensor, ...]:
    def drawn(*highs: int, rows: int) -> Tensor:
        return torch.stack([torch.randint(0, high, (items, rows), generator=generator) for high in highs], -1)

    ranges = ((3, 4), (3, 5), (0, 6), (0, 8))
    lengths = (torch.randint(low, high, (items,), generator=generator) for low, high in ranges)
    triggers = drawn(2, 2, 1, rows=3), drawn(2, 2, 1, rows=4)
    return *triggers, drawn(3, 2, 2, 1, rows=5), drawn(3, 2, 2, 1, rows=7), *lengths


def linked_by_trigger(*arguments: np.ndarray) -> list[float]:
    """Events as lists, all pairs of them compared."""
    sums = np.zeros((4, 3))
    for row in zip(*arguments, strict=True):
        lengths = row[4:]
        triggers = [list(map(tuple, t[:n])) for t, n in zip(row[:2], lengths, strict=False)]
        args = [a[:n] for a, n in zip(row[2:4], lengths[2:], strict=True)]
        for metric, columns in enumerate((slice(1, 3), slice(0, 3))):
            sides = [Counter(trigger[columns] for trigger in side) for side in triggers]
            sums[metric] += (sides[0] & sides[1]).total(), len(triggers[0]), len(triggers[1])
        for metric, columns in ((2, slice(2, 4)), (3, slice(1, 4))):
            events = [
                [(trigger, Counter(tuple(a[columns]) for a in table if a[0] == n)) for n, trigger in enumerate(side)]
                for side, table in zip(triggers, args, strict=True)
            ]
            shared = np.array([[(x & y).total() * (s == t) for t, y in events[1]] for s, x in events[0]], dtype=float)
            sums[metric] += best(shared), len(args[0]), len(args[1])
    return [value for row in sums for value in ratios(*row)]


def relabelled(pred: np.ndarray, ref: np.ndarray) -> list[float]:
    tables = [
        np.array([[((p == i) & (r == j)).sum() for j in range(4)] for i in range(4)])
        for p, r in zip(pred, ref, strict=True)
    ]
    return [sum(best(t) for t in tables) / sum(t.sum() for t in tables)]


@dataclass
class Item:
    label: str
    number: int


@structured.metametric(normalizer="f1")
@dataclass
class Document:
    items: list[Item]


def documents(rows: Tensor) -> list[Document]:
    return [Document([Item("ab"[number % 2], number) for number in row]) for row in rows.tolist()]


class FamilyOfRows(structured.Family):
    """A family that is fed with tensors, as all rows are."""

    def update(self, preds: Tensor, refs: Tensor, **items: Any) -> None:
        super().update(documents(preds), documents(refs), **items)


AVERAGES = {"micro": structured.micro_average(["f1"]), "macro": structured.macro_average(["recall"])}


class SuiteOfRows(structured.Suite):
    """A nested suite that is fed with tensors."""

    def __init__(self, replicates: int = 0) -> None:
        labels = {"by": "label", "labels": ["b", "c"]}
        labelled = structured.Family(Document.metric, AVERAGES["micro"], replicates=replicates, **labels)
        plain = structured.Family(Document.metric, AVERAGES, replicates=replicates)
        super().__init__({"plain": plain, "nested": structured.Suite({"a.b": labelled})})
        self.replicates = replicates

    def update(self, preds: Tensor, refs: Tensor, **items: Any) -> None:
        super().update(documents(preds), documents(refs), **items)


def some_numbers(generator: Generator, items: int) -> tuple[Tensor, ...]:
    return tuple(torch.randint(0, 6, (items, n), generator=generator) for n in (3, 4))


def overlaps_of(pred: np.ndarray, ref: np.ndarray, odd: bool | None = None) -> np.ndarray:
    # ->  (B, 3), of the items of one label
    def kept(row: np.ndarray) -> Counter:
        return Counter(number for number in row.tolist() if odd is None or number % 2 == odd)

    sides = [(kept(p), kept(r)) for p, r in zip(pred, ref, strict=True)]
    return np.array([((p & r).total(), p.total(), r.total()) for p, r in sides])


def averages(pred: np.ndarray, ref: np.ndarray) -> list[float]:
    rows = overlaps_of(pred, ref)
    return [ratios(*rows.sum(0))[2], float((rows[:, 0] / rows[:, 2]).mean())]


def by_label(pred: np.ndarray, ref: np.ndarray) -> list[float]:
    """Of the labels that were met, in the order of the first predictions; also their recall, and the means."""
    odd = [bool(pred[0, 0] % 2), not pred[0, 0] % 2]
    sums = [overlaps_of(pred, ref, side).sum(0) for side in odd]
    found = []
    for place in (2, 1):  # f1, recall
        scores = [ratios(*row)[place] for row in sums]
        weights = [row[2] for row in sums]
        found += [*scores, np.mean(scores), np.average(scores, weights=weights)]
    return [*averages(pred, ref), *found]


def in_a_suite(pred: np.ndarray, ref: np.ndarray) -> list[float]:
    score = ratios(*overlaps_of(pred, ref, True).sum(0))[2]
    return [*averages(pred, ref), averages(pred, ref)[0], score, 0.0, score, score]


class FieldScoresOfRows(structured.FieldScores):
    """Scores of fields that are fed with tensors: a number, and a list of numbers."""

    def __init__(self, replicates: int = 0) -> None:
        numbers = {"type": "array", "items": {"type": "integer"}}
        schema = {"type": "object", "properties": {"first": {"type": "integer"}, "others": numbers}}
        super().__init__(schema, replicates=replicates)

    def update(self, preds: Tensor, refs: Tensor, **items: Any) -> None:
        sides = ([{"first": row[0], "others": row[1:]} for row in rows.tolist()] for rows in (preds, refs))
        super().update(*sides, **items)


def by_field(pred: np.ndarray, ref: np.ndarray) -> list[float]:
    """Precision, recall and F1 of all numbers, the mean of the fields' F1, rates of documents, F1 of both fields."""
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


def scored_by(metric):
    def scores(*arguments: Tensor) -> tuple[Tensor, ...]:
        fed = metric().to(arguments[0].device)
        fed.update(*arguments)
        return tuple(fed.compute().values())

    return scores


def forbidding(call):
    forbidden = LeftOut(
        "a similarity of -inf forbids the pair", lambda s, *rest: call(s.nan_to_num(neginf=-1.0), *rest)
    )
    return lambda place, value: forbidden if value == -np.inf else "nan"


METRICS = {
    "SetMatch": MetricCase(
        structured.SetMatch,
        lambda g, n: eighths(g, (n,)),
        matched_by(best),
        bad=SIMILARITY_BAD,
        not_finite=forbidding(scored_by(structured.SetMatch)),
    ),
    "SequenceMatch": MetricCase(
        structured.SequenceMatch,
        lambda g, n: eighths(g, (n,)),
        matched_by(chain),
        bad=SIMILARITY_BAD,
        not_finite=forbidding(scored_by(structured.SequenceMatch)),
    ),
    "MultisetMatch": MetricCase(
        structured.MultisetMatch, lambda g, n: key_lists(g, (n,)), counted, bad=KEYS_BAD, not_finite="no floats"
    ),
    "CorefScores": MetricCase(
        lambda: structured.CorefScores(("mentions", "muc", "ceaf_m", "blanc")),
        two_clusterings,
        coreference,
        bad=KEYS_BAD,
        not_finite="no floats",
    ),
    "RankingScores": MetricCase(
        lambda: structured.RankingScores((1, 2, 4), ("precision", "hit")),
        rankings,
        ranked,
        bad=KEYS_BAD,
        not_finite="no floats",
    ),
    "BoxMatch": MetricCase(
        lambda: structured.BoxMatch(objective="count"),
        noisy_boxes,
        paired_boxes,
        bad=((torch.zeros(2, 3, 5), torch.zeros(2, 3, 4)), (torch.zeros(2, 3, 4), torch.zeros(3, 3, 4))),
        not_finite="nan",
    ),
    "SpanScores": MetricCase(
        lambda: structured.SpanScores(labels=("a", "b")),
        some_spans,
        strict_spans,
        bad=((torch.zeros(2, 3, 3), torch.zeros(2, 3, 3)), (torch.zeros(2, 4).long(), torch.zeros(2, 3).long())),
        not_finite="no floats",
    ),
    "RelationScores": MetricCase(
        lambda: structured.RelationScores(labels=("a", "b")),
        some_relations,
        strict_spans,
        bad=((torch.zeros(2, 3, 5), torch.zeros(2, 3, 5)), (torch.zeros(2, 4, 5).long(), torch.zeros(2, 4, 3).long())),
        not_finite="no floats",
    ),
    "EventScores": MetricCase(
        structured.EventScores,
        some_events,
        linked_by_trigger,
        bad=(
            (torch.zeros(2, 3, 3), *[torch.zeros(2, 3, 4).long()] * 3),
            (*[torch.zeros(2, 3, 3).long()] * 2, torch.zeros(2, 3, 4), torch.zeros(2, 3, 4).long()),
        ),
        not_finite="no floats",
    ),
    "Family": MetricCase(
        lambda: FamilyOfRows(Document.metric, AVERAGES, by="label"),
        some_numbers,
        by_label,
        bad=((torch.zeros(2, 3).long(), torch.zeros(3, 3).long()),),
        waits=True,
        not_finite="no floats",
        names_what_it_met=True,
    ),
    "Suite": MetricCase(
        SuiteOfRows,
        some_numbers,
        in_a_suite,
        bad=((torch.zeros(2, 3).long(), torch.zeros(3, 3).long()),),
        waits=True,
        not_finite="no floats",
    ),
    "FieldScores": MetricCase(
        FieldScoresOfRows,
        some_numbers,
        by_field,
        rtol=1e-9,  # similarities are rounded, so that their sums have no order
        bad=((torch.zeros(2, 3).long(), torch.zeros(3, 3).long()),),
        waits=True,
        not_finite="no floats",
    ),
    "ClusterMatchScores": MetricCase(
        structured.ClusterMatchScores, two_clusterings, relabelled, bad=KEYS_BAD, not_finite="no floats"
    ),
}


def pad_similarity(garbage: float, similarity: Tensor, n_pred: Tensor, n_ref: Tensor) -> tuple[Tensor, ...]:
    padded = similarity.new_full((*similarity.shape[:-2], 7, 9), garbage)
    padded[..., :4, :5] = similarity
    row, col = torch.arange(7).to(n_pred.device), torch.arange(9).to(n_pred.device)
    inside = (row < n_pred[..., None])[..., None] & (col < n_ref[..., None])[..., None, :]
    return padded.where(inside, garbage), n_pred, n_ref


def pad_keys(garbage: float, pred: Tensor, ref: Tensor, n_pred: Tensor, n_ref: Tensor) -> tuple[Tensor, ...]:
    wide = (torch.nn.functional.pad(keys, (0, 3), value=2) for keys in (pred, ref))
    garbage = int(garbage) if np.isfinite(garbage) else 1
    lengths = (n_pred, n_ref)
    return *(
        keys.where(torch.arange(keys.shape[-1]).to(n.device) < n[..., None], garbage)
        for keys, n in zip(wide, lengths, strict=True)
    ), *lengths


def every_constraint(overlap):
    return lambda *arguments: tuple(overlap(*arguments, c) for c in CONSTRAINTS)


def some_overlaps(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.randint(0, 4, lead, generator=generator).double() for _ in range(3))


def two_sets_of_boxes(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.rand(*lead, n, 4, generator=generator) for n in (3, 5))


FUNCTIONS = {
    "set_overlap": FunctionCase(
        every_constraint(structured.set_overlap),
        eighths,
        pad_similarity,
        compiles=True,
        not_finite=forbidding(every_constraint(structured.set_overlap)),
    ),
    "sequence_overlap": FunctionCase(
        every_constraint(structured.sequence_overlap),
        eighths,
        pad_similarity,
        compiles=True,
        not_finite=forbidding(every_constraint(structured.sequence_overlap)),
    ),
    "multiset_overlap": FunctionCase(
        lambda *a: tuple(part for c in CONSTRAINTS for part in structured.multiset_overlap(*a, c)),
        key_lists,
        pad_keys,
        compiles=True,
        not_finite="no floats",
    ),
    "normalize": FunctionCase(
        lambda *a: tuple(structured.normalize(*a, n) for n in ("none", "p", "r", "j", "f2")),
        some_overlaps,
        compiles=True,
        not_finite="nan",
    ),
    "box_iou": FunctionCase(
        lambda a, b: (structured.box_iou(a, b),), two_sets_of_boxes, compiles=True, not_finite="nan"
    ),
}
