"""Rankings of objects: `dsl.ranking` with `RankingScores`."""

import copy
import math
import pickle
from dataclasses import dataclass
from itertools import pairwise, permutations

import pytest
import torch
from fake_device import DEVICE, Device
from raising import raises

from tensormetrics.structured import RankingScores, dsl

NAMES = ("precision", "recall", "hit", "ap", "ndcg", "r_precision", "rr")
SAME = dsl.discrete[int]


def closeness(x: int, y: int) -> float:
    return max(1 - abs(x - y) / 4, 0)


CLOSE = dsl.from_func(closeness)


@dataclass(frozen=True)
class Landmark:
    name: str
    at: int


def scored(inner, preds, refs, gains=None, max_k=10, ks=(1, 2, 4), zero_division=0.0) -> dict[str, float]:
    metric = RankingScores(ks, NAMES, zero_division)
    metric.update_rankings(dsl.ranking[max_k](inner), preds, refs, gains)
    return {name: float(value) for name, value in metric.compute().items()}


def documents(generator: torch.Generator, size: int, max_length: int, repeats: bool) -> tuple[list, list]:
    """Predictions with repeats, references with or without; some of them empty."""
    rows_a = torch.randint(0, 6, (size, max_length), generator=generator).tolist()
    other = [torch.randperm(6, generator=generator)[:max_length].tolist() for _ in range(size)]
    if repeats:
        other = torch.randint(0, 6, (size, max_length), generator=generator).tolist()
    lengths = torch.randint(0, max_length + 1, (2, size), generator=generator).tolist()
    inputs = zip((rows_a, other), lengths, strict=True)
    return tuple([row[:n] for row, n in zip(rows, counts, strict=True)] for rows, counts in inputs)


def padded(rows: list[list], dtype=torch.int64) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [0] * (width - len(row)) for row in rows], dtype=dtype)


@pytest.mark.parametrize("zero_division", [0.0, float("nan"), "agree"])
def test_equality_is_the_same_from_keys(generator, zero_division):
    preds, refs = documents(generator, 60, 6, repeats=False)
    gains = [torch.rand(len(ref), generator=generator).tolist() for ref in refs]
    for gain_lists in (None, gains):
        expected = RankingScores((1, 2, 4), NAMES, zero_division)
        lengths = (torch.tensor(list(map(len, part))) for part in (preds, refs))
        gain = None if gain_lists is None else padded(gain_lists, torch.float64)
        expected.update(padded(preds), padded(refs), *lengths, gain)
        expected = {name: float(value) for name, value in expected.compute().items()}
        assert scored(SAME, preds, refs, gain_lists, zero_division=zero_division) == pytest.approx(expected, abs=1e-12)
    similarity = dsl.from_func(lambda x, y: float(x == y))
    expected = scored(SAME, preds, refs, zero_division=zero_division)
    assert scored(similarity, preds, refs, zero_division=zero_division) == pytest.approx(expected, abs=1e-12)


def overlap(pred: list[int], ref: list[int], similarity) -> float:
    size = len(pred) + len(ref)
    table = [[similarity(x, y) for y in ref] + [0.0] * (size - len(ref)) for x in pred]
    orders = permutations(range(size), len(pred))
    return max(sum(row[b] for row, b in zip(table, order, strict=True)) for order in orders)


def by_definition(pred: list[int], ref: list[int], similarity) -> dict[str, float]:
    o = [overlap(pred[:k], ref, similarity) for k in range(max(len(pred), 4) + 1)]
    h = [after - before for before, after in pairwise(o)]
    m = max(len(ref), 1)
    ranks = range(1, len(h) + 1)

    def discounted(gain: list[float]) -> float:
        return sum(g / math.log2(i + 1) for i, g in enumerate(gain, 1))

    scores = {"ap": sum(h[i - 1] * o[i] / i for i in ranks) / m, "r_precision": o[min(len(ref), len(h))] / m}
    scores["rr"] = next((1 / i for i in ranks if o[i] > 0), 0.0)
    scores["ndcg"] = discounted(h) / (discounted([1] * len(ref)) or 1)
    for k in (1, 2, 4):
        scores |= {f"precision@{k}": o[k] / k, f"recall@{k}": o[k] / m, f"hit@{k}": float(o[k] > 0)}
        scores[f"ap@{k}"] = sum(h[i - 1] * o[i] / i for i in ranks[:k]) / m
        scores[f"ndcg@{k}"] = discounted(h[:k]) / (discounted([1] * min(k, len(ref))) or 1)
    return scores


@pytest.mark.parametrize("similarity", [closeness, lambda x, y: float(x == y)], ids=["partial", "equal"])
def test_ranked_objects_match_enumeration(generator, similarity):
    inner = dsl.from_func(similarity) if similarity is closeness else SAME
    preds, refs = documents(generator, 40, 4, repeats=True)
    rows = [by_definition(pred, ref, similarity) for pred, ref in zip(preds, refs, strict=True)]
    scores = scored(inner, preds, refs)
    assert scores == pytest.approx({name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}, abs=1e-12)


@pytest.mark.parametrize("inner", [CLOSE, SAME], ids=["partial", "equal"])
def test_ranked_objects_without_items_use_zero_division(inner):
    over_references = {"recall@2", "ap@2", "ndcg@2", "ap", "ndcg", "r_precision"}
    for zero_division, pred, expected in ((0.5, [1], 0.5), (0.5, [], 0.5), ("agree", [], 1), ("agree", [1], 0)):
        scores = scored(inner, [pred], [[]], ks=(2,), zero_division=zero_division)
        assert {name for name, value in scores.items() if value == expected} >= over_references
        assert scores["precision@2"] == scores["hit@2"] == scores["rr"] == 0
    assert set(scored(inner, [[]], [[1]], zero_division=0.5).values()) == {0}


def test_gains_of_equal_objects_are_matched_in_order():
    """The n-th of equal predictions is matched to the n-th of equal references."""
    a, b, c = Landmark("a", 1), Landmark("b", 2), Landmark("c", 3)
    ndcg = scored(dsl.auto[Landmark], [[b, a, a, a]], [[a, c, a, b]], [[3, 9, 1, 2]])["ndcg"]
    gained, ideal = (sum(g / math.log2(i + 1) for i, g in enumerate(row, 1)) for row in ((2, 3, 1), (9, 3, 2, 1)))
    assert ndcg == pytest.approx(gained / ideal)


def test_records_whose_names_differ_are_not_compared():
    seen = []
    near = dsl.from_func(lambda x, y: seen.append((x, y)) or closeness(x, y))
    inner = dsl.dataclass[Landmark]({"name": ..., "at": near})
    preds, refs = [[Landmark("a", 1), Landmark("b", 2)]], [[Landmark("b", 3), Landmark("c", 1)]]
    assert scored(inner, preds, refs)["precision@2"] == pytest.approx(0.75 / 2) and seen == [(2, 3)]


def test_ranked_objects_in_chunks_match_single_batch(generator, monkeypatch):
    preds, refs = documents(generator, 30, 6, repeats=True)
    expected = scored(CLOSE, preds, refs)
    monkeypatch.setattr("tensormetrics.structured.objects.nodes.set.MAX_PAIRS", 40)
    assert scored(CLOSE, preds, refs) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("inner", [CLOSE, SAME], ids=["partial", "equal"])
def test_ranked_objects_on_a_device_match_cpu(generator, inner):
    preds, refs = documents(generator, 20, 6, repeats=True)
    metric, ranking = RankingScores((1, 2, 4), NAMES), dsl.ranking[10](inner)
    with Device():
        metric.to(DEVICE)
        for device_name in ("cpu", DEVICE):
            metric.update_rankings(ranking.to(device_name), preds, refs)
        scores = {name: float(value.cpu()) for name, value in metric.compute().items()}
    assert scores == pytest.approx(scored(inner, preds, refs), abs=1e-12)


def test_scores_of_the_whole_ranking_take_any_depth():
    metric = RankingScores(scores=("rr",))
    metric.update_rankings(dsl.ranking[2](SAME), [[1, 2, 3], [1, 2, 3]], [[2], [3]])
    assert float(metric.compute()["rr"]) == 0.25  # 3 is third and ignored


def test_a_copy_and_a_failure():
    ranking = dsl.ranking[5](dsl.auto[Landmark])
    metric = RankingScores((1,), ("hit",))
    for same in (pickle.loads(pickle.dumps(ranking)), copy.deepcopy(ranking)):
        metric.update_rankings(same, [[Landmark("a", 1)]], [[Landmark("a", 1)]])
    with pytest.raises(TypeError, match=r"^refs\[0\]\[0\]: got 3"):
        metric.update_rankings(ranking, [[Landmark("a", 1)]], [[3]])
    assert metric.update_count == 2 and float(metric.compute()["hit@1"]) == 1


@pytest.mark.parametrize(
    ("kind", "call", "message"),
    [
        (TypeError, lambda: dsl.ranking[3](...), "inner: got Ellipsis, wanted a metric such as dsl.auto[...]"),
        (ValueError, lambda: dsl.ranking[0](SAME), "max_k: got 0, wanted an integer >= 1"),
        (ValueError, lambda: scored(SAME, [], [], max_k=3), "ks: got 4 above max_k 3; write ranking[4]"),
        (ValueError, lambda: scored(SAME, [[]], []), "lengths differ: preds has 1, refs has 0"),
        (TypeError, lambda: scored(SAME, [[], {1}], [[], []]), "preds[1]: got a set, wanted a list, best first"),
        (
            TypeError,
            lambda: scored(SAME, ["ab"], [[]]),
            "preds[0]: got 'ab' of type str, wanted a collection such as a list",
        ),
        (
            TypeError,
            lambda: scored(SAME, [[]], [None]),
            "refs[0]: got None of type NoneType, wanted a collection such as a list",
        ),
        (
            ValueError,
            lambda: scored(SAME, [[], []], [[1], [2, 3]], [[1], [2]]),
            "gains[1]: got 1 numbers, wanted one for each of 2 references",
        ),
        (ValueError, lambda: scored(SAME, [[]], [[1]], []), "lengths differ: gains has 0, refs has 1"),
        (
            ValueError,
            lambda: scored(CLOSE, [[]], [[1]], [[1]]),
            "gains: got gains with an inner metric that is no equality, for which fractions of a gain are not "
            "defined; leave them out, or write dsl.discrete[...]",
        ),
    ],
)
def test_ranked_objects_invalid_arguments_raise(kind, call, message):
    with raises(kind, message):
        call()
