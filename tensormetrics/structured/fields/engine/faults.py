"""Message about the first value of a document of a wrong type."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any

from ...types.tree import Fixed, Items, Leaf, Record, Union
from ...types.values import INVALID, array_of, object_of, type_description
from .cases import NO_CASE, best_case, num_misfits
from .recursion import Steps, run
from .slots import Edge, Plan, Slot, join_path

NULL_HINT = "; write null for a missing value"


def first_fault(plan: Plan, document: Any) -> str:
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
    if isinstance(node, Fixed):
        return f"an array of {len(node.positions)} items"
    return "an array" if isinstance(node, Items) else "an object"


def _fault(plan: Plan, edge: Edge, value: Any, path: str) -> Steps[str]:
    slot = edge.slot
    if value is None or isinstance(value, str) and value in plan.null_strings:
        return ""
    node = slot.node
    if isinstance(node, Union):
        case = best_case(slot, value)
        if case != NO_CASE:
            return (yield _fault(plan, slot.edges[case], value, path))
    elif num_misfits(slot, value) is not None:
        return (yield _fault_of_parts(plan, slot, value, path))
    hint = NULL_HINT if isinstance(value, Real | Decimal) and value != value else ""
    return f"{path}: got {value!r:.60}, wanted {type_name(slot)}{hint}"


def _fault_of_parts(plan: Plan, slot: Slot, value: Any, path: str) -> Steps[str]:
    node = slot.node
    if isinstance(node, Leaf):
        assert slot.read is not None and slot.read(value) is not INVALID
    elif isinstance(node, Items):
        for n, item in enumerate(array_of(value) or []):
            if item is None and not slot.edges[0].nullable:
                return f"{path}[{n}]: got null, wanted {type_name(slot.edges[0].slot)}"
            if fault := (yield _fault(plan, slot.edges[0], item, f"{path}[{n}]")):
                return fault
    elif isinstance(node, Fixed):
        items = array_of(value) or []
        for part in slot.edges:
            name = f"{path}[{part.position}]"
            if items[part.position] is None and not part.nullable and not plan.unlabelled:
                return f"{name}: got null, wanted {type_name(part.slot)}"
            if fault := (yield _fault(plan, part, items[part.position], name)):
                return fault
    else:
        return (yield _fault_of_object(plan, slot, object_of(value) or {}, path))
    return ""


def _fault_of_object(plan: Plan, slot: Slot, value: Any, path: str) -> Steps[str]:
    if not isinstance(slot.node, Record):
        return (yield _fault_of_other_keys(plan, slot, slot.edges[0], value, path))
    if fault := (yield _fault_of_fields(plan, slot, value, path)):
        return fault
    if slot.other_keys is None:
        return ""
    return (yield _fault_of_other_keys(plan, slot, slot.other_keys.slot.edges[0], value, path))


def _fault_of_fields(plan: Plan, slot: Slot, value: Any, path: str) -> Steps[str]:
    for part in slot.edges:
        if part.field is None:
            continue
        key = next((key for key in part.keys if key in value), None)
        name = _below(path, part.field.name)
        is_filled = plan.defaults and part.field.default is not None
        is_missing = value.get(key) is None and not part.nullable if key is not None else not is_filled
        if part.field.required and is_missing and not plan.unlabelled:
            return f"{name}: got {'no such key' if key is None else 'null'}, wanted {type_name(part.slot)}"
        if fault := (yield _fault(plan, part, value.get(key), name)):
            return fault
    return ""


def _fault_of_other_keys(plan: Plan, slot: Slot, part: Edge, value: Any, path: str) -> Steps[str]:
    for key, item in value.items():
        if key in slot.known_keys:
            continue
        if item is None and not part.nullable and not plan.unlabelled:
            return f"{_below(path, str(key))}: got null, wanted {type_name(part.slot)}"
        if fault := (yield _fault(plan, part, item, _below(path, str(key)))):
            return fault
    return ""


def _below(parent: str, name: str) -> str:
    path = join_path("x", name)
    return parent + path[1:]
