"""Derived metrics against plain recursion, on random nested objects."""

import numpy as np
import pytest
import torch
from object_oracle import TYPES, Event, Oracle, Scored, heaviest_chain, random_value

from tensormetrics.structured import Policy, derive, dsl

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


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("tp", TYPES, ids=str)
def test_an_object_with_itself(tp, constraint):
    preds, refs = objects(tp, 1, 8)
    metric = derive(tp, constraint=constraint)
    for x in (*preds, *refs):
        assert metric.score(x, x) == pytest.approx(metric.score_self(x), abs=1e-12)


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


@pytest.mark.parametrize("tp", [tp for tp in TYPES if tp != list[Scored]], ids=str)
def test_overlap_swapped_inputs_are_symmetric(tp):
    preds, refs = objects(list[tp], 5, 12)
    for one, other in (("<->", "<->"), ("~", "~"), ("->", "<-")):
        forth = derive(list[tp], constraint=one).overlap(preds, refs)
        back = derive(list[tp], constraint=other).overlap(refs, preds)
        np.testing.assert_allclose(forth.cross, back.cross, atol=1e-12)
        if one == "<->":
            assert (forth.cross <= torch.minimum(forth.pred, forth.ref) + 1e-12).all()


@pytest.mark.parametrize("tp", [tp for tp in TYPES if tp is not Event], ids=str)
def test_more_relations_weigh_more(tp):
    inner = dsl.auto[tp, "<->"]
    preds, refs = objects(list[tp], 6, 12)
    value = {c: dsl.set_matching[tp, c](inner).overlap(preds, refs).cross for c in CONSTRAINTS}
    assert (value["<->"] <= torch.minimum(value["->"], value["<-"]) + 1e-12).all()
    assert (torch.maximum(value["->"], value["<-"]) <= value["~"] + 1e-12).all()
