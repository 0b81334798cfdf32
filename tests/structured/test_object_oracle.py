"""Derived metrics against plain recursion, on random nested objects; single small pairs, which need no tensors."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from object_oracle import TYPES, Oracle, Scored, Span, heaviest_chain, random_value
from raising import raises

from tensormetrics.structured import derive, dsl
from tensormetrics.structured.extend import Policy

CONSTRAINTS = ("<->", "->", "<-", "~")
POLICIES = [
    {},
    {"empty": "one"},
    {"zero_division": "agree"},
    {"zero_division": 1.0, "duplicates": "set"},
    {"empty": "one", "duplicates": "set"},
]


def objects(tp, seed, count):
    draw = np.random.default_rng(seed)
    return [random_value(tp, draw) for _ in range(count)], [random_value(tp, draw) for _ in range(count)]


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("tp", TYPES, ids=str)
def test_derived_overlaps_match_oracle(tp, constraint):
    preds, refs = objects(tp, 0, 8)
    for policy in POLICIES:
        metric = derive(tp, constraint=constraint, policy=Policy(**policy))
        expected = [Oracle(constraint, **policy).overlap(tp, p, r) for p, r in zip(preds, refs, strict=True)]
        np.testing.assert_allclose(
            torch.stack(metric.overlap(preds, refs)[:3], -1), expected, atol=1e-12, err_msg=policy
        )


@pytest.mark.parametrize("tp", TYPES, ids=str)
def test_matches_add_up(tp):
    """The pairs listed of a collection weigh what the collection does."""
    preds, refs = objects(list[tp], 2, 6)
    for constraint in CONSTRAINTS:
        metric = derive(list[tp], constraint=constraint)
        for pred, ref in zip(preds, refs, strict=True):
            score, matching = metric.compute(pred, ref)
            items = [match.score for match in matching if len(match.pred_path) == 1]
            assert sum(items) == pytest.approx(score, abs=1e-12)
            assert list(matching) == list(matching)


def similarity_table(tp, constraint, x, y):
    oracle = Oracle(constraint)
    return np.array([[oracle.similarity(tp, a, b) for b in y] for a in x]).reshape(len(x), len(y))


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("tp", [int, tuple[int, bool], list[bool]], ids=str)
def test_sequence_matching_matches_oracle(tp, constraint):
    metric = dsl.sequence_matching[tp, constraint](...)
    preds, refs = objects(list[tp], 3, 30)
    expected = [
        [heaviest_chain(similarity_table(tp, constraint, *inputs), constraint) for inputs in ((p, r), (p, p), (r, r))]
        for p, r in zip(preds, refs, strict=True)
    ]
    np.testing.assert_allclose(torch.stack(metric.overlap(preds, refs)[:3], -1), expected, atol=1e-12)
    for pred, ref in zip(preds, refs, strict=True):
        score, matching = metric.compute(pred, ref)
        items = [match.score for match in matching if len(match.pred_path) == 1]
        assert sum(items) == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize("tp", [int, list[int]], ids=str)
def test_max_pair_matches_oracle(tp):
    metric = dsl.max_pair(dsl.auto[tp])
    preds, refs = objects(list[tp], 4, 30)
    expected = [similarity_table(tp, "<->", p, r).max(initial=0.0) for p, r in zip(preds, refs, strict=True)]
    np.testing.assert_array_equal(metric(preds, refs), expected)


OTHER_POLICIES = [
    Policy(),
    Policy(empty="one", zero_division="agree"),
    Policy(duplicates="set", zero_division=math.nan),
    Policy.parse("metametric"),
]
NORMALIZERS = ("none", "precision", "recall", "f1", "jaccard")


def near(x, y):
    return 1 - abs(x.left - y.left) / 3 if x.right == y.right else -1.0


@dataclass
class Filled:
    role: str
    fillers: list[str]
    certainty: int | None = None


def check_pairs(metric, preds, refs):
    assert metric.node().supports_scalar_path
    pairs = [(pred, ref) for pred in preds for ref in refs]
    by_tensors = metric(*map(list, zip(*pairs, strict=True))).tolist()
    assert [metric.score(*pair) for pair in pairs] == pytest.approx(by_tensors, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("tp", [tp for tp in TYPES if tp != list[Scored]], ids=str)
def test_derived_metrics_scalar_path_agrees(tp, constraint):
    for policy in OTHER_POLICIES:
        for normalizer in NORMALIZERS[::2]:
            metric = dsl.normalize[normalizer](derive(tp, constraint=constraint)).under(policy)
            check_pairs(metric, *objects(tp, 3, 6))


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("kind", ["set_matching", "sequence_matching"])
def test_collections_of_any_items(kind, normalizer, constraint):
    matching = getattr(dsl, kind)
    for dominated in (None, False):
        metric = matching[Span, constraint, normalizer](dsl.from_func(near, dominated))
        check_pairs(metric, *objects(list[Span], 0, 6))
    for tp in (int, list[int], tuple[int, str]):
        metric = matching[tp, constraint, normalizer](...)
        check_pairs(metric, *objects(list[tp], 0, 6))


def test_large_values_use_the_tensor_path():
    large = list(range(1200))
    sequence = dsl.sequence_matching[int](...)
    function = dsl.set_matching[float](dsl.from_func(lambda x, y: 1 - abs(x - y)))
    assert derive(list[int]).score(large, large[::2]) == 600
    assert sequence.score(large, large[::2]) == 600
    assert function.score([n / 8 for n in range(9)], [n / 8 for n in range(9)]) == 9


class Odd:
    __hash__ = None


BAD = [
    (derive(list[int]), [1, math.nan], [1]),
    (derive(list[int]), 3, [1]),
    (derive(list[str]), "ab", ["a"]),
    (derive(list[int]), [[1]], []),
    (derive(list[Filled]), [Filled("a", ["x"])], [Filled("b", [["x"]])]),
    (derive(list[Filled]), [Filled("a", ["x"])], [Filled("b", 3)]),
    (derive(list[Filled]), [], [Filled([], ["x"])]),
    (derive(list[Filled]), [], ["a"]),
    (derive(list[Filled]), [Filled("a", [], "?")], []),
    (dsl.sequence_matching[int](...), [], [Odd()]),
    (dsl.sequence_matching[int](...), [1], [Odd()]),
    (dsl.set_matching[int](dsl.from_func(lambda x, y: math.inf)), [1], [1]),
    (dsl.set_matching[int](dsl.from_func(lambda x, y: "1")), [1], [1]),
]


@pytest.mark.parametrize(("metric", "pred", "ref"), BAD)
def test_scalar_path_invalid_values_raise_with_path(metric, pred, ref):
    with pytest.raises((TypeError, ValueError)) as by_tensors:
        metric([pred], [ref])
    with raises(by_tensors.type, str(by_tensors.value)):
        metric.score(pred, ref)
    assert "preds[0]" in str(by_tensors.value) or "refs[0]" in str(by_tensors.value)


def test_equality_is_that_of_a_dictionary():
    same, other = object(), object()
    metric = derive(list[int])
    assert dsl.discrete[object].score(same, same) == 1 == dsl.discrete[object]([same], [same]).item()
    assert dsl.discrete[object].score(same, other) == 0 == dsl.discrete[object]([same], [other]).item()
    assert metric.score([1, 2], [1.0, 2.0]) == 2 == metric([[1, 2]], [[1.0, 2.0]]).item()


def test_no_tensor_is_made_of_a_small_pair(monkeypatch):
    metric, expected = derive(list[Filled]), 2.0
    pred = [Filled("a", ["x", "y"]), Filled("b", ["z"], 1)]
    ref = [Filled("a", ["y"]), Filled("b", ["z"], 1), Filled("b", ["z"])]
    monkeypatch.setattr(torch, "tensor", None)
    assert metric.score(pred, ref) == expected
