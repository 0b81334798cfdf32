"""Comparison of encoded documents: similarities of pairs of values, and counts by row of the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ...comparators.base import Answers
from ...tensors._pairs import expand, join_once
from ...types.tree import FreeKeys, ItemList, Leaf, Union
from .encode import ABSENT, Encoded, KeyTable, SlotColumn
from .matching import Edges, best_matching
from .recursion import Steps, run
from .slots import CompiledSchema, Edge, Slot

TOLERANCE = 1e-9  # of thresholds
MIN_WEIGHT = 2.0**-20  # of a pair of items that must be matched
MAX_CELLS = 1 << 22  # pairs of items that are compared at once
COUNTS = ("correct", "wrong", "missed", "invented")
CORRECT, WRONG, MISSED, INVENTED = range(len(COUNTS))


class DocumentComparison:
    """Comparison of predictions with references.

    Args:
        plan: The compiled schema.
        tables: Codes of the keys by slot, of predictions and references.
        preds: Encoded predictions; the row of a missing one is ABSENT.
        refs: Encoded references.
        answers: Results of users' functions.

    Attributes:
        counts: (D, R, 4) int64, correct, wrong, missed and invented values by row of the report.
        similarity: (D, R) float64, sums of the similarities of the correct and wrong values.
        document_similarity: (D,) float64.
        invalid: (D, P) int64, values of a wrong type by path.
        is_conforming: (D,) bool, without invalid values, missing required keys and forbidden keys.
        num_extra: (D,) int64, keys that the schema does not define.
    """

    def __init__(
        self, plan: CompiledSchema, tables: list[KeyTable], preds: Encoded, refs: Encoded, answers: Answers
    ) -> None:
        self.plan, self.tables, self.preds, self.refs, self.answers = plan, tables, preds, refs, answers
        size, rows = len(preds.roots), len(plan.rows)
        self.counts, self.similarity = np.zeros((size, rows, 4), dtype=np.int64), np.zeros((size, rows))
        self.invalid, self.num_extra = np.zeros((size, len(plan.paths)), dtype=np.int64), np.zeros(size, dtype=np.int64)
        self.is_conforming = np.ones(size, dtype=bool)
        self.wrong: list[tuple[Slot, np.ndarray, np.ndarray]] = []  # rows of wrong values and of their references
        self.matches: list[tuple[Slot, np.ndarray, np.ndarray, Edges]] = []  # of the items of lists that are counted
        self.keeps_all_credit = False  # of values below their thresholds
        # The parts of a slot are compared in this order, users' functions last.
        costs = [[_cost(edge.slot) for edge in slot.edges] for slot in plan.slots]
        self.order = [np.argsort(row, kind="stable").tolist() for row in costs]
        documents, slot, i, j = np.arange(size), plan.root.slot, preds.roots, refs.roots
        self.document_similarity = run(self.visit(slot, i, j, documents))
        self.document_similarity[~self.has_content(slot, i, j)] = 1.0
        run(self._count_faults(plan.root, i, documents))
        self.is_conforming &= self.invalid.sum(1) == 0

    def wrong_values(self, row: int) -> Iterator[tuple[Any, Any]]:
        """Yield the wrong values of a row of the report, with the values of the references."""
        for slot, i, j in self.wrong:
            if slot.row == row:
                preds, refs = self.columns_of(slot)
                for pred, ref in zip(i, j, strict=True):
                    if pred >= 0:  # negative below an object of a wrong type
                        yield preds.values[pred], refs.values[ref]

    def matched_items(self, slot: Slot, i: int, j: int) -> Edges:
        """Return the matched pairs of items of two lists that are counted."""
        for counted, preds, refs, edges in self.matches:
            if counted is slot and len(pair := np.nonzero((preds == i) & (refs == j))[0]):
                return edges.take(edges.pair == pair[0])
        return Edges.concatenate([])

    def columns_of(self, slot: Slot) -> tuple[SlotColumn, SlotColumn]:
        return self.preds.columns[slot.index], self.refs.columns[slot.index]

    def has_content(self, slot: Slot, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        # i, j: (P,)  ->  (P,) bool
        """Return whether at least one of two values has content."""
        preds, refs = self.columns_of(slot)
        return preds.content[i] | refs.content[j]

    def visit(
        self, slot: Slot, i: np.ndarray, j: np.ndarray, documents: np.ndarray | None = None, floor: float = 0.0
    ) -> Steps[np.ndarray]:
        # i, j, documents: (P,)  ->  (P,) float64
        """Return the similarities of pairs of values; with their documents, also count them.

        Pairs below `floor` may get a lower similarity.
        """
        if isinstance(slot.node, Leaf):
            return self._leaf(slot, i, j, documents)
        if isinstance(slot.node, ItemList | FreeKeys):
            visit = self._items if isinstance(slot.node, ItemList) else self._free_keys
            return (yield visit(slot, i, j, documents))
        visit_parts = self._union if isinstance(slot.node, Union) else self._parts
        return (yield visit_parts(slot, i, j, documents, floor))

    def _leaf(self, slot: Slot, i: np.ndarray, j: np.ndarray, documents: np.ndarray | None) -> np.ndarray:
        preds, refs = self.columns_of(slot)
        pred, ref = preds.codes[i], refs.codes[j]
        comparator = slot.comparator
        if comparator.is_equality:
            correct = (pred == ref) & (pred >= 0)
            similarity = correct.astype(np.float64)
        else:
            similarity = np.zeros(len(i))
            (both,) = np.nonzero((pred >= 0) & (ref >= 0))
            cutoff = comparator.threshold if documents is None and not self.keeps_all_credit else 0.0
            similarity[both] = comparator.pair_similarities(
                self.tables[slot.index], pred[both], ref[both], cutoff, self.answers
            )
            correct = (similarity >= comparator.threshold - TOLERANCE) & (pred >= 0) & (ref >= 0)
        if documents is not None:
            np.add.at(self.similarity[:, slot.row], documents, similarity)
            if not slot.is_item:
                has_pred, has_ref = pred != ABSENT, ref != ABSENT
                self._add(slot.row, CORRECT, documents, correct)
                wrong = has_pred & has_ref & ~correct
                self._add(slot.row, WRONG, documents, wrong)
                if wrong.any():
                    self.wrong.append((slot, i[wrong], j[wrong]))
                self._add(slot.row, MISSED, documents, has_ref & ~has_pred)
                self._add(slot.row, INVENTED, documents, has_pred & ~has_ref & preds.content[i])
        return similarity if self.keeps_all_credit else np.where(correct, similarity, 0.0)

    def _add(self, row: int, kind: int, documents: np.ndarray, amounts: np.ndarray) -> None:
        np.add.at(self.counts[:, row, kind], documents, amounts)

    def _parts(
        self, slot: Slot, i: np.ndarray, j: np.ndarray, documents: np.ndarray | None, floor: float
    ) -> Steps[np.ndarray]:
        """Compare objects or tuples: the weighted mean over the parts that at least one of them has."""
        preds, refs = self.columns_of(slot)
        total, open_weight, weight = np.zeros(len(i)), np.zeros(len(i)), np.zeros(len(i))
        parts = []
        for n in self.order[slot.index]:
            edge = slot.edges[n]
            if edge.weight == 0 and documents is None:
                continue
            pred, ref = preds.children[n][i], refs.children[n][j]
            if self.plan.options.unlabelled:
                pred = np.where(refs.labelled[n][j], pred, ABSENT)
            pred_parts, ref_parts = self.columns_of(edge.slot)
            has_pred, has_ref = pred_parts.content[pred], ref_parts.content[ref]
            weight += edge.weight * (has_pred | has_ref)
            open_weight += edge.weight * (has_pred & has_ref)
            seen = has_pred & has_ref if documents is None else (pred != ABSENT) | (ref != ABSENT)
            parts.append((edge, pred, ref, seen, has_pred & has_ref))
        if slot.extra_row >= 0:
            weight += preds.num_extra[i] > 0
            if documents is not None:
                self._add(slot.extra_row, INVENTED, documents, preds.num_extra[i])
        for edge, pred, ref, seen, both in parts:
            if floor > 0:
                seen = seen & (total + open_weight >= floor * weight - TOLERANCE)
            (rows,) = np.nonzero(seen)
            if len(rows):
                row_documents = None if documents is None else documents[rows]
                total[rows] += edge.weight * (yield self.visit(edge.slot, pred[rows], ref[rows], row_documents))
            open_weight -= edge.weight * both
        similarity = np.divide(total, weight, out=np.ones(len(i)), where=weight > 0)
        similarity[preds.invalid[i]] = 0.0
        return similarity

    def _union(
        self, slot: Slot, i: np.ndarray, j: np.ndarray, documents: np.ndarray | None, floor: float
    ) -> Steps[np.ndarray]:
        """Compare values of the case of the reference, or of the prediction if there is no reference."""
        preds, refs = self.columns_of(slot)
        cases = np.maximum(np.where(j == ABSENT, preds.cases[i], refs.cases[j]), 0)
        similarity = np.zeros(len(i))
        for n, edge in enumerate(slot.edges):
            (rows,) = np.nonzero(cases == n)
            if len(rows):
                row_documents = None if documents is None else documents[rows]
                pred, ref = preds.children[n][i[rows]], refs.children[n][j[rows]]
                pred[~preds.content[i[rows]] & (j[rows] == ABSENT)] = ABSENT
                similarity[rows] = yield self.visit(edge.slot, pred, ref, row_documents, floor)
        return similarity

    def _free_keys(self, slot: Slot, i: np.ndarray, j: np.ndarray, documents: np.ndarray | None) -> Steps[np.ndarray]:
        """Compare objects with any keys: the similarities of values of equal keys, as a fraction of all values."""
        (edge,) = slot.edges
        preds, refs = self.columns_of(slot)
        columns, size = self.columns_of(edge.slot), max(len(self.tables[slot.index]), 1)
        owners, names, rows, values = [], [], [], np.zeros(len(i))
        for column, index, parts in zip((preds, refs), (i, j), columns, strict=True):
            owner, flat = expand_items(column, index)
            row = column.items[flat]
            values += np.bincount(owner[parts.content[row]], minlength=len(i))
            owners.append(owner)
            names.append(owner * size + column.item_keys[flat])
            rows.append(row)
        _, in_pred, in_ref = np.intersect1d(names[0], names[1], assume_unique=True, return_indices=True)
        pred, ref, owner = rows[0][in_pred], rows[1][in_ref], owners[0][in_pred]
        if documents is None:
            both = columns[0].content[pred] & columns[1].content[ref]
            pred, ref, owner = pred[both], ref[both], owner[both]
        else:
            unmatched = [
                np.delete(np.arange(len(row)), used) for row, used in zip(rows, (in_pred, in_ref), strict=True)
            ]
            absent = [np.full(len(index), ABSENT) for index in unmatched]
            pred = np.concatenate([pred, rows[0][unmatched[0]], absent[1]])
            ref = np.concatenate([ref, absent[0], rows[1][unmatched[1]]])
            owner = np.concatenate([owner, owners[0][unmatched[0]], owners[1][unmatched[1]]])
        row_documents = None if documents is None else documents[owner]
        parts_similarity = yield self.visit(edge.slot, pred, ref, row_documents)
        parts_similarity = np.where(columns[0].content[pred] & columns[1].content[ref], parts_similarity, 0.0)
        total = np.bincount(owner, parts_similarity, minlength=len(i))
        return np.divide(2 * total, values, out=np.zeros(len(i)), where=values > 0)

    def _items(self, slot: Slot, i: np.ndarray, j: np.ndarray, documents: np.ndarray | None) -> Steps[np.ndarray]:
        """Compare lists: twice the similarity of the matched items, as a fraction of all items."""
        (edge,) = slot.edges
        preds, refs = self.columns_of(slot)
        sizes = preds.lengths[i] + refs.lengths[j]
        edges = yield self.match_items(slot, i, j)
        total = np.bincount(edges.pair, edges.similarity, minlength=len(i))
        if documents is not None:
            self.matches.append((slot, i, j, edges))
            matched = np.bincount(edges.pair, minlength=len(i))
            has_any = preds.content[i] | (refs.lengths[j] > 0)
            self._add(slot.row, CORRECT, documents, matched)
            self._add(slot.row, MISSED, documents, refs.lengths[j] - matched)
            self._add(slot.row, INVENTED, documents, preds.lengths[i] - matched + (preds.invalid[i] & has_any))
            pred, ref, owner = edges.pred, edges.ref, edges.pair
            if not edge.slot.is_leaf:
                pred_owner, pred_unmatched = _unmatched(preds, i, edges.pair, edges.pred_position)
                ref_owner, ref_unmatched = _unmatched(refs, j, edges.pair, edges.ref_position)
                pred = np.concatenate([pred, pred_unmatched, np.full(len(ref_unmatched), ABSENT)])
                ref = np.concatenate([ref, np.full(len(pred_unmatched), ABSENT), ref_unmatched])
                owner = np.concatenate([owner, pred_owner, ref_owner])
            yield self.visit(edge.slot, pred, ref, documents[owner])
        return np.divide(2 * total, sizes, out=np.zeros(len(i)), where=sizes > 0)

    def match_items(self, slot: Slot, i: np.ndarray, j: np.ndarray) -> Steps[Edges]:
        """Return the matched pairs of items of pairs of lists."""
        assert isinstance(slot.node, ItemList)
        (edge,) = slot.edges
        preds, refs = self.columns_of(slot)
        item = edge.slot
        if isinstance(item.node, Leaf) and item.comparator.is_equality and not slot.node.ordered:
            return self._equal_items(slot, i, j)
        chunks = []
        floor = 0.0 if slot.by is not None or item.is_leaf else slot.match
        for cells in all_pairs(preds, refs, i, j):
            if slot.by is not None:
                cells = cells.take(self._has_equal_keys(slot, cells))
            similarity = yield self.visit(item, cells.pred, cells.ref, None, floor)
            similarity[~self.has_content(item, cells.pred, cells.ref)] = 1.0
            admissible = (similarity > 0) & (similarity >= floor - TOLERANCE) | (slot.by is not None)
            chunks.append(cells._replace(similarity=similarity).take(admissible))
        edges = Edges.concatenate(chunks)
        weights = np.maximum(edges.similarity, MIN_WEIGHT)
        return edges.take(best_matching(edges, weights, preds.lengths[i], refs.lengths[j], slot.node.ordered))

    def _has_equal_keys(self, slot: Slot, cells: Edges) -> np.ndarray:
        assert slot.by is not None
        (edge,), by = slot.edges, slot.by
        n = edge.slot.edges.index(by)
        codes = [
            encoded.columns[by.slot.index].codes[encoded.columns[edge.slot.index].children[n][rows]]
            for encoded, rows in ((self.preds, cells.pred), (self.refs, cells.ref))
        ]
        return (codes[0] == codes[1]) & (codes[0] >= 0)

    def _equal_items(self, slot: Slot, i: np.ndarray, j: np.ndarray) -> Edges:
        """Match items of equal codes in order, the n-th of one list with the n-th of the other."""
        (edge,) = slot.edges
        items, num_codes = [], max(len(self.tables[edge.slot.index]), 1)
        for column, index, parts in zip(self.columns_of(slot), (i, j), self.columns_of(edge.slot), strict=True):
            owner, flat = expand_items(column, index)
            row = column.items[flat]
            valid = parts.codes[row] >= 0
            owner, flat, row = owner[valid], flat[valid], row[valid]
            key = torch.from_numpy(owner * num_codes + parts.codes[row])
            items.append((owner, flat - column.starts[index[owner]], row, key))
        (pair, position, pred, key), (_, ref_position, ref, ref_key) = items
        a, b = (index.numpy() for index in join_once(key, ref_key))
        return Edges(pair[a], position[a], ref_position[b], pred[a], ref[b], np.ones(len(a)))

    def _count_faults(self, edge: Edge, rows: np.ndarray, documents: np.ndarray) -> Steps[None]:
        """Count the values of predictions of a wrong type."""
        slot = edge.slot
        column = self.preds.columns[slot.index]
        np.add.at(self.invalid[:, slot.path_index], documents, column.invalid[rows])
        valid = (rows >= 0) & ~column.invalid[rows]
        rows, documents = rows[valid], documents[valid]
        if not len(rows):
            return
        self.is_conforming[documents[(column.missing[rows] | column.forbidden[rows]) > 0]] = False
        np.add.at(self.num_extra, documents, column.num_extra[rows])
        for n, part in enumerate(slot.edges):
            if isinstance(slot.node, ItemList | FreeKeys):
                owner, flat = expand_items(column, rows)
                yield self._count_faults(part, column.items[flat], documents[owner])
            elif isinstance(slot.node, Union):
                is_case = column.cases[rows] == n
                yield self._count_faults(part, column.children[n][rows[is_case]], documents[is_case])
            else:
                yield self._count_faults(part, column.children[n][rows], documents)


def expand_items(column: SlotColumn, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # rows: (P,)  ->  (T,) index into rows, (T,) index into column.items
    """Return the concatenated items of collections."""
    owner, item = expand(*(torch.from_numpy(sizes[rows]) for sizes in (column.starts, column.lengths)))
    return owner.numpy(), item.numpy()


def _unmatched(
    column: SlotColumn, rows: np.ndarray, pair: np.ndarray, position: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    # ->  (T,) index into rows, (T,) rows of the items
    owner, flat = expand_items(column, rows)
    start = np.cumsum(column.lengths[rows]) - column.lengths[rows]
    is_matched = np.zeros(len(owner), dtype=bool)
    is_matched[start[pair] + position] = True
    return owner[~is_matched], column.items[flat[~is_matched]]


def all_pairs(preds: SlotColumn, refs: SlotColumn, i: np.ndarray, j: np.ndarray) -> Iterator[Edges]:
    """Yield all pairs of items of pairs of lists in chunks."""
    owner, flat = expand_items(preds, i)
    widths = refs.lengths[j][owner]
    ends = np.cumsum(widths)
    first = 0
    while first < len(owner):
        limit = MAX_CELLS + (ends[first - 1] if first else 0)
        last = max(int(np.searchsorted(ends, limit, side="right")), first + 1)
        rows = np.repeat(np.arange(first, last), widths[first:last])
        pair = owner[rows]
        position = np.arange(len(rows)) - (ends[rows] - widths[rows] - (ends[first] - widths[first]))
        yield Edges(
            pair=pair,
            pred_position=flat[rows] - preds.starts[i[pair]],
            ref_position=position,
            pred=preds.items[flat[rows]],
            ref=refs.items[refs.starts[j[pair]] + position],
            similarity=np.zeros(len(rows)),
        )
        first = last


def _cost(slot: Slot) -> int:
    if not isinstance(slot.node, Leaf):
        return 2
    return 0 if slot.comparator.is_equality else 1 if slot.comparator.name != "from_func" else 3
