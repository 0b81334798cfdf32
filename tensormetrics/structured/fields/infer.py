"""Inference of types from the values of references."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..types.class_tree import schema_of
from ..types.tree import Anything, Field, FreeKeys, ItemList, Leaf, LeafKind, Record, Reference, Schema, Type, Union
from ..types.values import Conflict, array_of, kind_of_value, members_of, object_of
from .engine.recursion import Steps, run

SCALARS: dict[str, LeafKind] = {"boolean": "boolean", "number": "number", "string": "string"}


def infer_schema(references: Sequence[Any]) -> Schema:
    """Infer the type of documents from the kinds of values at each path; all numbers are one kind, null is ignored."""
    return Schema(run(infer(references)))


def complete_schema(schema: Schema, references: Sequence[Any]) -> Schema:
    """Replace each node that allows any value by the type that its values in the references have."""
    if not _values_of_anything(schema, []):
        return schema
    values = _values_of_anything(schema, references)
    definitions = {name: run(_completed(node, values)) for name, node in schema.definitions.items()}
    return Schema(run(_completed(schema.root, values)), definitions)


def _values_of_anything(schema: Schema, references: Sequence[Any]) -> dict[int, list[Any]]:
    """Return the values by the identity of the node, for nodes that allow any value."""
    values_by_node: dict[int, list[Any]] = {}
    pending: deque[tuple[Type, list[Any]]] = deque([(schema.root, list(references))])
    seen: set[str] = set()
    while pending:
        node, values = pending.popleft()
        values = [value for value in values if value is not None]
        if isinstance(node, Anything):
            values_by_node.setdefault(id(node), []).extend(values)
        elif isinstance(node, Reference):
            if values or node.name not in seen:
                seen.add(node.name)
                pending.append((schema.definitions[node.name], values))
        else:
            pending.extend(_parts(node, values))
    return values_by_node


def _parts(node: Type, values: list[Any]) -> list[tuple[Type, list[Any]]]:
    """Return the types of the parts of a type with their values."""
    if isinstance(node, Union):
        return [(case, values) for case in node.cases]
    if isinstance(node, ItemList):
        return [(node.item, [item for value in values for item in array_of(value) or ()])]
    if isinstance(node, FreeKeys):
        return [(node.value, [part for value in values for part in (object_of(value) or {}).values()])]
    if not isinstance(node, Record):
        return []
    objects = [parts for value in values if (parts := members_of(node, value)) is not None]
    field_keys = [(field.type, field.keys or (field.name,)) for field in node.fields]
    typed = [(tp, [value[key] for value in objects for key in keys if key in value]) for tp, keys in field_keys]
    if node.extra is not None:
        names = {key for _, keys in field_keys for key in keys}
        typed.append((node.extra, [part for value in objects for key, part in value.items() if key not in names]))
    return typed


def _completed(node: Type, values: dict[int, list[Any]]) -> Steps[Type]:
    # values: by the identity of nodes that allow any value
    if isinstance(node, Anything):
        return replace((yield infer(values.get(id(node), []))), nullable=True, scoring=node.scoring)
    if isinstance(node, ItemList):
        return replace(node, item=(yield _completed(node.item, values)))
    if isinstance(node, FreeKeys):
        return replace(node, value=(yield _completed(node.value, values)))
    if isinstance(node, Union):
        cases = []
        for case in node.cases:
            cases.append((yield _completed(case, values)))
        return replace(node, cases=tuple(cases))
    if isinstance(node, Record):
        fields = []
        for record_field in node.fields:
            fields.append(replace(record_field, type=(yield _completed(record_field.type, values))))
        extra = None if node.extra is None else (yield _completed(node.extra, values))
        return replace(node, fields=tuple(fields), extra=extra)
    return node


def infer(values: Sequence[Any]) -> Steps[Type]:
    """Return the type of all values at one path."""
    kinds: dict[str, list[Any]] = {}
    for value in values:
        if value is not None and not isinstance(value, Conflict):
            kinds.setdefault(kind_of_value(value), []).append(value)
    cases: list[Type] = []
    for kind, members in kinds.items():
        if kind == "object":
            cases.append((yield _record(members)))
        elif kind == "array":
            items = [item for value in members for item in array_of(value) or []]
            cases.append(
                ItemList((yield infer(items)), unique=all(isinstance(value, set | frozenset) for value in members))
            )
        elif kind in SCALARS:
            cases.append(Leaf(SCALARS[kind]))
        else:
            cases += {type(value): schema_of(type(value)).root for value in members}.values()
    nullable = len(values) > sum(map(len, kinds.values()))
    if not cases:
        return Leaf("anything", nullable=True)
    return replace(cases[0], nullable=nullable) if len(cases) == 1 else Union(tuple(cases), nullable=nullable)


def _record(objects: Sequence[Any]) -> Steps[Type]:
    parts: dict[str, list[Any]] = {}
    for value in objects:
        for key, part in (object_of(value) or {}).items():
            parts.setdefault(str(key), []).append(part)
    fields = []
    for key, values in parts.items():
        fields.append(Field(key, (yield infer(values))))
    return Record(tuple(fields))
