"""Families behave like any metric of torchmetrics."""

from dataclasses import dataclass, make_dataclass
from enum import Enum

import pytest
import torch

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


def fed(scores, *batches, **items):
    for batch in batches:
        scores.update(*batch, **items)
    return scores


def test_errors_name_the_class_that_was_made():
    with pytest.raises(ValueError, match="^replicates: got 0 for Family, "):
        fed(family(replicates=0), FIRST).interval()
    with pytest.raises(TypeError, match="Family"):
        family(confidence=0.5)


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
