"""Builder of schema trees from classes of Python."""

import datetime
import enum
import types as python_types
import typing
import uuid
from collections import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import typing_extensions

from ..comparators.annotations import by, ignore, match, ordered, weight
from ..comparators.base import Annotation, Comparator
from .records import SETS, class_of, forbids_extra, is_tuple, kind_of, record_fields, resolve_alias, resolved_types
from .tree import Anything, Field, FreeKeys, ItemList, Leaf, LeafKind, Record, Reference, Schema, Type, Union, tuple_of

SCALARS: dict[Any, LeafKind] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    bytes: "bytes",
    Decimal: "decimal",
    datetime.date: "date",
    datetime.datetime: "datetime",
    datetime.time: "time",
    uuid.UUID: "uuid",
    type(None): "null",
    None: "null",
}
ANYTHING = Any, object, typing_extensions.Any


def schema_of(tp: Any, names: Mapping[str, Any] | None = None) -> Schema:
    """Build the schema tree of a type.

    Args:
        tp: A record class or another type.
        names: Names in scope where the type is written, for forward references.

    Raises:
        TypeError: If a name in an annotation is unknown.
        ValueError: If an annotation does not fit its type; the message has the path.
    """
    builder = _TreeBuilder(names or {})
    return Schema(builder.node(tp, getattr(tp, "__name__", str(tp))), builder.definitions)


@dataclass
class _TreeBuilder:
    names: Mapping[str, Any]
    references: dict[Any, str] = field(default_factory=dict)
    definitions: dict[str, Type] = field(default_factory=dict)

    def node(self, tp: Any, path: str) -> Type:
        tp = resolve_alias(tp)
        return getattr(self, kind_of(tp))(tp, path)

    def annotated(self, tp: Any, path: str) -> Type:
        extras = [extra for extra in tp.__metadata__ if isinstance(extra, Annotation)]
        return annotate(self.node(tp.__origin__, path), extras, path)

    def union(self, tp: Any, path: str) -> Type:
        arguments = typing.get_args(tp)
        cases = [self.node(case, path) for case in arguments if case is not python_types.NoneType]
        nullable = len(cases) < len(arguments)
        return replace(cases[0], nullable=True) if len(cases) == 1 else Union(tuple(cases), nullable=nullable)

    def record(self, tp: Any, path: str) -> Type:
        if is_tuple(tp):
            return tuple_of(self.node(item, f"{path}[{n}]") for n, item in enumerate(typing.get_args(tp)))
        if tp not in self.references:
            name = unused = class_of(tp).__name__
            while unused in self.definitions:
                unused = f"{name}_{len(self.definitions)}"
            self.references[tp] = unused
            self.definitions[unused] = Anything()  # until its fields are known
            self.definitions[unused] = self._fields(tp)
        return Reference(self.references[tp])

    def _fields(self, tp: Any) -> Record:
        cls, hints = class_of(tp), resolved_types(tp, self.names)
        fields = []
        for record_field in record_fields(cls) or []:
            path = f"{cls.__name__}.{record_field.name}"
            node = self.node(hints[record_field.name], path)
            node = node if record_field.is_compared else annotate(node, [ignore()], path)
            required, default = not record_field.has_default, record_field.default
            fields.append(Field(record_field.key, node, required=required, default=default))
        return Record(tuple(fields), closed=forbids_extra(cls), instance_of=cls)

    def counter(self, tp: Any, path: str) -> Type:
        return FreeKeys(Leaf("integer"))

    def mapping(self, tp: Any, path: str) -> Type:
        _, value = typing.get_args(tp) or (Any, Any)
        return FreeKeys(self.node(value, f"{path}.*"))

    def items(self, tp: Any, path: str) -> Type:
        item, *_ = typing.get_args(tp) or (Any,)
        return ItemList(self.node(item, f"{path}[]"), unique=class_of(tp) in SETS)

    def scalar(self, tp: Any, path: str) -> Type:
        return Anything() if tp in ANYTHING or isinstance(tp, typing.TypeVar) else scalar_type(tp)


def scalar_type(tp: Any) -> Leaf:
    """Return the scalar of a type; a class without JSON values is checked by isinstance."""
    if typing.get_origin(tp) is typing.Literal or isinstance(tp, type) and issubclass(tp, enum.Enum):
        members = typing.get_args(tp) or list(tp)
        values = [member.value if isinstance(member, enum.Enum) else member for member in members]
        members = tuple(value for value in values if value is not None)
        return Leaf("enum", members, nullable=None in values)
    if isinstance(tp, abc.Hashable) and tp in SCALARS:
        return Leaf(SCALARS[tp], nullable=SCALARS[tp] == "null")
    return Leaf("instance", classes=(tp,))


def annotate(node: Type, annotations: Sequence[Annotation], path: str) -> Type:
    """Return a node of the tree with annotations.

    Raises:
        ValueError: If an annotation of lists is on another type, or a node has two comparators; the message has `path`.
    """
    for annotation in annotations:
        scoring = node.scoring
        if isinstance(annotation, Comparator):
            if scoring.comparator is not None:
                raise ValueError(f"{path}: got {scoring.comparator} and {annotation}, wanted one comparator")
            node = replace(node, scoring=replace(scoring, comparator=annotation))
        elif isinstance(annotation, weight):
            node = replace(node, scoring=replace(scoring, weight=float(annotation.value)))
        elif isinstance(annotation, ignore):
            node = replace(node, scoring=replace(scoring, ignore=True))
        elif not isinstance(node, ItemList):
            raise ValueError(f"{path}: got {annotation}, wanted it on a list")
        elif isinstance(annotation, ordered):
            node = replace(node, ordered=True)
        elif isinstance(annotation, match):
            node = replace(node, match=float(annotation.threshold))
        elif isinstance(annotation, by):
            node = replace(node, by=annotation.key)
    return node
