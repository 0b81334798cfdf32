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
