"""Writer of schema trees as JSON Schemas (2020-12), with the annotations of fields as `x-tensormetrics`."""

import collections
import datetime
import enum
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from ...comparators.annotations import KEYWORD, by, ignore, keywords_of_annotations, match, ordered, weight
from ...comparators.base import Annotation
from ...types.class_tree import schema_of
from ...types.records import record_values
from ...types.tree import Anything, Field, FreeKeys, ItemList, Leaf, LeafKind, Record, Reference, Schema, Type, Union

SCALARS: Mapping[LeafKind, dict[str, Any]] = {
    "boolean": {"type": "boolean"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "binary"},
    "decimal": {"type": "string", "format": "decimal"},
    "date": {"type": "string", "format": "date"},
    "datetime": {"type": "string", "format": "date-time"},
    "time": {"type": "string", "format": "time"},
    "uuid": {"type": "string", "format": "uuid"},
    "null": {"type": "null"},
    "anything": {},
}
EXPECTED = "a type with JSON values, such as str, int, float, list[str] or a record class"


def json_schema(tp: Any) -> dict[str, Any]:
    """Write the JSON Schema (2020-12) of a type, with the annotations of its fields as `x-tensormetrics`.

    Args:
        tp: A dataclass, TypedDict, NamedTuple, a class of attrs, msgspec or pydantic, or another type such as
            ``list[Invoice]``.

    Returns:
        A dictionary for `json.dumps`. Keys of objects are aliases where the class has them.

    Raises:
        TypeError: If a field has a type without JSON values; the message has the path.
        ValueError: If a field has a comparator that JSON cannot express.

    Example:
        >>> from dataclasses import dataclass
        >>> from typing import Annotated
        >>> from tensormetrics.structured.fields import near
        >>> @dataclass
        ... class Item:
        ...     price: Annotated[float | None, near(rel=0.01)] = None
        >>> json_schema(Item)["properties"]["price"]["x-tensormetrics"]
        {'compare': 'near', 'rel': 0.01}
    """
    return write_json_schema(schema_of(tp), getattr(tp, "__name__", str(tp)))


def write_json_schema(schema: Schema, name: str = "schema") -> dict[str, Any]:
    """Write a schema tree; a reference at its root is written out there.

    Args:
        schema: The tree.
        name: Name of the type, for messages.

    Raises:
        TypeError, ValueError: As `json_schema`.
    """
    writer = _Writer(schema)
    if isinstance(schema.root, Reference):
        writer.pointers[schema.root.name] = "#"
        written = writer.type(schema.definitions[schema.root.name], schema.root.name)
    else:
        written = writer.type(schema.root, name)
    if writer.definitions:
        written["$defs"] = writer.definitions
    return written


@dataclass
class _Writer:
    schema: Schema
    pointers: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, dict[str, Any]] = field(default_factory=dict)

    def type(self, node: Type, path: str) -> dict[str, Any]:
        written = self._node(node, path)
        allows_null = isinstance(node, Anything) or isinstance(node, Leaf) and node.kind in ("null", "anything")
        if node.nullable and not allows_null:
            if isinstance(node, Leaf) and node.kind == "enum":
                written["enum"].append(None)
            else:
                written = {"anyOf": [*(written["anyOf"] if [*written] == ["anyOf"] else [written]), {"type": "null"}]}
        annotations = _annotations(node)
        return written | ({KEYWORD: keywords_of_annotations(annotations, path)} if annotations else {})

    def _node(self, node: Type, path: str) -> dict[str, Any]:
        if isinstance(node, Leaf):
            return _leaf(node, path)
        if isinstance(node, Union):
            return {"anyOf": [self.type(case, path) for case in node.cases]}
        if isinstance(node, Record) and node.is_tuple:
            items = [self.type(field.type, f"{path}{field.name}") for field in node.fields]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if isinstance(node, ItemList):
            unique = {"uniqueItems": True} if node.unique else {}
            return {"type": "array", "items": self.type(node.item, f"{path}[]"), **unique}
        if isinstance(node, FreeKeys):
            return {"type": "object", "additionalProperties": self.type(node.value, f"{path}.*")}
        if isinstance(node, Reference):
            return {"$ref": self._reference(node.name)}
        return self._record(node, path) if isinstance(node, Record) else {}

    def _reference(self, name: str) -> str:
        if name not in self.pointers:
            label = name.rsplit("/", 1)[-1].strip("#") or "root"
            self.pointers[name] = f"#/$defs/{label}"
            self.definitions[label] = {}  # in the order of first use
            self.definitions[label] |= self.type(self.schema.definitions[name], label)
        return self.pointers[name]

    def _record(self, node: Record, path: str) -> dict[str, Any]:
        properties = {field.name: self._property(field, f"{path}.{field.name}") for field in node.fields}
        written: dict[str, Any] = {"type": "object", "properties": properties}
        if required := [field.name for field in node.fields if field.required]:
            written["required"] = required
        if node.extra is not None:
            written["additionalProperties"] = self.type(node.extra, f"{path}.*")
        return written | ({"additionalProperties": False} if node.closed else {})

    def _property(self, field: Field, path: str) -> dict[str, Any]:
        written = self.type(field.type, path)
        if field.default is None:
            return written
        try:
            return written | {"default": json.loads(json.dumps(field.default(), default=_json_value, allow_nan=False))}
        except (TypeError, ValueError):
            return written  # JSON has no such value


def _leaf(node: Leaf, path: str) -> dict[str, Any]:
    if node.kind == "enum":
        return {"enum": list(node.values)}
    if node.kind == "instance":
        raise TypeError(
            f"{path}: got the type {getattr(node.classes[0], '__name__', node.classes[0])}, wanted {EXPECTED}"
        )
    if node.base64:
        return {"type": "string", "contentEncoding": "base64"}
    return dict(SCALARS[node.kind])


def _annotations(node: Type) -> list[Annotation]:
    scoring = node.scoring
    annotations: list[Annotation] = [] if scoring.comparator is None else [scoring.comparator]
    annotations += [weight(scoring.weight)] if scoring.weight != 1 else []
    annotations += [ignore()] if scoring.ignore else []
    if isinstance(node, ItemList):
        annotations += [ordered()] if node.ordered else []
        annotations += [match(node.match)] if node.match is not None else []
        annotations += [by(node.by)] if node.by is not None else []
    return annotations


def _json_value(value: Any) -> Any:
    """Convert a value of Python to a value that JSON supports."""
    if (fields := record_values(value)) is not None:
        return fields
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, set | frozenset | collections.deque):
        return list(value)
    raise TypeError(f"got {value!r:.60}, wanted a value that JSON supports")
