"""Selection of the best fitting case of a union."""

from __future__ import annotations

from typing import Any

from ...types.tree import FreeKeys, ItemList, Leaf, Record, Union
from ...types.values import INVALID, array_of, members_of
from .slots import Edge, Slot

NO_CASE = -1


def best_case(slot: Slot, value: Any) -> int:
    """Return the case of a union with the fewest misfits, the first of equal ones; NO_CASE if no case fits."""
    misfits = [(count, n) for n, edge in enumerate(slot.edges) if (count := num_misfits(edge.slot, value)) is not None]
    return min(misfits)[1] if misfits else NO_CASE


def num_misfits(slot: Slot, value: Any) -> int | None:
    """Count the parts of a value that do not fit a type; None if the value itself does not fit."""
    node = slot.node
    if isinstance(node, Leaf):
        assert slot.read is not None
        return None if slot.read(value) is INVALID else 0
    if isinstance(node, Union):
        return min((count for e in slot.edges if (count := num_misfits(e.slot, value)) is not None), default=None)
    if isinstance(node, ItemList):
        items = array_of(value)
        return None if items is None else sum(not _fits(slot.edges[0], item) for item in items)
    values = members_of(node, value)
    if values is None:
        return None
    if isinstance(node, FreeKeys):
        return sum(not _fits(slot.edges[0], part) for part in values.values())
    assert isinstance(node, Record)
    if node.instance_of is not None and isinstance(node.instance_of, type) and type(value) is node.instance_of:
        return -1  # an instance of the class fits best, regardless of its values
    count = 0 if slot.other_keys else sum(key not in slot.known_keys for key in values)
    count += sum(field.required and not any(k in values for k in field.keys or (field.name,)) for field in node.fields)
    return count + sum(key in values and not _fits(edge, values[key]) for edge in slot.edges for key in edge.keys)


def _fits(edge: Edge, part: Any) -> bool:
    """Return whether a value is of the kind of a type, ignoring its parts."""
    if part is None:
        return edge.nullable
    node = edge.slot.node
    if isinstance(node, Union):
        return any(_fits(case, part) for case in edge.slot.edges)
    if isinstance(node, Leaf):
        return num_misfits(edge.slot, part) is not None
    if isinstance(node, ItemList):
        return array_of(part) is not None
    return members_of(node, part) is not None
