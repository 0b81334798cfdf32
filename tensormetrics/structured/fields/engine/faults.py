"""Fit of single values to a type: the best case of a union, and a message about the first value of a wrong type."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from numbers import Real
from typing import Any

from ...types.tree import FreeKeys, ItemList, Leaf, Record, Union
from ...types.values import INVALID, array_of, members_of, type_description
from .recursion import Steps, run
from .slots import CompiledSchema, Edge, Slot, suffix_of

NO_CASE = -1
NULL_HINT = "; write null for a missing value"


def first_fault(plan: CompiledSchema, document: Any) -> str:
    """Describe the first error of a document, such as ``.people[0].born: got '12', wanted int``; "" if it has none.

    Args:
        plan: The compiled schema.
        document: A value that was read.
    """
    if document is None and not plan.root.nullable:
        return f": got null, wanted {type_name(plan.root.slot)}"
    return run(_fault(plan, plan.root, document, "")) or ""


def type_name(slot: Slot) -> str:
    """Return the name of a type, for messages."""
    node = slot.node
    if isinstance(node, Leaf):
        return type_description(node)
    if isinstance(node, Union):
        return " or ".join(dict.fromkeys(type_name(edge.slot) for edge in slot.edges))
    if isinstance(node, Record) and node.is_tuple:
        return f"an array of {len(node.fields)} items"
    return "an array" if isinstance(node, ItemList) else "an object"


def _fault(plan: CompiledSchema, edge: Edge, value: Any, path: str) -> Steps[str]:
    slot = edge.slot
    if value is None or isinstance(value, str) and value in plan.null_strings:
        return ""
    if isinstance(slot.node, Union):
        case = best_case(slot, value)
        if case != NO_CASE:
            return (yield _fault(plan, slot.edges[case], value, path))
    elif num_misfits(slot, value) is not None:
        for part, item, below, missing in _parts(plan, slot, value, path):
            if missing:
                return f"{below}: got {missing}, wanted {type_name(part.slot)}"
            if fault := (yield _fault(plan, part, item, below)):
                return fault
        return ""
    hint = NULL_HINT if isinstance(value, Real | Decimal) and value != value else ""
    return f"{path}: got {value!r:.60}, wanted {type_name(slot)}{hint}"


def _parts(plan: CompiledSchema, slot: Slot, value: Any, path: str) -> Iterator[tuple[Edge, Any, str, str]]:
    """Yield the parts of a value: their type, value and path, and what is there instead of a required value."""

    def null(part: Edge, item: Any) -> str:
        return "null" if item is None and not part.nullable and not plan.options.unlabelled else ""

    if isinstance(slot.node, ItemList):
        for n, item in enumerate(array_of(value) or []):
            yield slot.edges[0], item, f"{path}[{n}]", "null" if item is None and not slot.edges[0].nullable else ""
    elif not isinstance(slot.node, Leaf):
        values, others = members_of(slot.node, value) or {}, slot.edges if isinstance(slot.node, FreeKeys) else []
        for part in slot.edges:
            if part.field is not None:
                key = next((key for key in part.keys if key in values), None)
                is_filled = key is None and plan.options.defaults and part.field.default is not None
                required = part.field.required and not is_filled and not plan.options.unlabelled
                missing = "no such key" if key is None else null(part, values[key])
                yield part, values.get(key), path + part.suffix, missing if required else ""
            elif part is slot.other_keys:
                others = part.slot.edges
        for part, (key, item) in product(others, values.items()):
            if key not in slot.known_keys:
                yield part, item, path + suffix_of(str(key)), null(part, item)


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
