"""Dataclasses, matches, policies and paths against the golden values, object by object."""

import collections
import dataclasses
import json
import sys
import types
import typing
from pathlib import Path as File

import pytest
import torch

from tensormetrics.structured import Family, derive, dsl, macro_average, metametric, micro_average
from tensormetrics.structured.extend import Path
from tensormetrics.structured.functional import normalize

GOLDEN = json.loads((File(__file__).parent / "golden_door.json").read_text())
SCORES = ("precision", "recall", "jaccard", "f1")


def cases(group):
    return pytest.mark.parametrize("case", GOLDEN[group], ids=lambda case: case["id"])


def inner(normalizer, constraint="<->"):
    return dsl.auto[typing.Collection[str], constraint, normalizer]


def defined(case, policy):
    """Return the class and the two objects of a case; its source is run as a separate module."""
    module = types.ModuleType("golden_objects")
    sys.modules[module.__name__] = module
    names = vars(module)
    for source in (typing, collections.abc):
        names |= {name: getattr(source, name) for name in source.__all__}
    names |= {"dataclass": dataclasses.dataclass, "field": dataclasses.field, "Counter": collections.Counter}
    names |= {"Inner": inner, "metametric": lambda **options: metametric(**options, policy=policy)}
    exec(case["define"], names)
    return (eval(case[name], names) for name in ("root", "pred", "ref"))


@pytest.mark.parametrize("policy", ["conventional", "metametric"])
@cases("dataclass")
def test_dataclass_metrics_golden_cases_match(case, policy):
    if policy not in case["output"]:
        pytest.skip("no value of this policy")
    cls, pred, ref = defined(case["input"], policy)
    expected = case["output"][policy]
    assert cls.metric.score(pred, ref) == pytest.approx(expected["score"], abs=1e-9)
    overlap = cls.metric.overlap([pred], [ref])
    assert [part.item() for part in overlap[:3]] == pytest.approx(
        [expected[key] for key in ("overlap", "pred_self", "ref_self")], abs=1e-9
    )
    for name in SCORES:
        ratio = normalize(*overlap[:3], name, cls.metric.policy.zero_division).item()
        assert ratio == pytest.approx(expected[name], abs=1e-9)


@cases("matches")
def test_matching_golden_pairs_match(case):
    cls, pred, ref = defined(case["input"], "conventional")
    _, matching = cls.metric.compute(pred, ref)
    pairs = [(str(match.pred_path), str(match.ref_path)) for match in matching]
    assert pairs == [(p, r) for p, r, _ in case["output"]["matches"]]
    assert [m.score for m in matching] == pytest.approx([s for *_, s in case["output"]["matches"]], abs=1e-9)


@cases("path")
def test_path_golden_selectors_match(case):
    selector, path = Path.parse(case["input"]["selector"]), Path.parse(case["input"]["path"])
    assert selector.selects(path) is case["output"]["selects"]
    assert list(selector) == case["output"]["selector_components"]
    assert str(path) == case["output"]["path_str"]


@pytest.mark.parametrize("policy", ["conventional", "agree", "metametric"])
@cases("policy")
def test_family_golden_policies_match(case, policy):
    expected = case["output"][policy]
    preds, refs = zip(*case["input"]["documents"], strict=True)
    metric = derive(list[int], policy=policy)
    triples = torch.stack(metric.overlap(preds, refs)[:3], -1).tolist()
    assert triples == expected["triples"]
    family = Family(metric, {"micro": micro_average(SCORES), "macro": macro_average(SCORES)})
    for pred, ref in zip(preds, refs, strict=True):
        family.update([pred], [ref])
    result = family.compute()
    expected_scores = {
        f"{average}-{name}": expected[average][name] for average in ("micro", "macro") for name in SCORES
    }
    assert {key: value.item() for key, value in result.items()} == pytest.approx(expected_scores, abs=1e-9)


@pytest.mark.parametrize("constraint", ["<->", "->", "<-", "~"])
@cases("multiset")
def test_set_matching_golden_multisets_match(case, constraint):
    objects = ([tuple(x) if isinstance(x, list) else x for x in case["input"][role]] for role in ("pred", "ref"))
    metric = dsl.set_matching[typing.Any, constraint](dsl.discrete[typing.Any])
    check_overlap(metric, *objects, case["output"][constraint])


def check_overlap(metric, pred, ref, expected):
    overlap = metric.overlap([pred], [ref])
    for key, value in expected.items():
        if key in ("overlap", "pred_self", "ref_self"):
            result = overlap[("overlap", "pred_self", "ref_self").index(key)]
        else:
            result = normalize(*overlap[:3], key)
        assert result.item() == pytest.approx(value, abs=1e-9), key


class Entry(typing.NamedTuple):
    axis: int
    position: int


def table(similarity):
    """Return the similarity of rows and columns of a matrix; two rows, or two columns, are equal or not."""
    return dsl.from_func(lambda x, y: similarity[x.position][y.position] if x.axis < y.axis else float(x == y))


def entries(similarity):
    rows, columns = len(similarity), len(similarity[0])
    return [Entry(0, i) for i in range(rows)], [Entry(1, j) for j in range(columns)]


@pytest.mark.parametrize("constraint", ["<->", "->", "<-", "~"])
@cases("soft")
def test_set_matching_golden_similarities_match(case, constraint):
    similarity = case["input"]["similarity"]
    metric = dsl.set_matching[Entry, constraint](table(similarity))
    score, matching = metric.compute(*entries(similarity))
    assert score == pytest.approx(case["output"][constraint], abs=1e-9)
    assert sum(match.score for match in list(matching)[1:]) == pytest.approx(score, abs=1e-9)
    if constraint == "<->" and case["output"]["pairs"] is not None:
        assert [[m.pred.position, m.ref.position] for m in list(matching)[1:]] == case["output"]["pairs"]


@pytest.mark.parametrize("constraint", ["<->", "->", "<-", "~"])
@cases("soft_self")
def test_set_matching_self_overlaps_are_solved(case, constraint):
    similarity = torch.tensor(case["input"]["similarity"], dtype=torch.float64)
    items = case["input"]["pred_items"], case["input"]["ref_items"]
    for inner_metric in (
        dsl.from_func(lambda i, j: similarity[i, j], dominated=False),
        dsl.tensor_func(lambda x, y: similarity[x[:, 0].long(), y[:, 0].long()])[int],
    ):
        check_overlap(dsl.set_matching[int, constraint](inner_metric), *items, case["output"][constraint])


@pytest.mark.parametrize("constraint", ["<->", "->", "<-", "~"])
@cases("sequence")
def test_sequence_matching_golden_cases_match(case, constraint):
    expected = case["output"][constraint]
    if "similarity" in case["input"]:
        similarity = case["input"]["similarity"]
        metric, objects = dsl.sequence_matching[Entry, constraint](table(similarity)), entries(similarity)
        expected = {"overlap": expected}
    else:
        objects = case["input"]["pred"], case["input"]["ref"]
        metric = dsl.sequence_matching[typing.Any, constraint](dsl.discrete[typing.Any])
    check_overlap(metric, *objects, expected)
    score, matching = metric.compute(*objects)
    pairs = [(m.pred_path[0], m.ref_path[0]) for m in list(matching)[1:]]
    assert sum(m.score for m in list(matching)[1:]) == pytest.approx(score, abs=1e-9)
    strict = constraint in ("<->", "->"), constraint in ("<->", "<-")
    assert len(set(pairs)) == len(pairs)
    for one, after in zip(pairs, pairs[1:], strict=False):
        assert all(b > a if must else b >= a for a, b, must in zip(one, after, strict, strict=True))
