"""JSON Schemas, read into the tree of types that classes give."""

import dataclasses
import json
from dataclasses import replace

import pytest
from test_json_schema_writer import KINDS, Invoice, Tree

from tensormetrics.structured import json_schema
from tensormetrics.structured.fields import near
from tensormetrics.structured.fields.schemas.json_schema import read_json_schema
from tensormetrics.structured.types.class_tree import schema_of
from tensormetrics.structured.types.tree import (
    Anything,
    Field,
    Fixed,
    FreeKeys,
    Items,
    Leaf,
    Record,
    Reference,
    Scoring,
    Union,
)


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
        ({"items": {"type": "integer"}, "uniqueItems": True}, Items(Leaf("integer"), unique=True)),
        ({"type": "array", "items": [{"type": "integer"}]}, Fixed((Leaf("integer"),))),
        ({"prefixItems": [{"type": "integer"}], "items": False}, Fixed((Leaf("integer"),))),
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
            Leaf("number", scoring=Scoring(near(rel=0.01), 2.0)),
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


def expanded(schema, node, seen=()):
    """A tree without references, defaults and classes, to compare what classes and their JSON give."""
    if isinstance(node, Reference):
        if node.name in seen:
            return "recursive"
        target = expanded(schema, schema.definitions[node.name], (*seen, node.name))
        return (target, node.nullable, node.scoring)
    if isinstance(node, Record):
        fields = [(field.name, field.required, expanded(schema, field.type, seen)) for field in node.fields]
        return ("record", fields, node.closed, node.nullable)
    if not dataclasses.is_dataclass(node):
        return node
    parts = {
        field.name: tuple(expanded(schema, part, seen) for part in value) if isinstance(value, tuple) else value
        for field in dataclasses.fields(node)
        for value in [getattr(node, field.name)]
    }
    for name in ("item", "value"):
        if name in parts:
            parts[name] = expanded(schema, parts[name], seen)
    return (type(node).__name__, parts)


@pytest.mark.parametrize("name", KINDS)
def test_class_and_its_json_schema_give_equal_trees(name):
    hint = dataclasses.make_dataclass("Kind", [(name, KINDS[name])])
    written = read_json_schema(json.loads(json.dumps(json_schema(hint))))
    of_class = schema_of(hint)
    ours, read = (schema.resolved(schema.root).fields[0].type for schema in (of_class, written))
    assert expanded(written, read) == expanded(of_class, ours)


@pytest.mark.parametrize("cls", [Invoice, Tree])
def test_annotated_and_recursive_classes_can_be_written_and_read(cls):
    of_class, written = schema_of(cls), read_json_schema(json_schema(cls))
    names = [
        [(field.name, field.required) for field in schema.resolved(schema.root).fields]
        for schema in (of_class, written)
    ]
    assert names[0] == names[1]


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
