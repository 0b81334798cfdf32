"""Families behave like any metric of torchmetrics."""

import copy
import functools
import math
import pickle
from dataclasses import dataclass, make_dataclass
from enum import Enum

import pytest
import torch
from torchmetrics import MetricCollection, MetricTracker

from tensormetrics.structured import Family, derive, macro_average, metametric, micro_average
from tensormetrics.uncertainty import compare


@dataclass
class Item:
    label: str


@metametric(normalizer="f1")
@dataclass
class Doc:
    items: list[Item]


def docs(*texts):
    return [Doc([Item(label) for label in text]) for text in texts]


FIRST = docs("ab", "c"), docs("a", "cc")
SECOND = docs("dd", "", "a"), docs("d", "ab", "e")
AVERAGES = {"micro": micro_average(["precision", "f1"]), "macro": macro_average(["recall"])}


def family(**options):
    return Family(Doc.metric, AVERAGES, **options)


MAKE = {
    "plain": family,
    "labels met": lambda **options: family(by="label", **options),
    "labels chosen": lambda **options: family(by="label", labels=["d", "a", "z"], **options),
}
for_all_metrics = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


def fed(scores, *batches, **items):
    for batch in batches:
        scores.update(*batch, **items)
    return scores


def assert_same(result, expected):
    assert list(result) == list(expected)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12, equal_nan=True)


@for_all_metrics
def test_state_dict_keeps_every_sum(make):
    scores = fed(make(replicates=3), FIRST)
    scores.persistent(True)
    restored = make(replicates=3)
    restored.load_state_dict(scores.state_dict())
    assert restored.update_count == 1
    for metric in scores, restored:
        metric.update(*SECOND)
    assert_same(restored.compute(), scores.compute())
    for key, estimate in scores.interval().items():
        assert torch.equal(restored.interval()[key].low, estimate.low)
    parent = torch.nn.ModuleDict({"inner": make(replicates=3)})
    parent.load_state_dict(torch.nn.ModuleDict({"inner": scores}).state_dict())
    assert_same(parent["inner"].compute(), scores.compute())


@for_all_metrics
def test_merged_families_equal_one(make):
    make = functools.partial(make, replicates=0)
    one, two, full = fed(make(), FIRST), fed(make(), SECOND), fed(make(), FIRST, SECOND)
    one.compute()
    one.merge_state(two)
    assert one.update_count == 2
    assert_same(one.compute(), full.compute())
    state = fed(make(), FIRST)
    state.merge_state(two.metric_state)
    assert_same(state.compute(), full.compute())
    shapes = [[value.shape for value in metric.metric_state.values()] for metric in (one, fed(full, FIRST, SECOND))]
    assert shapes[0] == shapes[1]


@for_all_metrics
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: m.clone(), lambda m: pickle.loads(pickle.dumps(m))])
def test_family_copies_are_independent(make, copied):
    scores = fed(make(), FIRST)
    other = copied(scores)
    before = scores.compute()
    other.update(*SECOND)
    assert_same(scores.compute(), before)
    assert_same(other.compute(), fed(make(), FIRST, SECOND).compute())
    other.reset()
    assert_same(scores.compute(), before)
    assert all(math.isnan(v) for k, v in other.compute().items() if not k.endswith("]")) and other.update_count == 0


@for_all_metrics
def test_forward_returns_batch_scores_and_accumulates(make):
    scores = make(replicates=4)
    assert_same(scores(*FIRST), fed(make(), FIRST).compute())
    assert_same(scores(*SECOND), fed(make(), SECOND).compute())
    full = fed(make(replicates=4), FIRST, SECOND)
    assert scores.update_count == 2
    assert_same(scores.compute(), full.compute())
    for key, estimate in scores.interval().items():
        assert torch.equal(estimate.low, full.interval()[key].low)


@for_all_metrics
def test_families_work_in_collections_and_trackers(make):
    collection = MetricCollection({"x": make(), "y": make()})
    fed(collection, FIRST, SECOND)
    expected = fed(make(), FIRST, SECOND).compute()
    assert_same(collection["y"].compute(), expected)
    assert_same(collection.compute(), {f"{role}_{key}": value for role in "xy" for key, value in expected.items()})
    assert all(value.ndim == 0 for value in collection.compute().values())
    tracker = MetricTracker(make())
    for batch in FIRST, SECOND:
        tracker.increment()
        tracker.update(*batch)
    assert_same(tracker.compute(), fed(make(), SECOND).compute())
    assert make().higher_is_better


def test_errors_name_the_class_that_was_made():
    with pytest.raises(ValueError, match="^replicates: got 0 for Family"):
        fed(family(replicates=0), FIRST).interval()
    with pytest.raises(TypeError, match="Family"):
        family(confidence=0.5)


def test_failed_update_keeps_state_unchanged():
    def hook(*_):
        raise ZeroDivisionError("by a hook")

    selected = {"items[*]": hook}
    scores = family(hooks=selected, by="label")
    with pytest.raises(ZeroDivisionError, match="by a hook"):
        scores.update(*FIRST)
    assert scores.update_count == 0
    assert all(value.isnan() for value in scores.compute().values())


def test_hooks_of_forward_number_documents_on():
    seen = []
    scores = family(hooks={"items[*]": lambda index, *_: seen.append(index)})
    scores.update(*FIRST)
    scores(*SECOND)
    scores(*FIRST)
    scores.update(*FIRST)
    assert sorted(set(seen)) == [0, 1, 2, 5, 6, 7, 8] and scores.documents == 9


class Colour(Enum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize(
    ("kind", "labels"), [(int, (3, -2)), (Colour, (Colour.RED, Colour.BLUE)), (bool, (True, False))]
)
def test_family_labels_other_than_text_are_formatted(kind, labels):
    Numbered = make_dataclass("Numbered", [("label", kind)])
    Numbers = metametric(normalizer="f1")(make_dataclass("Numbers", [("items", list[Numbered])]))
    part = [Numbers([Numbered(label) for label in labels])]
    for selected in None, labels[::-1]:
        scores = Family(Numbers.metric, micro_average(["f1"]), by="label", labels=selected)
        scores(part, part)
        scores.update(part, part)
        assert list(scores.compute())[1:3] == [f"f1[{label}]" for label in selected or labels]
        assert scores.compute()["types-f1"] == 1 and scores.label_sums.tolist() == [[2] * 3] * 2


def test_intervals_of_families_do_not_depend_on_labels():
    names = [f"document {index}" for index in range(6)]
    inputs = docs("ab", "c", "dd", "a", "be", ""), docs("a", "cc", "d", "ab", "e", "z")
    plain, labelled = (
        fed(family(replicates=50, **options), inputs, ids=names).interval() for options in ({}, {"by": "label"})
    )
    assert list(plain) == list(labelled) and "labelled-f1[a]" not in labelled
    assert all(torch.equal(plain[key].low, labelled[key].low) for key in plain)


def test_rank_options_of_families_name_type_and_constraint_but_not_the_scope():
    def options(rank, tp=list[str], constraint="<->"):
        return Family(derive(tp, constraint=constraint), {"micro": micro_average(["f1"])}).rank_options()

    assert options(0) == options(1)  # `derive` also reads the local name `rank`
    assert options(0) != options(0, list[int]) and options(0) != options(0, constraint="->")


def test_families_with_other_constraints_are_not_compared():
    families = [Family(derive(list[str], constraint=text), {"micro": micro_average(["f1"])}) for text in ("<->", "->")]
    for metric in families:
        metric.update([["a"]], [["a", "b"]])
    with pytest.raises(ValueError, match="^metric: got .*ONE_TO_ONE.* for a and .*"):
        compare(*families)
