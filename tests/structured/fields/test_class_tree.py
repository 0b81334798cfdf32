"""The schema trees of record classes of every kind."""

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Annotated

import pytest
from test_json_schema_writer import KINDS, MAKERS, Color, Invoice, Tree

from tensormetrics.structured.comparators import by, exact, ignore, near, similar, weight
from tensormetrics.structured.types.class_tree import schema_of
from tensormetrics.structured.types.tree import Anything, Fixed, FreeKeys, Items, Leaf, Reference, Scoring, Union

EXPECTED = {
    **{kind: Leaf(kind) for kind in ("boolean", "integer", "number", "string")},
    "raw": Leaf("bytes"),
    "day": Leaf("date"),
    "moment": Leaf("datetime"),
    "clock": Leaf("time"),
    "identifier": Leaf("uuid"),
    "color": Leaf("enum", ("green", "red")),
    "choice": Leaf("enum", ("a", 1), nullable=True),
    "nothing": Leaf("null", nullable=True),
    "optional": Leaf("number", nullable=True),
    "union": Union((Leaf("integer"), Leaf("string"), Items(Leaf("integer")))),
    "numbers": Items(Leaf("number", nullable=True)),
    "many": Items(Leaf("integer")),
    "several": Items(Leaf("string")),
    "words": Items(Leaf("string"), unique=True),
    "frozen": Items(Leaf("integer"), unique=True),
    "span": Fixed((Leaf("integer"), Leaf("string"))),
    "free": FreeKeys(Items(Leaf("integer"))),
    "anything": Anything(),
    "point": Reference("Point"),
    "points": Items(Reference("Point")),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_tree_of_every_record_class_is_the_same(kind):
    cls = MAKERS[kind]("Doc", KINDS)
    schema = schema_of(cls)
    record = schema.resolved(schema.root)
    assert {field.name: field.type for field in record.fields} == EXPECTED
    assert all(field.required and field.attribute == field.name for field in record.fields)
    assert record.instance_of is cls and not record.closed


def test_tree_of_recursive_classes_refers_to_them():
    schema = schema_of(Tree)
    assert schema.root == Reference("Tree") and set(schema.definitions) == {"Tree", "Leaf"}
    value, children, other = schema.definitions["Tree"].fields
    assert (value.required, children.required, children.default()) == (True, False, [])
    assert children.type == Items(Reference("Tree")) and other.type == Reference("Leaf", nullable=True)
    assert schema.definitions["Leaf"].fields[2].type.scoring.ignore


def test_tree_of_annotated_fields_has_their_scoring():
    schema = schema_of(Invoice)
    lines, tags = schema.definitions["Invoice"].fields
    assert (lines.type.by, lines.type.match) == ("sku", 0.7) and tags.type.item.scoring.comparator == similar()
    name, price = schema.definitions["Line"].fields[1:]
    assert name.type.scoring == Scoring(similar(0.9), 2.0)
    assert price.type == Leaf("number", nullable=True, scoring=Scoring(near(rel=0.01)))


@pytest.mark.parametrize(
    ("tp", "message"),
    [
        (Annotated[str, by("sku")], "Doc.value: got by(key='sku'), wanted it on a list"),
        (Annotated[str, similar(), exact()], "wanted one comparator"),
    ],
)
def test_tree_of_annotations_that_do_not_fit_raises(tp, message):
    cls = dataclasses.make_dataclass("Doc", [("value", tp)])
    with pytest.raises(ValueError, match=re.escape(message)):
        schema_of(cls)


def test_tree_of_other_classes_checks_instances():
    assert schema_of(list[complex]).root == Items(Leaf("instance", classes=(complex,)))


def test_tree_of_fields_with_two_annotations_has_both():
    @dataclass
    class Doc:
        note: Annotated[str, weight(0), ignore()] = field(default="")

    assert schema_of(Doc).definitions["Doc"].fields[0].type.scoring == Scoring(weight=0.0, ignore=True)
    assert schema_of(Color).root == Leaf("enum", ("green", "red"))
