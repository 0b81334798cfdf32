"""Encoding of documents as columns: the values of each slot of a schema as rows that refer to the rows of parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from ...comparators.base import typed
from ...types.tree import FreeKeys, ItemList, Leaf, Record, Union
from ...types.values import INVALID, array_of, has_content, json_kind, kind_of_value, members_of, object_of
from .faults import best_case, num_misfits
from .recursion import Steps, run
from .slots import CompiledSchema, Edge, Slot

# Every column ends with these sentinel rows, so that the negative indices read them.
ABSENT = -1  # no value
INVALID_PARENT = -2  # below an object of a wrong type
MISFIT = -3  # a value of a wrong type
SENTINELS = (MISFIT, INVALID_PARENT, ABSENT)
MISSING = object()

KeyTable = defaultdict[Hashable, int]  # the codes of the `typed` keys of a leaf, or of the names of any keys


@dataclass(eq=False)
class SlotColumn:
    """Values of a slot.

    Attributes:
        values: The values before reading.
        codes: (N,) of scalars: index of the key; MISFIT for invalid values, else the sentinel itself.
        invalid: (N,) values of a wrong type.
        content: (N,) values that count as evidence: all but empty collections and objects without content.
        children: For each part of an object, tuple or union (N,) rows in the column of the part.
        cases: (N,) of a union: the case, ABSENT if no case fits the value.
        starts, lengths: (N,) of a collection, in `items`.
        items: Rows in the column of the items, of all values.
        item_keys: Codes of the keys of `items`, of objects with any keys.
        missing: (N,) objects without a required key, or with a null that the type does not allow.
        num_extra: (N,) keys with content that the type does not define.
        forbidden: (N,) objects with other keys although the type forbids them.
        labelled: For each part (N,) whether an object has its key.
    """

    values: list[Any] = field(default_factory=list)
    codes: Any = field(default_factory=list)
    invalid: Any = field(default_factory=list)
    content: Any = field(default_factory=list)
    children: list[Any] = field(default_factory=list)
    cases: Any = field(default_factory=list)
    starts: Any = field(default_factory=list)
    lengths: Any = field(default_factory=list)
    items: Any = field(default_factory=list)
    item_keys: Any = field(default_factory=list)
    missing: Any = field(default_factory=list)
    num_extra: Any = field(default_factory=list)
    forbidden: Any = field(default_factory=list)
    labelled: list[Any] = field(default_factory=list)

    def part(self, row: int) -> slice:
        """Return the range of a collection in `items`."""
        return slice(int(self.starts[row]), int(self.starts[row] + self.lengths[row]))


@dataclass(eq=False)
class Encoded:
    """Documents in columns by slot, and the row of each document at the root."""

    columns: list[SlotColumn]
    roots: np.ndarray  # (D,)


def encode(plan: CompiledSchema, documents: Sequence[Any], tables: list[KeyTable], is_reference: bool) -> Encoded:
    """Write documents into columns; None or `MISSING` for a document without value.

    Args:
        plan: The compiled schema.
        documents: Values of JSON or of Python.
        tables: Codes of the keys by slot, shared by predictions and references, updated in place.
        is_reference: Values of a union are read as its best case alone; otherwise as every case.
    """
    encoder = _Encoder(plan, tables, is_reference)
    roots = encoder.rows_of(plan.root, [None if document is MISSING else document for document in documents])
    encoder.encode_pending()
    return Encoded(encoder.finished(), np.array(roots, dtype=np.int64))


class _Encoder:
    def __init__(self, plan: CompiledSchema, tables: list[KeyTable], is_reference: bool) -> None:
        self.plan, self.tables, self.is_reference = plan, tables, is_reference
        self.columns = [
            SlotColumn(children=[[] for _ in slot.edges], labelled=[[] for _ in slot.edges]) for slot in plan.slots
        ]
        self.pending: dict[Slot, int] = {}  # first row that is not encoded
        self.chunks: list[tuple[Slot, int, int]] = []
        self.known_rows: dict[tuple[int, int], int] = {}

    def rows_of(self, edge: Edge, parts: Sequence[Any]) -> list[int]:
        """Append values to the column of a part; return their rows, ABSENT for None."""
        if self.plan.null_strings:
            parts = [None if self._is_null(part) else part for part in parts]
        slot = edge.slot
        values = self.columns[slot.index].values
        self.pending.setdefault(slot, len(values))
        if slot.is_shared:
            return [ABSENT if part is None else self._shared_row(slot, part, values) for part in parts]
        non_null = [part for part in parts if part is not None]
        row = len(values)
        values.extend(non_null)
        if len(non_null) == len(parts):
            return list(range(row, row + len(parts)))
        rows = iter(range(row, row + len(non_null)))
        return [ABSENT if part is None else next(rows) for part in parts]

    def _shared_row(self, slot: Slot, value: Any, values: list[Any]) -> int:
        row = self.known_rows.setdefault((slot.index, id(value)), len(values))
        if row == len(values):
            values.append(value)
        return row

    def _is_null(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.plan.null_strings

    def encode_pending(self) -> None:
        encoders = {
            Leaf: self._leaf,
            Record: self._record,
            ItemList: self._items,
            FreeKeys: self._free_keys,
            Union: self._union,
        }
        while self.pending:
            slot, start = next(iter(self.pending.items()))
            del self.pending[slot]
            column = self.columns[slot.index]
            values = column.values[start:]
            if values:
                self.chunks.append((slot, start, len(column.values)))
                encoders[type(slot.node)](slot, column, values)

    def _leaf(self, slot: Slot, column: SlotColumn, values: list[Any]) -> None:
        read, table, key = slot.read, self.tables[slot.index], slot.comparator.key
        assert read is not None
        if slot.node.kind == "anything":  # type: ignore[union-attr]
            values = [run(to_hashable(v)) if kind_of_value(v) in ("object", "array") else v for v in values]
        column.codes.extend(MISFIT if value is INVALID else table[typed(key(value))] for value in map(read, values))

    def _record(self, slot: Slot, column: SlotColumn, values: list[Any]) -> None:
        assert isinstance(slot.node, Record)
        objects: list[Any] = [members_of(slot.node, value) for value in values]
        column.invalid.extend(value is None for value in objects)
        invalid = [n for n, value in enumerate(objects) if value is None]
        for n in invalid:
            objects[n] = {}
        missing = [False] * len(objects)
        for edge, children, labelled in zip(slot.edges, column.children, column.labelled, strict=True):
            if edge is slot.other_keys:
                known = slot.known_keys
                parts = [{key: v for key, v in value.items() if key not in known} or None for value in objects]
            else:
                parts = self._fields(edge, objects, missing)
            if self.plan.options.unlabelled:
                labelled.extend(part is not MISSING for part in parts)
            rows = self.rows_of(edge, [None if part is MISSING else part for part in parts])
            for n in invalid:
                rows[n], missing[n] = INVALID_PARENT, False
            children.extend(rows)
        column.missing.extend(missing)
        self._extra_keys(slot, column, objects)

    def _fields(self, edge: Edge, objects: list[Any], missing: list[bool]) -> list[Any]:
        """Return the values of a field, and set `missing` for objects without a required value."""
        field = edge.field
        assert field is not None
        key, *others = edge.keys
        parts = [value.get(key, MISSING) for value in objects]
        for other in others:
            parts = [
                value.get(other, MISSING) if part is MISSING else part
                for part, value in zip(parts, objects, strict=True)
            ]
        if self.plan.options.defaults and field.default is not None:
            parts = [field.default() if part is MISSING else part for part in parts]
        if field.required:
            for n, part in enumerate(parts):
                if part is MISSING or part is None and not edge.nullable:
                    missing[n] = True
        return parts

    def _extra_keys(self, slot: Slot, column: SlotColumn, objects: list[Any]) -> None:
        assert isinstance(slot.node, Record)
        known_keys = slot.known_keys
        for value in objects:
            extra = (
                [] if slot.other_keys or value.keys() <= known_keys else [key for key in value if key not in known_keys]
            )
            column.num_extra.append(sum(has_content(value[key], self.plan.null_strings) for key in extra))
            column.forbidden.append(slot.node.closed and bool(extra))

    def _items(self, slot: Slot, column: SlotColumn, values: list[Any]) -> None:
        assert isinstance(slot.node, ItemList)
        (edge,) = slot.edges
        arrays = [array_of(value) for value in values]
        column.invalid.extend(items is None for items in arrays)
        # A null is omitted, or invalid if the type does not allow it.
        item_lists = [
            [
                INVALID if item is None else item
                for item in items or ()
                if not (self._is_null(item) or item is None and edge.nullable)
            ]
            for items in arrays
        ]
        if slot.node.unique:
            item_lists = [list({run(to_hashable(item)): item for item in items}.values()) for items in item_lists]
        self._collections(edge, column, item_lists)

    def _free_keys(self, slot: Slot, column: SlotColumn, values: list[Any]) -> None:
        (edge,) = slot.edges
        objects = [object_of(value) for value in values]
        column.invalid.extend(value is None for value in objects)
        non_null = [
            {str(key): part for key, part in (value or {}).items() if part is not None and not self._is_null(part)}
            for value in objects
        ]
        if not edge.nullable:
            column.missing.extend(value is not None and None in value.values() for value in objects)
        column.item_keys.extend(map(self.tables[slot.index].__getitem__, chain.from_iterable(non_null)))
        self._collections(edge, column, [list(value.values()) for value in non_null])

    def _collections(self, edge: Edge, column: SlotColumn, collections: list[list[Any]]) -> None:
        start = len(column.items)
        for items in collections:
            column.starts.append(start)
            column.lengths.append(len(items))
            start += len(items)
        column.items.extend(self.rows_of(edge, list(chain.from_iterable(collections))))

    def _union(self, slot: Slot, column: SlotColumn, values: list[Any]) -> None:
        cases = [best_case(slot, value) for value in values]
        column.cases.extend(cases)
        column.invalid.extend(case == ABSENT for case in cases)
        for n, (edge, children) in enumerate(zip(slot.edges, column.children, strict=True)):
            if self.is_reference:
                mask = [case == n for case in cases]
            else:
                mask = [num_misfits(edge.slot, value) is not None for value in values]
            rows = iter(self.rows_of(edge, [value for value, fit in zip(values, mask, strict=True) if fit]))
            other = ABSENT if self.is_reference else MISFIT
            children.extend(next(rows) if fit else other for fit in mask)

    def finished(self) -> list[SlotColumn]:
        """Convert the lists of all columns to arrays that end with the sentinel rows."""
        for slot, column in zip(self.plan.slots, self.columns, strict=True):
            none = np.zeros(len(column.values) + len(SENTINELS), dtype=np.int64)
            column.codes = np.array([*column.codes, *SENTINELS], dtype=np.int64)
            column.cases = np.array([*column.cases, ABSENT, ABSENT, ABSENT], dtype=np.int64)
            is_leaf = isinstance(slot.node, Leaf)
            column.invalid = (
                column.codes == MISFIT if is_leaf else np.array([*column.invalid, True, False, False], dtype=bool)
            )
            column.content = column.invalid.copy()
            for name in ("missing", "num_extra", "forbidden", "starts", "lengths"):
                values = getattr(column, name)
                setattr(column, name, np.array([*values, 0, 0, 0], dtype=np.int64) if values else none)
            if isinstance(slot.node, ItemList | FreeKeys):
                column.items, column.item_keys = (np.array(x, dtype=np.int64) for x in (column.items, column.item_keys))
            else:
                # The rows of a part for the sentinels MISFIT, INVALID_PARENT and ABSENT of the value.
                ends = MISFIT if isinstance(slot.node, Union) else INVALID_PARENT, INVALID_PARENT, ABSENT
                column.children = [np.array([*rows, *ends], dtype=np.int64) for rows in column.children]
            column.labelled = [np.array([*flags, True, True, True], dtype=bool) for flags in column.labelled]
            for n in np.nonzero(column.invalid[:-3])[0]:
                column.content[n] = has_content(column.values[n], self.plan.null_strings)
        for slot, start, stop in reversed(self.chunks):
            column = self.columns[slot.index]
            column.content[start:stop] |= self._content(slot, column, slice(start, stop))
        return self.columns

    def _content(self, slot: Slot, column: SlotColumn, rows: slice) -> Any:
        if isinstance(slot.node, Leaf):
            if slot.node.kind == "anything":
                return [has_content(value, self.plan.null_strings) for value in column.values[rows]]
            return column.codes[rows] >= 0
        if isinstance(slot.node, ItemList):
            return column.lengths[rows] > 0
        if isinstance(slot.node, FreeKeys):
            content = self.columns[slot.edges[0].slot.index].content
            owners = np.repeat(np.arange(rows.start, rows.stop), column.lengths[rows])
            start, count = column.starts[rows.start], len(owners)
            has = content[column.items[start : start + count]]
            return np.bincount(owners[has] - rows.start, minlength=rows.stop - rows.start) > 0
        result = np.zeros(rows.stop - rows.start, dtype=bool)
        for n, (edge, children) in enumerate(zip(slot.edges, column.children, strict=True)):
            content = self.columns[edge.slot.index].content[children[rows]]
            result |= content & (column.cases[rows] == n) if isinstance(slot.node, Union) else content
        return result | (column.num_extra[rows] > 0 if slot.extra_row >= 0 else False)


def to_hashable(value: Any) -> Steps[Hashable]:
    """Return a hashable form of a JSON value: numbers by value, but True is not 1."""
    if (values := object_of(value)) is not None:
        items = []
        for key, part in values.items():
            items.append((key, (yield to_hashable(part))))
        return "object", frozenset(items)
    if (array := array_of(value)) is not None:
        parts = []
        for part in array:
            parts.append((yield to_hashable(part)))
        return "array", tuple(parts)
    return json_kind(value), value
