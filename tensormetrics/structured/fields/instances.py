"""Construction of objects of a class from JSON values, without constructors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import is_typeddict

from ..types.records import record_fields
from ..types.tree import Fixed, FreeKeys, Items, Leaf, Record, Union
from ..types.values import array_of, object_of
from .engine.cases import best_case
from .engine.slots import Slot


def instance_of(slot: Slot, value: Any) -> Any:
    """Build the object that a JSON value without `first_fault` represents.

    Args:
        slot: The type, see `compile_schema`.
        value: The result of `json.loads`.
    """
    node = slot.node
    if value is None:
        return None
    if isinstance(node, Leaf):
        assert slot.read is not None
        return slot.read(value)
    if isinstance(node, Union):
        return instance_of(slot.edges[best_case(slot, value)].slot, value)
    if isinstance(node, Items | Fixed):
        return _array(slot, list(array_of(value) or ()))
    values = object_of(value) or {}
    if isinstance(node, FreeKeys):
        return {key: instance_of(slot.edges[0].slot, part) for key, part in values.items()}
    assert isinstance(node, Record)
    return _record(slot, node, values)


def _array(slot: Slot, items: list[Any]) -> Any:
    if isinstance(slot.node, Fixed):
        for edge in slot.edges:
            items[edge.position] = instance_of(edge.slot, items[edge.position])
        return tuple(items)
    built = [instance_of(slot.edges[0].slot, item) for item in items]
    try:
        return list(dict.fromkeys(built)) if isinstance(slot.node, Items) and slot.node.unique else built
    except TypeError:  # unhashable
        return built


def _record(slot: Slot, node: Record, values: Mapping[str, Any]) -> Any:
    cls: Any = node.instance_of
    slots = {edge.field.name: edge.slot for edge in slot.edges if edge.field is not None}
    parts = {}
    for field in record_fields(cls) or []:
        if field.key in values:
            value = values[field.key]
            parts[field.name] = instance_of(slots[field.key], value) if field.key in slots else value
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
