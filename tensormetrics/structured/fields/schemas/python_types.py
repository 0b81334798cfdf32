"""From classes of Python to JSON Schemas, with the annotations of their fields."""

import collections
import datetime
import enum
import json
import types
import typing
import uuid
from collections import abc
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import typing_extensions

from ..comparators import KEYWORD, Annotation, ignore, keywords_of_annotations
from .records import (
    Field,
    class_of,
    forbids_extra,
    is_record,
    is_tuple,
    plain,
    record_fields,
    record_values,
    resolved_types,
)

SCALARS: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string", "format": "binary"},
    Decimal: {"type": "string", "format": "decimal"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.time: {"type": "string", "format": "time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    type(None): {"type": "null"},
    None: {"type": "null"},
}
ANYTHING = Any, object, typing_extensions.Any
SETS = set, frozenset, abc.Set, abc.MutableSet
ARRAYS = list, tuple, collections.deque, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable
MAPPINGS = dict, collections.defaultdict, collections.OrderedDict, abc.Mapping, abc.MutableMapping
UNIONS = typing.Union, types.UnionType
WANTED = "a type that JSON has values of, such as str, int, float, list[str] or a record class"


def json_schema(tp: Any) -> dict[str, Any]:
    """Write the JSON Schema (2020-12) of a type, with the annotations of its fields as `x-tensormetrics`.

    Args:
        tp: A dataclass, TypedDict, NamedTuple, a class of attrs, msgspec or pydantic, or another type such as
            ``list[Invoice]``.

    Returns:
        A dictionary for `json.dumps`. Keys of objects are aliases where the class has them.

    Raises:
        TypeError: If a field has a type that JSON has no values of; the message has the path.
        ValueError: If a field has a comparator that JSON cannot express.

    >>> from dataclasses import dataclass
    >>> from typing import Annotated
    >>> from tensormetrics.structured.fields.comparators import near
    >>> @dataclass
    ... class Item:
    ...     price: Annotated[float | None, near(rel=0.01)] = None
    >>> json_schema(Item)["properties"]["price"]["x-tensormetrics"]
    {'compare': 'near', 'rel': 0.01}
    """
    return SchemaWriter(tp, {}, keywords=True).schema


class SchemaWriter:
    """The JSON Schema of a type.

    Args:
        tp: The type.
        names: Names in scope where the type is written, for forward references.
        keywords: Write annotations as JSON; otherwise `x-tensormetrics` is the list of the objects, which may hold
            functions.

    Attributes:
        schema: The schema. The first record is at the root, others are in `$defs`.
    """

    def __init__(self, tp: Any, names: Mapping[str, Any], keywords: bool = False) -> None:
        self.names, self.keywords = names, keywords
        self.references: dict[Any, str] = {}
        self.definitions: dict[str, dict[str, Any]] = {}
        tp = plain(tp)
        if is_record(tp) and not is_tuple(tp):
            self.references[tp] = "#"
            self.schema = self._record(tp)
        else:
            self.schema = self._type(tp, getattr(tp, "__name__", str(tp)))
        if self.definitions:
            self.schema["$defs"] = self.definitions

    def _type(self, tp: Any, at: str) -> dict[str, Any]:
        tp = plain(tp)
        origin, arguments = typing.get_origin(tp), typing.get_args(tp)
        if origin is typing.Annotated:
            return self._annotated(self._type(tp.__origin__, at), tp.__metadata__, at)
        if origin in UNIONS:
            return {"anyOf": [self._type(case, at) for case in arguments]}
        if origin is typing.Literal:
            return {"enum": [case.value if isinstance(case, enum.Enum) else case for case in arguments]}
        if isinstance(tp, type) and issubclass(tp, enum.Enum):
            return {"enum": [member.value for member in tp]}
        if tp in ANYTHING or isinstance(tp, typing.TypeVar):
            return self._type(tp.__bound__, at) if getattr(tp, "__bound__", None) else {}
        if is_tuple(tp) and Ellipsis not in arguments:
            items = [self._type(item, f"{at}[{n}]") for n, item in enumerate(arguments)]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if is_record(tp):
            return self._reference(tp)
        if (collection := self._collection(origin or tp, arguments, at)) is not None:
            return collection
        if isinstance(tp, abc.Hashable) and tp in SCALARS:
            return dict(SCALARS[tp])
        raise TypeError(f"{at}: got the type {getattr(tp, '__name__', tp)}, wanted {WANTED}")

    def _collection(self, cls: Any, arguments: tuple, at: str) -> dict[str, Any] | None:
        if cls is collections.Counter:
            return {"type": "object", "additionalProperties": {"type": "integer"}}
        if cls in MAPPINGS:
            return {"type": "object", "additionalProperties": self._type(arguments[1], f"{at}.*") if arguments else {}}
        if cls in (*ARRAYS, *SETS):
            items = self._type(arguments[0], f"{at}[]") if arguments else {}
            return {"type": "array", "items": items} | ({"uniqueItems": True} if cls in SETS else {})
        return None

    def _annotated(self, schema: dict[str, Any], extras: Any, at: str) -> dict[str, Any]:
        annotations = [extra for extra in extras if isinstance(extra, Annotation)]
        if not annotations:
            return schema
        if self.keywords:
            return schema | {KEYWORD: schema.get(KEYWORD, {}) | keywords_of_annotations(annotations, at)}
        return schema | {KEYWORD: [*schema.get(KEYWORD, []), *annotations]}

    def _reference(self, tp: Any) -> dict[str, Any]:
        if tp not in self.references:
            name = unused = class_of(tp).__name__
            while unused in self.definitions:
                unused = f"{name}_{len(self.definitions)}"
            self.references[tp] = f"#/$defs/{unused}"
            self.definitions[unused] = {}  # in the order of first use
            self.definitions[unused] |= self._record(tp)
        return {"$ref": self.references[tp]}

    def _record(self, tp: Any) -> dict[str, Any]:
        cls = class_of(tp)
        fields, hints = record_fields(cls) or [], resolved_types(tp, self.names)
        properties = {
            each.key: self._property(each, hints[each.name], f"{cls.__name__}.{each.name}") for each in fields
        }
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required := [each.key for each in fields if not each.has_default]:
            schema["required"] = required
        return schema | ({"additionalProperties": False} if forbids_extra(cls) else {})

    def _property(self, each: Field, hint: Any, at: str) -> dict[str, Any]:
        schema = self._type(hint, at)
        if not each.is_compared:
            schema = self._annotated(schema, [ignore()], at)
        if each.default is not None:
            try:
                value = each.default()
                schema = schema | {"default": json.loads(json.dumps(value, default=_json_value, allow_nan=False))}
            except (TypeError, ValueError):
                pass  # JSON has no such value
        return schema


def _json_value(value: Any) -> Any:
    """Return what JSON writes for a value of Python that it does not know."""
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
    raise TypeError(f"got {value!r:.60}, which JSON has no value of")
