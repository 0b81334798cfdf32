"""JSON Schemas of record classes of every kind, against those that pydantic writes, and read again."""

import dataclasses
import enum
import json
import re
import types
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID

import pytest
from typing_extensions import NotRequired, TypedDict

from tensormetrics.structured import json_schema
from tensormetrics.structured.fields import by, exact, from_func, match, near, similar, weight
from tensormetrics.structured.fields.schemas.json_schema import read_json_schema
from tensormetrics.structured.fields.schemas.json_writer import write_json_schema
from tensormetrics.structured.types.class_tree import schema_of
from tensormetrics.structured.types.records import record_values
from tensormetrics.structured.types.tree import (
    Anything,
    Field,
    FreeKeys,
    ItemList,
    Leaf,
    NodeScoring,
    Record,
    Reference,
    Union,
    tuple_of,
)


class Color(enum.Enum):
    GREEN = "green"
    RED = "red"


class Point(TypedDict):
    x: float
    y: float


KINDS = {
    "boolean": bool,
    "integer": int,
    "number": float,
    "string": str,
    "raw": bytes,
    "day": date,
    "moment": datetime,
    "clock": time,
    "identifier": UUID,
    "color": Color,
    "choice": Literal["a", 1, None],
    "nothing": None,
    "optional": float | None,
    "union": int | str | list[int],
    "numbers": list[float | None],
    "many": tuple[int, ...],
    "several": Sequence[str],
    "words": set[str],
    "frozen": frozenset[int],
    "span": tuple[int, str],
    "free": dict[str, list[int]],
    "anything": Any,
    "point": Point,
    "points": list[Point],
}


def attrs_class(name, hints):
    attr = pytest.importorskip("attr")
    cls = attr.make_class(name, {key: attr.ib() for key in hints})
    cls.__annotations__ = dict(hints)
    return cls


def msgspec_class(name, hints):
    return pytest.importorskip("msgspec").defstruct(name, list(hints.items()))


def pydantic_class(name, hints):
    pydantic = pytest.importorskip("pydantic")
    return pydantic.create_model(name, **{key: (hint, ...) for key, hint in hints.items()})


MAKERS = {
    "dataclass": lambda name, hints: dataclasses.make_dataclass(name, list(hints.items())),
    "TypedDict": lambda name, hints: TypedDict(name, hints),
    "NamedTuple": lambda name, hints: NamedTuple(name, list(hints.items())),
    "attrs": attrs_class,
    "msgspec": msgspec_class,
    "pydantic": pydantic_class,
}


def without_titles(schema):
    if isinstance(schema, list):
        return [without_titles(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    names = {"properties": dict, "$defs": dict}
    return {
        key: {name: without_titles(part) for name, part in value.items()} if key in names else without_titles(value)
        for key, value in schema.items()
        if key not in ("title", "description")
    }


def comparable(schema):
    """Normalize pydantic's schemas: enumerations are references and have a type, `const` is an enumeration."""
    schema = without_titles(schema)
    definitions = schema.get("$defs", {})

    def rewrite(part):
        if isinstance(part, list):
            return [rewrite(item) for item in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part and "enum" in (definition := definitions.get(part["$ref"].rpartition("/")[2], {})):
            part = definition
        if "enum" in part:
            return {"enum": part["enum"]}
        return {key: rewrite(value) for key, value in part.items()}

    schema["$defs"] = {name: part for name, part in definitions.items() if "enum" not in part}
    return rewrite(schema)


@pytest.mark.parametrize("kind", MAKERS)
def test_schema_of_every_record_class_equals_that_of_pydantic(kind):
    pydantic = pytest.importorskip("pydantic")
    schema = comparable(json_schema(MAKERS[kind]("Doc", KINDS)))
    model = pydantic.create_model("Doc", **{key: (hint, ...) for key, hint in KINDS.items()})
    expected = comparable(model.model_json_schema())
    for key in KINDS:
        assert schema["properties"][key] == expected["properties"][key], key
    assert schema == expected


@dataclass
class Tree:
    value: int
    children: "list[Tree]" = field(default_factory=list)
    other: "Branch | None" = None


@dataclass
class Branch:
    tree: Tree
    leaf: "Branch | None" = None
    note: str = field(default="", compare=False)


def test_schema_of_recursive_classes_refers_to_them():
    leaf = {"$ref": "#/$defs/Branch"}
    assert json_schema(Tree) == {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#"}, "default": []},
            "other": {"anyOf": [leaf, {"type": "null"}], "default": None},
        },
        "required": ["value"],
        "$defs": {
            "Branch": {
                "type": "object",
                "properties": {
                    "tree": {"$ref": "#"},
                    "leaf": {"anyOf": [leaf, {"type": "null"}], "default": None},
                    "note": {"type": "string", "x-tensormetrics": {"ignore": True}, "default": ""},
                },
                "required": ["tree"],
            }
        },
    }
    assert json_schema(list[Tree])["items"] == {"$ref": "#/$defs/Tree"}


Item = TypeVar("Item")


@dataclass
class Box(Generic[Item]):
    item: Item


def test_schema_of_generic_classes_has_a_definition_for_each_argument():
    schema = json_schema(tuple[Box[int], Box[str], Box[int]])
    assert [part["$ref"] for part in schema["prefixItems"]] == ["#/$defs/Box", "#/$defs/Box_1", "#/$defs/Box"]
    assert schema["$defs"]["Box_1"]["properties"]["item"] == {"type": "string"}


def test_schema_of_local_names_uses_localns():
    @dataclass
    class Outer:
        inner: "Inner"  # noqa: F821

    @dataclass
    class Inner:
        x: int

    with pytest.raises(TypeError, match="^Outer.inner: the name 'Inner' is unknown; define it, or give it as localns$"):
        json_schema(Outer)
    (field,) = schema_of(Outer, {"Inner": Inner}).definitions["Inner"].fields
    assert field.name == "x" and field.required


@dataclass
class Line:
    sku: str
    name: Annotated[str, similar(0.9), weight(2)]
    price: Annotated[float, near(rel=0.01)] | None = None


@dataclass
class Invoice:
    lines: Annotated[list[Line], by("sku"), "a note", match(0.7)]
    tags: list[Annotated[str, similar()]] = field(default_factory=list)


def test_schema_of_annotated_fields_has_their_keywords():
    schema = json_schema(Invoice)
    lines, tags = schema["properties"].values()
    assert lines == {"type": "array", "items": {"$ref": "#/$defs/Line"}, "x-tensormetrics": {"by": "sku", "match": 0.7}}
    assert tags["items"] == {"type": "string", "x-tensormetrics": {"compare": "similar"}}
    name, price = (schema["$defs"]["Line"]["properties"][key] for key in ("name", "price"))
    assert name["x-tensormetrics"] == {"compare": "similar", "threshold": 0.9, "weight": 2}
    assert price["x-tensormetrics"] == {"compare": "near", "rel": 0.01}
    pydantic = pytest.importorskip("pydantic")
    hints = {"name": (Annotated[str, similar(0.9), weight(2)], ...)}
    assert json_schema(pydantic.create_model("Line", **hints))["properties"]["name"] == name


def test_schema_of_a_function_is_for_python_only():
    same = from_func(lambda pred, ref: pred == ref)
    tp = dataclasses.make_dataclass("Doc", [("text", Annotated[str, same])])
    with pytest.raises(ValueError, match="^Doc.text: got from_func.*, which JSON cannot express"):
        json_schema(tp)
    (text,) = schema_of(tp).definitions["Doc"].fields
    assert text.type.scoring.comparator == same


@pytest.mark.parametrize(
    ("tp", "message"),
    [
        (Annotated[str, by("sku")], "Doc.value: got by(key='sku'), wanted it on a list"),
        (Annotated[str, similar(), exact()], "wanted one comparator"),
    ],
)
def test_schema_of_annotations_that_do_not_fit_raises(tp, message):
    cls = dataclasses.make_dataclass("Doc", [("value", tp)])
    with pytest.raises(ValueError, match=re.escape(message)):
        json_schema(cls)


def test_schema_with_defaults_aliases_and_forbidden_keys():
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel, extra="forbid"):
        first: date = pydantic.Field(date(2024, 3, 1), alias="firstDay")
        price: Decimal = Decimal("1.10")
        color: Color = Color.RED
        box: Any = pydantic.Field(default_factory=lambda: Box(3))
        late: int = pydantic.Field(default_factory=lambda data: data["price"])

    schema = json_schema(Model)
    assert schema["additionalProperties"] is False and "required" not in schema
    assert schema["properties"] == {
        "firstDay": {"type": "string", "format": "date", "default": "2024-03-01"},
        "price": {"type": "string", "format": "decimal", "default": "1.10"},
        "color": {"enum": ["green", "red"], "default": "red"},
        "box": {"default": {"item": 3}},
        "late": {"type": "integer"},
    }
    assert record_values(Model()) == {
        "firstDay": date(2024, 3, 1),
        "price": Decimal("1.10"),
        "color": Color.RED,
        "box": Box(3),
        "late": Decimal("1.10"),
    }


def test_schema_of_keys_that_may_be_missing_does_not_require_them():
    attr = pytest.importorskip("attr")

    class Keys(TypedDict, total=False):
        a: int
        b: NotRequired[str]

    class Named(NamedTuple):
        a: int
        b: list[int] = []

    @attr.s(auto_attribs=True)
    class Attrs:
        a: int
        b: list = attr.Factory(list)
        c: Any = attr.Factory(lambda self: self.a, takes_self=True)

    assert "required" not in json_schema(Keys)
    assert json_schema(Named)["required"] == json_schema(Attrs)["required"] == ["a"]
    properties = json_schema(Attrs)["properties"]
    assert properties["b"] == {"type": "array", "items": {}, "default": []} and properties["c"] == {}
    assert record_values(Named(1)) == {"a": 1, "b": []} and record_values({"a": 1}) is None


def test_schema_of_other_collections():
    assert json_schema(deque[int]) == {"type": "array", "items": {"type": "integer"}}
    assert json_schema(Counter[str]) == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert json_schema(dict) == {"type": "object", "additionalProperties": {}}
    assert json_schema(set) == {"type": "array", "items": {}, "uniqueItems": True}


@pytest.mark.parametrize("tp", [complex, types.SimpleNamespace, type], ids=str)
def test_schema_of_types_without_json_raises_with_the_path(tp):
    cls = dataclasses.make_dataclass("Doc", [("values", list[tp])])
    message = f"Doc.values[]: got the type {tp.__name__}, wanted a type with JSON values"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
        json_schema(cls)


@pytest.mark.parametrize(
    ("document", "node"),
    [
        ({"type": "string"}, Leaf("string")),
        ({"type": ["integer", "null"]}, Leaf("integer", nullable=True)),
        ({"type": "string", "nullable": True}, Leaf("string", nullable=True)),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, Leaf("number", nullable=True)),
        ({"type": ["integer", "string"]}, Union((Leaf("integer"), Leaf("string")))),
        ({"oneOf": [{"type": "boolean"}, {"type": ["integer", "string"]}]}, None),
        ({"enum": ["a", 1, None]}, Leaf("enum", ("a", 1), nullable=True)),
        ({"const": 3}, Leaf("enum", (3,))),
        ({"type": "string", "format": "date-time"}, Leaf("datetime")),
        ({"type": "string", "format": "email"}, Leaf("string")),
        ({"type": "number", "format": "decimal"}, Leaf("decimal")),
        ({"type": "string", "contentEncoding": "base64"}, Leaf("bytes", base64=True)),
        ({"items": {"type": "integer"}, "uniqueItems": True}, ItemList(Leaf("integer"), unique=True)),
        ({"type": "array", "items": [{"type": "integer"}]}, tuple_of([Leaf("integer")])),
        ({"prefixItems": [{"type": "integer"}], "items": False}, tuple_of([Leaf("integer")])),
        ({"type": "object"}, FreeKeys(Anything())),
        ({"additionalProperties": {"type": "integer"}}, FreeKeys(Leaf("integer"))),
        ({"properties": {}, "additionalProperties": False}, Record((), closed=True)),
        (
            {"properties": {"a": {}}, "required": ["a"], "additionalProperties": {"type": "integer"}},
            Record((Field("a", Anything(), required=True),), extra=Leaf("integer")),
        ),
        ({"allOf": [{"type": "string"}]}, Leaf("string")),
        ({}, Anything()),
        (True, Anything()),
        ({"type": "null"}, Leaf("null", nullable=True)),
        (
            {"type": "number", "x-tensormetrics": {"compare": "near", "rel": 0.01, "weight": 2}},
            Leaf("number", scoring=NodeScoring(near(rel=0.01), 2.0)),
        ),
    ],
)
def test_read_json_schema_types_give_nodes(document, node):
    if node is None:
        node = Union((Leaf("boolean"), Leaf("integer"), Leaf("string")))
    assert read_json_schema(document).root == node


def test_read_json_schema_references_resolve_to_definitions():
    tree = read_json_schema(
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"properties": {"next": {"$ref": "#/$defs/a~1b", "nullable": True}}}}}
    )
    assert tree.root == Reference("#/$defs/a~1b")
    assert tree.resolved(tree.root) == Record((Field("next", Reference("#/$defs/a~1b", nullable=True)),))
    full = read_json_schema({"properties": {"children": {"items": {"$ref": "#"}}}})
    assert full.definitions["#"] == full.root


@pytest.mark.parametrize("name", KINDS)
def test_written_schemas_are_read_and_written_again(name):
    document = json_schema(dataclasses.make_dataclass("Kind", [(name, KINDS[name])]))
    assert write_json_schema(read_json_schema(json.loads(json.dumps(document)))) == document


@pytest.mark.parametrize("cls", [Invoice, Tree])
def test_annotated_and_recursive_classes_can_be_written_and_read(cls):
    document = json_schema(cls)
    fields = [(field.name, field.required) for field in read_json_schema(document).root.fields]
    assert fields == [(name, name in document["required"]) for name in document["properties"]]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"properties": {"a": {"patternProperties": {}}}},
            "schema.properties.a: got 'patternProperties'",
        ),
        ({"propertes": {}}, "perhaps 'properties'"),
        ({"not": {}}, "leave it out, or give a class"),
        ({"allOf": [{}, {}]}, "schema: got 'allOf' of 2"),
        ({"$ref": "https://example.org/a.json"}, "wanted a local reference"),
        ({"$ref": "#/$defs/missing"}, "which is not defined in this schema"),
        ({"type": "text"}, "schema.type: got 'text', wanted one of boolean"),
        ({"type": "string", "anyOf": [{"type": "string"}], "enum": ["a"]}, "got 'enum' and 'anyOf'"),
        ({"prefixItems": [{}], "items": {"type": "string"}}, "beyond 1 positions"),
        ({"enum": "a"}, "schema.enum: got 'a', wanted an array"),
        ({"type": "string", "x-tensormetrics": {"compare": "similr"}}, "perhaps 'similar'"),
        (3, "wanted an object that describes a type"),
    ],
)
def test_read_json_schema_invalid_schemas_raise(document, message):
    with pytest.raises(ValueError) as error:
        read_json_schema(document)
    assert message in str(error.value)


def test_nullable_reference_keeps_its_target():
    document = {"$defs": {"a": {"type": "string"}}, "anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}
    schema = read_json_schema(document)
    assert schema.root == replace(Reference("#/$defs/a"), nullable=True)
