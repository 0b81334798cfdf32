"""JSON Schemas, read into the tree of types that classes give."""

import dataclasses
import json
from dataclasses import replace

import pytest
from test_json_schema_writer import KINDS, Invoice, Tree

from tensormetrics.structured import json_schema
from tensormetrics.structured.fields import near
from tensormetrics.structured.fields.schemas.json_schema import read_json_schema
from tensormetrics.structured.fields.schemas.json_writer import write_json_schema
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
