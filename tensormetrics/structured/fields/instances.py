"""Construction of objects of a class from JSON values, without constructors."""

from __future__ import annotations

from typing import Any

from typing_extensions import is_typeddict

from ..types.records import record_fields
from ..types.tree import FreeKeys, ItemList, Leaf, Record, Union
from ..types.values import array_of, members_of
from .engine.faults import best_case
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
    if isinstance(node, ItemList):
        built = [instance_of(slot.edges[0].slot, item) for item in array_of(value) or ()]
        try:
            return list(dict.fromkeys(built)) if node.unique else built
        except TypeError:  # unhashable
            return built
    if isinstance(node, FreeKeys):
        return {key: instance_of(slot.edges[0].slot, part) for key, part in (members_of(node, value) or {}).items()}
    assert isinstance(node, Record)
    return _record(slot, node, value)


def _record(slot: Slot, node: Record, value: Any) -> Any:
    values, cls = dict(members_of(node, value) or {}), node.instance_of  # type: Any, Any
    if node.is_tuple:
        return tuple((values | {e.keys[0]: instance_of(e.slot, values[e.keys[0]]) for e in slot.edges}).values())
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
