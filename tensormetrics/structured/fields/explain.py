"""Alignment of one document: the compared values and the errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from ..types.tree import FreeKeys, Items, Leaf, Union
from ..types.values import object_of
from .documents import DocumentScorer, ScoredDocuments
from .engine.compare import CORRECT, INVENTED, MISSED, TOLERANCE, WRONG, Comparison
from .engine.encode import ABSENT, INVALID_PARENT, Column
from .engine.faults import type_name
from .engine.matching import Edges, best_matching
from .engine.recursion import Steps, run
from .engine.slots import Edge, Slot, join_path
from .page import explanation_html, explanation_page
from .reading import Reading

MAX_TEXT = 60  # characters of a value that are shown
EXCERPT = 80  # characters around the position of a JSON error

Status = Literal["correct", "wrong", "invalid", "missed", "invented", "near miss", ""]


class AlignedValues(NamedTuple):
    """Row of an explanation.

    Attributes:
        depth: Levels below the document.
        name: Key, position or pair of positions, the position in the reference first.
        prediction_path, reference_path: Paths of the values; None for a missing value.
        prediction, reference: The values; None for a missing value, an object or a list.
        status: Category in which the row is counted; "" for an object or a pair of items that is not counted.
        similarity: In [0, 1]; None if it is undefined.
        note: The expected type, or the threshold that is not reached.
    """

    depth: int
    name: str
    prediction_path: str | None
    reference_path: str | None
    prediction: Any = None
    reference: Any = None
    status: Status = ""
    similarity: float | None = None
    note: str = ""

    @property
    def texts(self) -> tuple[str, str]:
        """Both values as JSON, shortened around the first difference."""
        texts = [
            "" if path is None or value is None else _json(value)
            for path, value in ((self.prediction_path, self.prediction), (self.reference_path, self.reference))
        ]
        first = next((n for n, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), 0) if all(texts) else 0
        return _cut(texts[0], first), _cut(texts[1], first)

    @property
    def status_text(self) -> str:
        """Status as text, with the similarity if it is informative."""
        parts: list[str] = [] if self.status in ("", "correct") else [self.status]
        if self.similarity is not None and (self.status in ("", "near miss") or 0 < self.similarity < 1):
            parts.append(f"{self.similarity:.2f}")
        return " ".join([*parts, *([self.note] if self.note else [])])


@dataclass(frozen=True)
class Explanation:
    """Alignment of a prediction with its reference: `print` shows it as text.

    Attributes:
        id: Id of the document.
        similarity: Similarity of the document, in [0, 1].
        counts: Numbers of correct, wrong, missed and invented scalars.
        reading: Result of reading the answer.
        rows: All values; correct ones are folded in the output.
        excerpt: The part of an unreadable answer that is no JSON.
    """

    id: Any
    similarity: float
    counts: dict[str, int]
    reading: Reading
    rows: list[AlignedValues]
    excerpt: str = ""

    def shown_rows(self, all: bool = False) -> list[AlignedValues]:
        """Return the rows that are not correct, with the objects and items that contain them.

        Args:
            all: Return all rows.
        """
        if all:
            return self.rows
        shown: list[AlignedValues] = []
        depth = -1
        for row in reversed(self.rows):  # a row precedes the rows of its parts
            is_error = row.status not in ("", "correct")
            if is_error or row.depth < depth:
                shown.append(row)
                depth = row.depth
        return shown[::-1]

    def to_text(self, all: bool = False) -> str:
        """Return aligned columns of text.

        Args:
            all: Also show correct rows.
        """
        rows = self.shown_rows(all)
        cells = [("path", "prediction", "reference", "")]
        for row in rows:
            indent = "  " * row.depth
            cells.append((f"{indent}{row.name}", *row.texts, row.status_text))
        widths = [max(len(cell[n]) for cell in cells) for n in range(3)]
        lines = [self.title()]
        if self.excerpt:
            lines.append(f"  {self.excerpt}")
        if rows:
            lines += [
                "  ".join([*(text.ljust(width) for text, width in zip(cell, widths, strict=False)), cell[3]]).rstrip()
                for cell in cells
            ]
        folded = sum(row.status == "correct" for row in self.rows) - sum(row.status == "correct" for row in rows)
        if folded:
            lines.append(f"{folded} correct values folded")
        return "\n".join(lines)

    def title(self) -> str:
        """Return the id, the similarity and the errors as one line."""
        errors = ", ".join(f"{count} {name}" for name, count in self.counts.items() if count and name != "correct")
        reason = f": {self.reading.reason}" if self.reading.reason else ""
        return (
            f"{self.id}   similarity {self.similarity:.2f}   {errors or 'no errors'}   read: {self.reading.how}{reason}"
        )

    __str__ = __repr__ = to_text

    def to_html(self) -> str:
        """Return a self-contained HTML page."""
        return explanation_page(self)

    def _repr_html_(self) -> str:
        return explanation_html(self)


def explain(scorer: DocumentScorer, prediction: Any, reference: Any, id: Any = 0) -> Explanation:
    """Align a prediction with its reference."""
    reading = scorer.read(prediction)
    scored = scorer.score([prediction], [reference], [id], keeps_all=True)
    leaves = [n for n, is_leaf in enumerate(scorer.plan.rows.is_leaf) if is_leaf]
    counts = scored.counts.counts[0][leaves].sum(0)
    names = {"correct": CORRECT, "wrong": WRONG, "missed": MISSED, "invented": INVENTED}
    return Explanation(
        id=id,
        similarity=float(scored.similarity[0]),
        counts={name: int(counts[n]) for name, n in names.items()},
        reading=reading,
        rows=_Alignment(scored).rows,
        excerpt=_excerpt(prediction, reading),
    )


class _Alignment:
    """Traversal of the compared values of one document, which collects `rows`."""

    def __init__(self, scored: ScoredDocuments) -> None:
        self.comparison: Comparison = scored.comparison
        self.preds, self.refs = self.comparison.preds, self.comparison.refs
        self.rows: list[AlignedValues] = []
        root = self.comparison.plan.root
        i, j = int(self.preds.roots[0]), int(self.refs.roots[0])
        if not isinstance(root.slot.node, Leaf) or (i, j) != (ABSENT, ABSENT):
            run(self._visit(root.slot, i, j, ("", ""), "@" if isinstance(root.slot.node, Leaf) else "", 0))

    def _columns(self, slot: Slot) -> tuple[Column, Column]:
        return self.preds.columns[slot.index], self.refs.columns[slot.index]

    def _visit(self, slot: Slot, i: int, j: int, paths: tuple[str, str], name: str, depth: int) -> Steps[None]:
        """Add the row of a pair of values, if it has a name, then those of its parts; ABSENT is a missing value."""
        if i in (ABSENT, INVALID_PARENT) and j == ABSENT:
            return
        if isinstance(slot.node, Union):
            preds, refs = self._columns(slot)
            case = max(int(preds.cases[i] if j == ABSENT else refs.cases[j]), 0)
            i, j = int(preds.children[case][i]), int(refs.children[case][j])
            yield self._visit(slot.edges[case].slot, i, j, paths, name, depth)
            return
        preds, _ = self._columns(slot)
        if isinstance(slot.node, Leaf):
            if j != ABSENT or preds.content[i] or preds.invalid[i]:
                self._add_leaf(slot, i, j, paths, name, depth)
            return
        is_invalid = bool(preds.invalid[i])
        if name or is_invalid:
            self.rows.append(self._row(slot, i, j, paths, name or "@", depth, "invalid" if is_invalid else ""))
            depth += 1
        if isinstance(slot.node, Items):
            yield self._items(slot, i, j, paths, depth)
        elif isinstance(slot.node, FreeKeys):
            yield self._free_keys(slot, i, j, paths, depth)
        else:
            yield self._parts(slot, i, j, paths, depth)

    def _row(
        self, slot: Slot, i: int, j: int, paths: tuple[str, str], name: str, depth: int, status: Status
    ) -> AlignedValues:
        preds, refs = self._columns(slot)
        shows = isinstance(slot.node, Leaf) or status == "invalid"
        return AlignedValues(
            depth,
            name,
            None if i in (ABSENT, INVALID_PARENT) else paths[0],
            None if j == ABSENT else paths[1],
            preds.values[i] if shows and i >= 0 else None,
            refs.values[j] if isinstance(slot.node, Leaf) and j >= 0 else None,
            status,
            note=f"wanted {type_name(slot)}" if status == "invalid" else "",
        )

    def _add_leaf(self, slot: Slot, i: int, j: int, paths: tuple[str, str], name: str, depth: int) -> None:
        preds, refs = self._columns(slot)
        similarity = None
        if preds.codes[i] >= 0 and refs.codes[j] >= 0:
            similarity = self._similarity(slot, i, j)
        if preds.invalid[i]:
            status: Status = "invalid"
        elif j == ABSENT:
            status = "invented"
        elif i == ABSENT:
            status = "missed"
        else:
            is_correct = similarity is not None and similarity >= slot.comparator.threshold - TOLERANCE
            status = "correct" if is_correct else "wrong"
        row = self._row(slot, i, j, paths, name, depth, status)
        self.rows.append(row._replace(similarity=similarity))

    def _similarity(self, slot: Slot, i: int, j: int) -> float:
        keys = self.comparison.tables[slot.index].keys
        preds, refs = self._columns(slot)
        pair = preds.codes[[i]], refs.codes[[j]]
        return float(slot.comparator.pair_similarities(keys, *pair, answers=self.comparison.answers)[0])

    def _parts(self, slot: Slot, i: int, j: int, paths: tuple[str, str], depth: int) -> Steps[None]:
        preds, refs = self._columns(slot)
        for n, edge in enumerate(slot.edges):
            pred, ref = int(preds.children[n][i]), int(refs.children[n][j])
            if self.comparison.plan.options.unlabelled and edge.field is not None and not refs.labelled[n][j]:
                continue
            if edge is slot.other_keys:
                yield self._visit(edge.slot, pred, ref, paths, "", depth)
                continue
            name = _name(edge)
            below = (paths[0] + name, paths[1] + name) if name[0] == "[" else tuple(join_path(p, name) for p in paths)
            if edge.field is not None:
                below = join_path(paths[0], edge.field.name), join_path(paths[1], edge.field.name)
            yield self._visit(edge.slot, pred, ref, (below[0], below[1]), name, depth)
        if slot.extra_row >= 0 and preds.num_extra[i]:
            self.rows.append(
                AlignedValues(depth, "(extra)", paths[0], None, status="invented", note=self._extra(slot, i))
            )

    def _extra(self, slot: Slot, i: int) -> str:
        value = object_of(self._columns(slot)[0].values[i]) or {}
        return ", ".join(str(key) for key in value if key not in slot.known_keys)[:MAX_TEXT]

    def _free_keys(self, slot: Slot, i: int, j: int, paths: tuple[str, str], depth: int) -> Steps[None]:
        (edge,) = slot.edges
        names = list(self.comparison.tables[slot.index].codes)
        items = []
        for column, row in zip(self._columns(slot), (i, j), strict=True):
            part = slice(int(column.starts[row]), int(column.starts[row] + column.lengths[row]))
            items.append(
                {names[k]: int(item) for k, item in zip(column.item_keys[part], column.items[part], strict=True)}
            )
        for key in dict.fromkeys([*items[1], *items[0]]):
            below = join_path(paths[0], key), join_path(paths[1], key)
            yield self._visit(edge.slot, items[0].get(key, ABSENT), items[1].get(key, ABSENT), below, key, depth)

    def _items(self, slot: Slot, i: int, j: int, paths: tuple[str, str], depth: int) -> Steps[None]:
        (edge,) = slot.edges
        preds, refs = self._columns(slot)
        matched = yield self.comparison.match_items(slot, np.array([i]), np.array([j]))
        near = yield self._near_misses(slot, i, j, matched)
        partners = {int(b): (int(a), float(s), False) for a, b, s in _positions(matched)}
        partners |= {int(b): (int(a), float(s), True) for a, b, s in _positions(near)}
        used = {a for a, _, _ in partners.values()}
        pred_rows, ref_rows = (
            column.items[int(column.starts[row]) : int(column.starts[row] + column.lengths[row])]
            for column, row in ((preds, i), (refs, j))
        )
        for position, ref in enumerate(map(int, ref_rows)):
            ref_path = f"{paths[1]}[{position}]"
            if position not in partners:
                yield self._item(edge.slot, ABSENT, ref, (paths[0], ref_path), f"[{position}]", depth, "missed")
                continue
            other, similarity, is_near = partners[position]
            pred, below = int(pred_rows[other]), (f"{paths[0]}[{other}]", ref_path)
            name = f"[{position}] {'~' if is_near else '='} [{other}]"
            if is_near:
                self._add_near_miss(slot, pred, ref, below, name, depth, similarity)
            else:
                yield self._item(edge.slot, pred, ref, below, name, depth, "correct", similarity)
        for position, pred in enumerate(map(int, pred_rows)):
            if position not in used:
                below = f"{paths[0]}[{position}]", paths[1]
                yield self._item(edge.slot, pred, ABSENT, below, f"+ [{position}]", depth, "invented")

    def _item(
        self,
        slot: Slot,
        i: int,
        j: int,
        paths: tuple[str, str],
        name: str,
        depth: int,
        status: Status,
        similarity: float | None = None,
    ) -> Steps[None]:
        start = len(self.rows)
        yield self._visit(slot, i, j, paths, name, depth)
        if len(self.rows) > start and self.rows[start].status != "invalid":
            self.rows[start] = self.rows[start]._replace(status=status, similarity=similarity)

    def _near_misses(self, slot: Slot, i: int, j: int, matched: Edges) -> Steps[Edges]:
        """Match the unmatched items of both lists by their similarities, regardless of the threshold."""
        (edge,) = slot.edges
        preds, refs = self._columns(slot)
        used = set(matched.pred_position.tolist()), set(matched.ref_position.tolist())
        remaining = [
            [n for n in range(int(column.lengths[row])) if n not in excluded]
            for column, row, excluded in ((preds, i, used[0]), (refs, j, used[1]))
        ]
        a, b = (
            grid.ravel()
            for grid in np.meshgrid(*(np.array(positions, dtype=np.int64) for positions in remaining), indexing="ij")
        )
        pred, ref = preds.items[preds.starts[i] + a], refs.items[refs.starts[j] + b]
        self.comparison.keeps_all_credit = True
        similarity = yield self.comparison.visit(edge.slot, pred, ref)
        self.comparison.keeps_all_credit = False
        edges = Edges(np.zeros(len(a), dtype=np.int64), a, b, pred, ref, similarity)
        edges = edges.take((similarity > 0) & (self.comparison.has_content(edge.slot, pred, ref)))
        sizes = [np.array([len(positions)]) for positions in remaining]
        return edges.take(best_matching(edges, edges.similarity, sizes[0], sizes[1]))

    def _add_near_miss(
        self, slot: Slot, i: int, j: int, paths: tuple[str, str], name: str, depth: int, similarity: float
    ) -> None:
        (edge,) = slot.edges
        is_leaf = isinstance(edge.slot.node, Leaf)
        threshold = edge.slot.comparator.threshold if is_leaf else slot.match
        preds, refs = self._columns(edge.slot)
        pred, ref = (None if row < 0 else column.values[row] for column, row in ((preds, i), (refs, j)))
        note = f"(threshold {threshold:g}): counted as missed and invented"
        self.rows.append(AlignedValues(depth, name, *paths, pred, ref, "near miss", similarity, note))


def _positions(edges: Edges) -> Iterator[tuple[Any, Any, Any]]:
    return zip(edges.pred_position, edges.ref_position, edges.similarity, strict=True)


def _name(edge: Edge) -> str:
    return f"[{edge.position}]" if edge.field is None else edge.field.name


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _cut(text: str, first: int) -> str:
    """Return at most MAX_TEXT characters around a position."""
    if len(text) <= MAX_TEXT:
        return text
    start = max(min(first - MAX_TEXT // 3, len(text) - MAX_TEXT), 0)
    part = text[start : start + MAX_TEXT]
    return f"{'…' if start else ''}{part}{'…' if start + MAX_TEXT < len(text) else ''}"


def _excerpt(prediction: Any, reading: Reading) -> str:
    if reading.how != "unreadable" or not isinstance(prediction, str):
        return ""
    text = prediction.removeprefix("\ufeff").strip(" \t\n\r")
    start = max((reading.position or 0) - EXCERPT // 2, 0)
    return repr(text[start : start + EXCERPT])
