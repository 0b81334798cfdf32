"""Construction of objects of a class from JSON values, without constructors; values of a wrong type are unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import is_typeddict

from ..types.records import record_fields
from ..types.tree import Fixed, FreeKeys, Items, Leaf, Record, Union
from ..types.values import INVALID, array_of, object_of
from .engine.cases import NO_CASE, best_case
from .engine.slots import Edge, Slot

MISSING = object()


def instance_of(edge: Edge, value: Any) -> Any:
    """Build the object that a JSON value represents.

    Args:
        edge: The type, see `compile_schema`.
        value: The result of `json.loads`.
    """
    return _build(edge.slot, value)


def _build(slot: Slot, value: Any) -> Any:
    node = slot.node
    if value is None:
        return None
    if isinstance(node, Leaf):
        assert slot.read is not None
        read = slot.read(value)
        return value if read is INVALID else read
    if isinstance(node, Union):
        case = best_case(slot, value)
        return value if case == NO_CASE else _build(slot.edges[case].slot, value)
    if isinstance(node, Items | Fixed):
        return _array(slot, value)
    values = object_of(value)
    if values is None:
        return value
    if isinstance(node, FreeKeys):
        return {key: _build(slot.edges[0].slot, part) for key, part in values.items()}
    assert isinstance(node, Record)
    return _record(slot, node, values)


def _array(slot: Slot, value: Any) -> Any:
    items = array_of(value)
    if items is None:
        return value
    if isinstance(slot.node, Fixed):
        built = list(items)
        for edge in slot.edges:
            if edge.position < len(items):
                built[edge.position] = _build(edge.slot, items[edge.position])
        return tuple(built)
    built = [_build(slot.edges[0].slot, item) for item in items]
    try:
        return list(dict.fromkeys(built)) if isinstance(slot.node, Items) and slot.node.unique else built
    except TypeError:  # unhashable
        return built


def _record(slot: Slot, node: Record, values: Mapping[str, Any]) -> Any:
    cls: Any = node.instance_of
    edges = {edge.field.name: edge for edge in slot.edges if edge.field is not None}
    parts = {}
    for field in record_fields(cls) or []:
        value = values.get(field.key, MISSING)
        if value is not MISSING:
            parts[field.name] = _build(edges[field.key].slot, value) if field.key in edges else value
        elif not is_typeddict(cls):
            parts[field.name] = None if field.default is None else field.default()
    if is_typeddict(cls):
        return parts
    if issubclass(cls, tuple):
        return tuple.__new__(cls, parts.values())
    if hasattr(cls, "model_construct"):
        return cls.model_construct(**parts)
    if hasattr(cls, "__struct_fields__"):
        return cls(**parts)
    made = object.__new__(cls)
    for name, value in parts.items():
        object.__setattr__(made, name, value)
    return made
