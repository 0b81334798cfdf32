"""Features of a metric of objects other than scores, and how often it reads the objects."""

import copy
import gc
import math
import pickle
import weakref
from collections import Counter
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

import numpy as np
import pytest
import torch

from tensormetrics.structured import Family, derive, dsl, macro_average, metametric, micro_average
from tensormetrics.structured.extend import Normalizer, Policy, StructuredMetric
from tensormetrics.structured.functional import set_overlap
from tensormetrics.structured.objects.nodes import set as node_set
from tensormetrics.structured.tensors import _lengths


@metametric(normalizer="f1")
@dataclass
class Bag:
    items: "list[Item]"


@dataclass
class Item:
    key: str
    value: int


@dataclass
class Weighted:
    kind: str
    weight: float


BAGS = [Bag([Item(key, n) for n, key in enumerate(word)]) for word in ("ab", "abc", "cab", "")]


def test_gram_matrix_equals_a_loop():
    gram = Bag.metric.gram_matrix(BAGS, BAGS[1:])
    assert gram.shape == (4, 3) and gram.dtype == torch.float64
    assert gram.tolist() == [[Bag.metric.score(x, y) for y in BAGS[1:]] for x in BAGS]


def test_pairs_come_in_parts(monkeypatch):
    """No more candidate pairs at a time than allowed, if one pair of collections does not have more by itself."""
    draw = np.random.default_rng(0)
    preds, refs = ([draw.random(draw.integers(0, 4)).tolist() for _ in range(30)] for _ in range(2))
    sizes = []

    def nearness(xs, ys):
        sizes.append(len(xs))
        return [1 / (1 + abs(x - y)) for x, y in zip(xs, ys, strict=True)]

    near = dsl.from_func(nearness, batched=True)
    metrics = [dsl.set_matching[float](near), dsl.sequence_matching[float](near), dsl.max_pair(near)]
    expected = [metric(preds, refs) for metric in metrics]
    monkeypatch.setattr(node_set, "MAX_PAIRS", 18)
    monkeypatch.setattr(_lengths, "SMALL_CELLS", 0)
    monkeypatch.setattr(_lengths, "CELLS", 4 * 18)  # n m <= (n + m)^2 / 4
    for metric, scores in zip(metrics, expected, strict=True):
        sizes.clear()
        assert torch.equal(metric(preds, refs), scores)
        assert max(sizes) <= 18 and sum(sizes) >= sum(len(p) * len(r) for p, r in zip(preds, refs, strict=True)) > 18
    monkeypatch.setattr(node_set, "MAX_PAIRS", 1)  # a pair of collections with more is a separate part
    assert torch.equal(metrics[0](preds, refs), expected[0])


def test_metric_without_objects_is_empty():
    overlap = Bag.metric.overlap([], [])
    assert all(part.shape == (0,) for part in overlap) and overlap.cross.dtype == torch.float64
    assert Bag.metric([], []).shape == (0,) and Bag.metric.gram_matrix([], BAGS).shape == (0, 4)


def test_images_under_two_functions():
    metric = dsl.auto[list[int], "<->", "precision"].contramap(itemgetter("found"), itemgetter("wanted"))
    pred, ref = {"found": [1, 2, 3, 4]}, {"wanted": [1, 2]}
    assert metric.score(pred, ref) == 0.5
    assert [part.item() for part in metric.overlap([pred], [ref])[:3]] == [2, 4, 2]
    assert metric.score_self(pred) == 1.0 and metric.score_self(ref, "ref") == 1.0
    lengths = derive(list[int]).contramap(itemgetter("found"))
    assert lengths.score_self(pred) == lengths.score(pred, pred) == 4.0


def iou(x, y):
    # (P, 2) each: left and right end
    joint = (torch.minimum(x[:, 1], y[:, 1]) - torch.maximum(x[:, 0], y[:, 0])).clamp(min=0)
    return joint / ((x[:, 1] - x[:, 0]) + (y[:, 1] - y[:, 0]) - joint)


def closeness(x, y):
    return max(0.0, 1 - abs(x - y))


METRICS = [  # and two objects
    (Bag.metric, BAGS[1], BAGS[2]),
    (derive(list[int]), [1, 2], [2, 2]),
    (dsl.auto[list[int], "->", "f1"], [1, 2], [2, 2]),
    (dsl.sequence_matching[int](...), [1, 2], [2, 2]),
    (dsl.max_pair(dsl.from_func(closeness)), [1.5, 2.0], [1.75]),
    (
        dsl.set_matching[tuple[float, float], "<->", "f1"](dsl.tensor_func(iou)[tuple[float, float]]),
        [(0.0, 2.0)],
        [(1.0, 3.0), (0.0, 1.0)],
    ),
    (dsl.normalize["p"](dsl.auto[list[int]]), [1, 2], [2, 2]),
    (
        dsl.dataclass[Weighted]({"weight": dsl.from_func(closeness), "kind": ...}),
        Weighted("a", 0.5),
        Weighted("a", 0.75),
    ),
    (dsl.union[int | str]({str: ..., int: dsl.from_func(closeness)}), 2, 3),
    (dsl.preprocess[str.split](dsl.auto[list[str]]), "a b", "b c"),
    (dsl.discrete[str], "a", "a"),
]


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(("metric", "pred", "ref"), METRICS)
def test_metric_copies_give_equal_scores(metric, pred, ref, used):
    fresh = StructuredMetric(metric.plan, metric.normalizer, metric.explicit_policy)
    if used:
        fresh.score(pred, ref)
    expected = metric.score(pred, ref)
    for copied in (pickle.loads(pickle.dumps(fresh)), copy.deepcopy(fresh)):
        assert copied.score(pred, ref) == expected
        assert copied.policy == fresh.policy and copied.normalizer == fresh.normalizer


def test_functions_are_called_only_for_remaining_pairs():
    calls = []

    def close(x, y):
        calls.append((x, y))
        return 1 - abs(x - y)

    metric = dsl.set_matching[Weighted](dsl.dataclass[Weighted]({"weight": dsl.from_func(close, True), "kind": ...}))
    pred = [Weighted("a", 0.5), Weighted("b", 0.25)]
    ref = [Weighted("b", 0.5), Weighted("c", 0.125), Weighted("b", 0.0)]
    assert [part.item() for part in metric.overlap([pred], [ref])[:3]] == [0.75, 2, 3]
    assert sorted(calls) == sorted(
        [(0.25, 0.5), (0.25, 0.0)] + [(w, w) for w in (0.5, 0.25, 0.125, 0.0)]  # 0.5 is an item of both
    )
    calls.clear()
    _, matching = metric.compute(pred, ref)
    assert len(matching) == 4 and len(calls) == 2  # matches ask nothing again, and no normalizer reads a self


def counted(function, batched=False):
    """Return a metric of lists by a function, and the list of the pairs that it is called for."""
    calls = []

    def count(x, y):
        calls.extend(zip(x, y, strict=True) if batched else [(x, y)])
        return [function(*pair) for pair in zip(x, y, strict=True)] if batched else function(x, y)

    return dsl.set_matching[str](dsl.from_func(count, batched=batched)), calls


def same_start(x, y):
    return float(x[:1] == y[:1])


WORDS = [["a", "b", "a"], ["a"]], [["b", "a"], ["ab", "a"]]
NEEDED = {("a", "b"), ("a", "a"), ("b", "b"), ("b", "a"), ("a", "ab"), ("ab", "ab")}


@pytest.mark.parametrize("batched", [False, True])
def test_functions_are_called_once_for_equal_values(batched):
    metric, calls = counted(same_start, batched)
    family = Family(metric, micro_average(["f1"]))
    family.update(*WORDS)
    assert len(calls) == len(NEEDED) and {*calls} == NEEDED
    assert family.compute()["f1"] == 2 * 3 / (4 + 4)
    calls.clear()
    assert metric.score(["a", "b", "a"], ["b", "a"]) == 2 and len(calls) == len({*calls}) == 4
    assert derive(list[str])(*WORDS).tolist() == [2, 1]


def test_functions_are_called_once_by_families_with_labels_and_hooks():
    calls = []
    near = dsl.from_func(lambda x, y: calls.append((x, y)) or same_start(x, y))
    pair = dsl.set_matching[Weighted](dsl.dataclass[Weighted]({"weight": near, "kind": ...}))
    preds, refs = ([[Weighted(word, word) for word in row] for row in part] for part in WORDS)

    Family(pair, micro_average(["f1"]), by="kind", hooks={"[*]": lambda *_: None}).update(preds, refs)
    assert len(calls) == len({*calls}) == 3  # pairs of one kind


def test_functions_distinguish_values_of_other_types():
    calls = []
    metric = dsl.set_matching[float](dsl.from_func(lambda x, y: calls.append((x, y)) or float(type(x) is type(y))))
    assert metric([[1, 1.0, True]], [[1.0]]).tolist() == [1] and len(calls) == 3


def test_functions_of_unhashable_values_are_called_for_each():
    calls = []
    metric = dsl.set_matching[list](dsl.from_func(lambda x, y: calls.append((x, y)) or float(x == y)))
    assert metric([[["a"], ["a"]]], [[["a"]]]).tolist() == [1] and len(calls) == 2


@pytest.mark.parametrize("error", [ValueError, TypeError, RuntimeError])
def test_functions_keep_answers_before_an_error(error):
    fails = [True]

    def fail_once(x, y):
        if fails and (x, y) == ("b", "b"):
            fails.clear()
            raise error("service is away")
        return same_start(x, y)

    metric, calls = counted(fail_once)
    family = Family(metric, micro_average(["f1"]))
    with pytest.raises(error, match="service is away"):
        family.update(*WORDS)
    assert family.documents == 0
    family.update(*WORDS)
    assert sorted(calls) == sorted([*NEEDED, ("b", "b")])
    family.update(*WORDS)
    assert len(calls) == 2 * len(NEEDED) + 1  # those of an update that succeeded are forgotten
    calls.clear()
    fails.append(True)
    with pytest.raises(error, match="service is away"):
        metric.score(["a", "b"], ["b", "a"])
    assert len(calls) == len({*calls})


def test_metric_copies_start_with_empty_caches():
    metric, calls = counted(same_start)
    family = Family(metric, micro_average(["f1"]))
    with pytest.raises(TypeError, match="not subscriptable"):
        family.update([["a"], [3]], [["a"], ["a"]])
    assert calls
    assert not vars(copy.deepcopy(family)._answers)["_results"]


def test_functions_preferring_other_items_have_solved_self_overlaps():
    """f(x, y) = x y: a collection of 1 and 3 with itself is 1 x 1 + 3 x 3, of 3 with 3 or 3 with 1 and back less."""
    metric = dsl.set_matching[int, "->"](dsl.from_func(lambda x, y: x * y, dominated=False))
    assert metric.score_self([1, 3]) == 3 + 9
    assert metric.score([1, 3], [1, 3]) == 3 + 9
    by_diagonal = dsl.set_matching[int, "->"](dsl.from_func(lambda x, y: x * y))  # the default
    assert by_diagonal.score_self([1, 3]) == 1 + 9
    of_tensors = dsl.set_matching[int, "->"](dsl.tensor_func(lambda x, y: (x * y)[:, 0])[int])
    assert of_tensors.score_self([1, 3]) == 3 + 9


N, M = 7, 5
CALLS = {  # in addition to the pairs: one for each item of a self-overlap that the normalizer reads
    "none": 0,
    "precision": N,
    "recall": M,
    "jaccard": N + M,
    "f1": N + M,
    "f2": N + M,
}


@pytest.mark.parametrize("constraint", ["<->", "->", "<-"])
@pytest.mark.parametrize("normalizer", CALLS)
def test_functions_are_called_for_required_self_overlaps(normalizer, constraint):
    calls = []

    def close(x, y):
        calls.append((x, y))
        return 1 / (1 + abs(x - y))

    preds, refs = [float(n) for n in range(N)], [n + 0.25 for n in range(M)]
    expected = N * M + CALLS[normalizer]
    metric = dsl.set_matching[float, constraint, normalizer](dsl.from_func(close)).under(Policy())
    overlap = dsl.set_matching[float, constraint](dsl.from_func(close)).under(Policy())

    def count(function, *arguments):
        calls.clear()
        function(*arguments)
        assert len(calls) == len({*calls})
        return len(calls)

    assert count(metric.score, preds, refs) == count(metric, [preds], [refs]) == expected
    assert count(metric.compute, preds, refs) == count(metric.gram_matrix, [preds], [refs]) == expected
    for average in (micro_average, macro_average):
        family = Family(overlap, average([normalizer]))
        assert count(family.update, [preds], [refs]) == count(family.per_document, [preds], [refs]) == expected
        assert count(Family(metric, average(["none"])).update, [preds], [refs]) == expected
    assert count(Family(overlap, micro_average(["precision"]), policy="agree").update, [preds], [refs]) == N * M + N + M
    assert count(overlap.overlap, [preds], [refs]) == N * M + N + M
    nested = dsl.set_matching[list[float]](dsl.normalize[normalizer](overlap)).under(Policy())
    assert count(nested.score, [preds], [refs]) == expected


def test_batched_functions_receive_all_pairs_of_level():
    """As many calls as there are levels, no pair of values twice; whatever kind of numbers come back."""
    sizes = []

    def close(xs, ys, kind):
        sizes.append(len(xs))
        return kind([1 / (1 + abs(x - y)) for x, y in zip(xs, ys, strict=True)])

    single = dsl.from_func(lambda x, y: 1 / (1 + abs(x - y)))
    preds, refs = [[1, 5, 2], [], [4, 4]], [[2, 2], [1], [3, 9, 4]]
    for kind in (list, tuple, np.array, torch.tensor, lambda x: torch.tensor(x, dtype=torch.float64)):
        metric = dsl.set_matching[int, "<->", "f1"](dsl.from_func(partial(close, kind=kind), batched=True))
        sizes.clear()
        result = metric(preds, refs)
        torch.testing.assert_close(result, dsl.set_matching[int, "<->", "f1"](single)(preds, refs), rtol=1e-6, atol=0)
        assert sizes == [6, 4]
    with pytest.raises(ValueError, match="from_func: got 1 values for 2 pairs, wanted one for each"):
        dsl.set_matching[int](dsl.from_func(lambda xs, ys: [1.0], batched=True)).score([1, 2], [3])
    with pytest.raises(ValueError, match=r"from_func: got nan for preds\[0\]\[1\] and refs\[0\]\[0\], wanted a number"):
        dsl.set_matching[int](dsl.from_func(lambda xs, ys: [1.0, math.nan], batched=True)).score([1, 2], [3])


@pytest.mark.parametrize("constraint", ["<->", "->", "<-", "~"])
def test_items_without_a_key_are_scored_as_a_matrix(constraint):
    """Ragged collections, from objects, as `set_overlap` of their similarities one by one."""
    draw = np.random.default_rng(0)
    preds, refs = ([draw.random(draw.integers(0, 6)).tolist() for _ in range(40)] for _ in range(2))
    metric = dsl.set_matching[float, constraint](
        dsl.tensor_func(lambda x, y: (x - y)[:, 0].abs().sub(0.5).neg(), dominated=False)[float]
    )
    expected = [
        set_overlap(torch.from_numpy(0.5 - np.abs(np.subtract.outer(p, r))), constraint=constraint)
        for p, r in zip(preds, refs, strict=True)
    ]
    torch.testing.assert_close(metric(preds, refs), torch.stack(expected), rtol=1e-12, atol=1e-12)


def test_functions_may_return_numbers_of_any_kind():
    for one in (True, 1, 1.0, torch.tensor(1.0), torch.ones((), dtype=torch.float64).numpy()):
        assert dsl.from_func(lambda x, y, one=one: one).score(None, None) == 1.0
    assert dsl.set_matching[int](dsl.from_func(lambda x, y: -math.inf)).score([1], [2]) == 0  # forbids the pair


def test_tensor_functions_receive_numbers_of_all_pairs():
    seen = []

    def close(x, y):
        seen.append((x.shape, x.dtype))
        return 1 - (x - y).abs().amax(-1)

    metric = dsl.set_matching[tuple[float, tuple[int, bool]]](
        dsl.tensor_func(close, dominated=False)[tuple[float, tuple[int, bool]]]
    )
    pred, ref = [(0.5, (1, True))], [(0.25, (1, True)), (0.5, (3, False))]
    assert metric.overlap([pred, pred], [ref, []]).cross.tolist() == [0.75, 0]
    assert seen[0] == ((2, 3), torch.float64)


@pytest.mark.parametrize("tp", [list[int], list[list[str]]], ids=str)
def test_large_integers_and_texts_never_collide(tp):
    near = [2**40 * n + m for n in range(3) for m in range(3)] + [2**63, 2**64, -(2**63), 2**70]
    if tp == list[int]:
        assert derive(tp).score(near, near) == len(near) == derive(list[int]).score_self(near)
        rows = derive(list[tuple[int, int, int, int, int]])
        items = [tuple(2**40 - (n == k) for n in range(5)) for k in range(6)]
        assert rows.score(items, items) == 6.0 and rows.score(items[:1], items[1:]) == 0.0
    else:
        texts = [[str(index)] for index in near]
        assert derive(tp).score(texts, texts) == len(near)


@pytest.mark.parametrize("choices", [6, 10**6], ids=["repeated", "more than 2^31 combinations"])
@pytest.mark.parametrize("items", [200, 1200], ids=["tuples", "columns"])
def test_wide_columns_never_collide(items, choices):
    draw = np.random.default_rng(0)
    ends = np.concatenate([[-(2**62), 0, 1, 2**40 - 1, 2**40, 2**62], draw.integers(2**62, size=choices - 6)])
    pred, ref = (
        [((a, b), c, d) for a, b, c, d in ends[draw.integers(choices, size=(items, 4))].tolist()] for _ in range(2)
    )
    ref[::2] = pred[::2]
    expected = (Counter(pred) & Counter(ref)).total()
    assert derive(list[tuple[tuple[int, int], int, int]]).score(pred, ref) == expected >= items / 2


def test_metric_keeps_no_batch_in_memory():
    class Token(str):
        pass

    metric = derive(list[str])
    token = Token("a")
    gone = weakref.ref(token)
    assert metric.score([token], ["a"]) == 1.0
    del token
    gc.collect()
    assert gone() is None


def test_policies_of_nested_classes():
    @metametric(normalizer="f1", zero_division=1.0)
    @dataclass
    class Strict:
        xs: list[int]

    @metametric(normalizer="f1")
    @dataclass
    class Loose:
        xs: list[int]

    for tp, nested in ((Strict, 1.0), (Loose, 0.0)):
        assert tp.metric.score(tp([]), tp([])) == 1.0
        assert derive(list[tp], policy="conventional").score([tp([])], [tp([])]) == nested


def test_metrics_are_modules():
    model = torch.nn.ModuleDict({"bags": Bag.metric, "ints": dsl.auto[list[int]]})
    assert model["bags"].score(BAGS[0], BAGS[0]) == 1.0 and model.state_dict() == {}
    assert Bag.metric.state_dict() == {} and list(Bag.metric.parameters()) == []


def test_custom_normalizers_receive_tensors():
    class Fraction(Normalizer):
        name = "share"

        def ratio(self, cross, pred, ref):
            return cross, torch.maximum(pred, ref)

    metric = dsl.set_matching[int, "<->", Fraction()](...)
    assert metric.score([1, 2], [2, 3, 4]) == metric([[1, 2]], [[2, 3, 4]]).item() == 1 / 3
