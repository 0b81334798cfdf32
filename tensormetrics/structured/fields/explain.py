"""Alignment of one document: the compared values and the errors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, NamedTuple

import numpy as np

from ...core.results.text_tables import rendered
from ..types.tree import FreeKeys, ItemList, Leaf, Record, Union
from ..types.values import object_of
from .documents import DocumentScorer, ScoredDocuments
from .engine.compare import COUNTS, TOLERANCE, DocumentComparison, all_pairs
from .engine.encode import ABSENT, INVALID_PARENT
from .engine.faults import type_name
from .engine.matching import Edges, best_matching
from .engine.recursion import Steps, run
from .engine.slots import Slot, suffix_of
from .page import explanation_html, page
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
            "" if path is None or value is None else json.dumps(value, ensure_ascii=False, default=str)
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
        cells = [("  " * row.depth + row.name, *row.texts, row.status_text) for row in rows]
        lines = [self.title(), *([f"  {self.excerpt}"] if self.excerpt else [])]
        if rows:
            lines.append(rendered("plain", ("path", "prediction", "reference", ""), cells))
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
        return page(f"Document {self.id}", [f"<h1>{escape(self.title())}</h1>", explanation_html(self)])

    def _repr_html_(self) -> str:
        return explanation_html(self)


def explain(scorer: DocumentScorer, prediction: Any, reference: Any, id: Any = 0) -> Explanation:
    """Align a prediction with its reference."""
    scored = scorer.score([prediction], [reference], [id], keeps_all=True)
    counts = scored.comparison.counts[0][scorer.plan.is_leaf].sum(0)
    return Explanation(
        id=id,
        similarity=float(scored.similarity[0]),
        counts=dict(zip(COUNTS, counts.tolist(), strict=True)),
        reading=scored.readings[0],
        rows=_Alignment(scored).rows,
        excerpt=_excerpt(prediction, scored.readings[0]),
    )


class _Alignment:
    """Traversal of the compared values of one document, which collects `rows`."""

    def __init__(self, scored: ScoredDocuments) -> None:
        self.comparison: DocumentComparison = scored.comparison
        self.preds, self.refs = self.comparison.preds, self.comparison.refs
        self.rows: list[AlignedValues] = []
        root = self.comparison.plan.root
        i, j = int(self.preds.roots[0]), int(self.refs.roots[0])
        if not isinstance(root.slot.node, Leaf) or (i, j) != (ABSENT, ABSENT):
            run(self._visit(root.slot, i, j, ("", ""), "@" if isinstance(root.slot.node, Leaf) else "", 0))

    def _visit(self, slot: Slot, i: int, j: int, paths: tuple[str, str], name: str, depth: int) -> Steps[None]:
        """Add the row of a pair of values, if it has a name, then those of its parts; ABSENT is a missing value."""
        if i in (ABSENT, INVALID_PARENT) and j == ABSENT:
            return
        if isinstance(slot.node, Union):
            preds, refs = self.comparison.columns_of(slot)
            case = max(int(preds.cases[i] if j == ABSENT else refs.cases[j]), 0)
            i, j = int(preds.children[case][i]), int(refs.children[case][j])
            yield self._visit(slot.edges[case].slot, i, j, paths, name, depth)
            return
        preds, _ = self.comparison.columns_of(slot)
        if isinstance(slot.node, Leaf):
            if j != ABSENT or preds.content[i] or preds.invalid[i]:
                self._add_leaf(slot, i, j, paths, name, depth)
            return
        is_invalid = bool(preds.invalid[i])
        if name or is_invalid:
            self._add(slot, i, j, paths, name or "@", depth, "invalid" if is_invalid else "")
            depth += 1
        visitors = {ItemList: self._items, FreeKeys: self._free_keys, Record: self._parts}
        yield visitors[type(slot.node)](slot, i, j, paths, depth)

    def _add(
        self,
        slot: Slot,
        i: int,
        j: int,
        paths: tuple[str, str],
        name: str,
        depth: int,
        status: Status,
        similarity: float | None = None,
        note: str = "",
    ) -> None:
        preds, refs = self.comparison.columns_of(slot)
        has_values = isinstance(slot.node, Leaf) or status == "near miss"
        row = AlignedValues(
            depth,
            name,
            None if i in (ABSENT, INVALID_PARENT) else paths[0],
            None if j == ABSENT else paths[1],
            preds.values[i] if (has_values or status == "invalid") and i >= 0 else None,
            refs.values[j] if has_values and j >= 0 else None,
            status,
            similarity,
            f"wanted {type_name(slot)}" if status == "invalid" else note,
        )
        self.rows.append(row)

    def _add_leaf(self, slot: Slot, i: int, j: int, paths: tuple[str, str], name: str, depth: int) -> None:
        preds, refs = self.comparison.columns_of(slot)
        similarity = None
        if preds.codes[i] >= 0 and refs.codes[j] >= 0:
            table, pair = self.comparison.tables[slot.index], (preds.codes[[i]], refs.codes[[j]])
            similarity = float(slot.comparator.pair_similarities(table, *pair, answers=self.comparison.answers)[0])
        if preds.invalid[i]:
            status: Status = "invalid"
        elif j == ABSENT:
            status = "invented"
        elif i == ABSENT:
            status = "missed"
        else:
            is_correct = similarity is not None and similarity >= slot.comparator.threshold - TOLERANCE
            status = "correct" if is_correct else "wrong"
        self._add(slot, i, j, paths, name, depth, status, similarity)

    def _parts(self, slot: Slot, i: int, j: int, paths: tuple[str, str], depth: int) -> Steps[None]:
        preds, refs = self.comparison.columns_of(slot)
        for n, edge in enumerate(slot.edges):
            pred, ref = int(preds.children[n][i]), int(refs.children[n][j])
            if self.comparison.plan.options.unlabelled and not refs.labelled[n][j]:
                continue
            name = "" if edge.field is None else edge.field.name  # of other keys, which are free keys
            yield self._visit(edge.slot, pred, ref, _below(paths, edge.suffix), name, depth)
        if slot.extra_row >= 0 and preds.num_extra[i]:
            extra = ", ".join(str(key) for key in object_of(preds.values[i]) or {} if key not in slot.known_keys)
            self.rows.append(AlignedValues(depth, "(extra)", paths[0], None, status="invented", note=extra[:MAX_TEXT]))

    def _free_keys(self, slot: Slot, i: int, j: int, paths: tuple[str, str], depth: int) -> Steps[None]:
        (edge,) = slot.edges
        names = list(self.comparison.tables[slot.index])
        columns = zip(self.comparison.columns_of(slot), (i, j), strict=True)
        parts = [(column.item_keys[column.part(row)], column.items[column.part(row)]) for column, row in columns]
        pred, ref = ({names[k]: int(item) for k, item in zip(*part, strict=True)} for part in parts)
        for key in dict.fromkeys([*ref, *pred]):
            rows = pred.get(key, ABSENT), ref.get(key, ABSENT)
            yield self._visit(edge.slot, *rows, _below(paths, suffix_of(key)), key, depth)

    def _items(self, slot: Slot, i: int, j: int, paths: tuple[str, str], depth: int) -> Steps[None]:
        (edge,) = slot.edges
        preds, refs = self.comparison.columns_of(slot)
        matched = self.comparison.matched_items(slot, i, j)
        near = yield self._near_misses(slot, i, j, matched)
        partners = {}
        for edges in (matched, near):
            columns = (edges.pred_position, edges.ref_position, edges.similarity)
            for a, b, similarity in zip(*(column.tolist() for column in columns), strict=True):
                partners[b] = a, similarity, edges is near
        used = {a for a, _, _ in partners.values()}
        pred_rows, ref_rows = preds.items[preds.part(i)].tolist(), refs.items[refs.part(j)].tolist()
        for position, ref in enumerate(ref_rows):
            ref_path = f"{paths[1]}[{position}]"
            if position not in partners:
                visit = self._visit(edge.slot, ABSENT, ref, (paths[0], ref_path), f"[{position}]", depth)
                yield self._item(visit, "missed")
                continue
            other, similarity, is_near = partners[position]
            pred, below = pred_rows[other], (f"{paths[0]}[{other}]", ref_path)
            if is_near:
                threshold = edge.slot.comparator.threshold if isinstance(edge.slot.node, Leaf) else slot.match
                name, note = f"[{position}] ~ [{other}]", f"(threshold {threshold:g}): counted as missed and invented"
                self._add(edge.slot, pred, ref, below, name, depth, "near miss", similarity, note)
            else:
                visit = self._visit(edge.slot, pred, ref, below, f"[{position}] = [{other}]", depth)
                yield self._item(visit, "correct", similarity)
        for position, pred in enumerate(pred_rows):
            if position not in used:
                below = f"{paths[0]}[{position}]", paths[1]
                visit = self._visit(edge.slot, pred, ABSENT, below, f"+ [{position}]", depth)
                yield self._item(visit, "invented")

    def _item(self, visit: Steps[None], status: Status, similarity: float | None = None) -> Steps[None]:
        """Visit an item, and set the status of its row."""
        start = len(self.rows)
        yield visit
        if len(self.rows) > start and self.rows[start].status != "invalid":
            self.rows[start] = self.rows[start]._replace(status=status, similarity=similarity)

    def _near_misses(self, slot: Slot, i: int, j: int, matched: Edges) -> Steps[Edges]:
        """Match the unmatched items of both lists by their similarities, regardless of the threshold."""
        (edge,) = slot.edges
        preds, refs = self.comparison.columns_of(slot)
        if len(matched.pair) == min(preds.lengths[i], refs.lengths[j]):
            return Edges.concatenate([])
        cells = Edges.concatenate([*all_pairs(preds, refs, np.array([i]), np.array([j]))])
        used = np.isin(cells.pred_position, matched.pred_position) | np.isin(cells.ref_position, matched.ref_position)
        cells = cells.take(~used)
        self.comparison.keeps_all_credit = True
        similarity = yield self.comparison.visit(edge.slot, cells.pred, cells.ref)
        self.comparison.keeps_all_credit = False
        has_content = self.comparison.has_content(edge.slot, cells.pred, cells.ref)
        edges = cells._replace(similarity=similarity).take((similarity > 0) & has_content)
        return edges.take(best_matching(edges, edges.similarity, preds.lengths[[i]], refs.lengths[[j]]))


def _below(paths: tuple[str, str], suffix: str) -> tuple[str, str]:
    return (paths[0] + suffix).removeprefix("."), (paths[1] + suffix).removeprefix(".")


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
