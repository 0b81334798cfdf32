"""The slots of a schema, one for each node at each path, with the comparison and the row of the report.

Cases of a union share the rows of their slot. A recursive type has the slot of its first occurrence, so that slots may
form a cycle.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from ....core.arguments import checks
from ...comparators.annotations import annotation_of_text, annotations_of_keywords
from ...comparators.base import Annotation, Comparator, code_table
from ...comparators.leaves import exact
from ...types.class_tree import annotate
from ...types.tree import Field, FreeKeys, ItemList, Leaf, NodeScoring, Record, Reference, Schema, Type, Union
from ...types.values import KINDS, LeafReader, json_kind, leaf_reader
from ..reading import Extract
from .recursion import Steps, run

MAX_ROWS = 10_000  # of mutually recursive types, whose paths multiply
SPECIAL = frozenset('.[]"@*')
EXTRA = "(extra)"


@dataclass(frozen=True)
class DocumentOptions:
    """Options of `FieldScores` and `tensormetrics json`, as `evaluate` describes them."""

    extract: Extract = "lenient"
    on_invalid: str = "wrong"
    extra: str | None = None
    numbers_in_strings: bool = False
    null_strings: Collection[str] = ()
    unlabelled: bool = False
    defaults: bool = False
    match: float = 0.5
    fields: Mapping[str, Any] | None = None
    validate: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        checks.check_choice("extract", self.extract, get_args(Extract))
        checks.check_choice("on_invalid", self.on_invalid, ("wrong", "raise", "skip"))
        checks.check_choice("extra", self.extra, (None, "ignore", "invented"))
        checks.check_number("match", self.match, "a number in [0, 1]", lambda value: 0 <= value <= 1)
        for name in ("numbers_in_strings", "unlabelled", "defaults"):
            checks.check_choice(name, getattr(self, name), (False, True))
        if isinstance(self.null_strings, str):
            raise TypeError(
                f"null_strings: got {self.null_strings!r}, wanted a list of strings; write [{self.null_strings!r}]"
            )
        if self.validate is not None and not callable(self.validate):
            raise TypeError(f"validate: got {self.validate!r:.60}, wanted a function of a document")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> DocumentOptions:
        """Create options from keyword arguments; raise a TypeError with the closest name for an unknown one."""
        names = list(inspect.signature(cls).parameters)
        for name in options:
            if name not in names:
                wanted = f"one of {', '.join(names)}{checks.perhaps(name, names)}"
                raise TypeError(f"got an unknown option {name!r}, wanted {wanted}")
        return cls(**options)


@dataclass(eq=False)
class Edge:
    """Part of a record or tuple, or the items or values of a collection.

    Attributes:
        keys: The alternative keys of the part in an object, or its position in a tuple; empty for items and other keys.
        suffix: Text of the part of a record in paths.
    """

    slot: Slot
    nullable: bool
    weight: float = 1.0
    keys: tuple[str | int, ...] = ()
    suffix: str = ""
    field: Field | None = None


@dataclass(eq=False)
class Slot:
    """Node of the schema at one path.

    Attributes:
        row: Row of a scalar, or of the items of a list; else -1.
        extra_row: Row of extra keys of an object.
        path_index: Index of the path among all paths, for invalid values.
        is_item: Whether a scalar is an item of a list, whose matching is counted with the list.
        is_shared: Whether a recursive type refers to the slot, so that a value may occur there several times.
    """

    node: Type
    path: str
    index: int
    path_index: int
    row: int = -1
    extra_row: int = -1
    edges: list[Edge] = field(default_factory=list)
    comparator: Comparator = field(default_factory=exact)
    read: LeafReader | None = None
    is_item: bool = False
    is_shared: bool = False
    match: float = 0.5
    by: Edge | None = None
    known_keys: frozenset[str | int] = frozenset()
    other_keys: Edge | None = None  # of a record: the values of its other keys

    @property
    def is_leaf(self) -> bool:
        """True if all values are scalars."""
        return isinstance(self.node, Leaf) or isinstance(self.node, Union) and all(e.slot.is_leaf for e in self.edges)


@dataclass(eq=False)
class CompiledSchema:
    """Schema with options, compiled for encoding and comparison.

    Attributes:
        paths: All paths at which a value may be invalid; the root is "@".
        rows: The paths of the rows of the report.
        is_leaf: Whether each row is of scalars.
    """

    schema: Schema
    root: Edge
    slots: list[Slot]
    paths: list[str]
    rows: list[str]
    is_leaf: list[bool]
    options: DocumentOptions
    null_strings: frozenset[str]


def compile_schema(schema: Schema, options: DocumentOptions | None = None) -> CompiledSchema:
    """Compile a schema in which every type is known.

    Raises:
        ValueError: If a path of ``fields`` is unknown, or an annotation does not fit its slot.
    """
    options = options or DocumentOptions()
    builder = _SlotBuilder(schema, options, annotations_by_path(options.fields or {}))
    root = _require_edge(run(builder.edge(schema.root, "")), "")
    for path in builder.annotations:
        if path not in builder.used:
            hint = checks.perhaps(path, builder.path_indices)
            raise ValueError(f"fields: got {path!r}, wanted a path of the schema{hint}")
    null_strings = frozenset(options.null_strings)
    paths, rows = list(builder.path_indices), list(builder.row_indices)
    return CompiledSchema(schema, root, builder.slots, paths, rows, builder.is_leaf, options, null_strings)


def annotations_by_path(fields: Mapping[str, Any]) -> dict[str, list[Annotation]]:
    """Read annotations by path: objects, lists of them, keywords of JSON Schemas, or text of the command line."""
    result = {}
    for path, spec in fields.items():
        if isinstance(spec, str):
            annotations = [annotation_of_text(spec, f"fields[{path!r}]")]
        elif isinstance(spec, Mapping):
            annotations = annotations_of_keywords(spec, f"fields[{path!r}]")
        else:
            annotations = [spec] if isinstance(spec, Annotation) else list(spec)
            if wrong := [annotation for annotation in annotations if not isinstance(annotation, Annotation)]:
                raise TypeError(f"fields[{path!r}]: got {wrong[0]!r:.60}, wanted an annotation such as similar(0.9)")
        result[path.replace("[*]", "[]")] = annotations
    return result


def _require_edge(edge: Edge | None, path: str) -> Edge:
    if edge is None:
        raise ValueError(f"{path or '@'}: got ignore() on the items, wanted it on the collection")
    return edge


def suffix_of(name: str) -> str:
    """Return the text of a key in paths; names with a special character are quoted."""
    if not name or SPECIAL & set(name) or name == EXTRA:
        escaped = name.replace("\\", "\\\\").replace('"', '\\"')
        return f'["{escaped}"]'
    return f".{name}"


@dataclass
class _SlotBuilder:
    schema: Schema
    options: DocumentOptions
    annotations: dict[str, list[Annotation]]
    slots: list[Slot] = field(default_factory=list)
    row_indices: dict[str, int] = field(default_factory=code_table)
    is_leaf: list[bool] = field(default_factory=list)  # of the rows
    path_indices: dict[str, int] = field(default_factory=code_table)
    used: set[str] = field(default_factory=set)
    open_references: dict[str, Slot] = field(default_factory=dict)

    def edge(
        self, node: Type, path: str, *, is_item: bool = False, comparator: Comparator | None = None
    ) -> Steps[Edge | None]:
        """Compile the part at a path; None if it is ignored."""
        node, nullable, scoring, names = self._resolve(node, path)
        if scoring.ignore:
            return None
        edge = Edge(None, nullable, scoring.weight)  # type: ignore[arg-type]
        for name in names:
            if name in self.open_references:
                edge.slot = self.open_references[name]
                edge.slot.is_shared = True
                return edge
        slot = edge.slot = Slot(node, path, len(self.slots), self.path_indices[path or "@"])
        self.slots.append(slot)
        self.open_references |= dict.fromkeys(names, slot)
        comparator = scoring.comparator or comparator
        if isinstance(node, Leaf):
            slot.read, slot.is_item = leaf_reader(node, self.options.numbers_in_strings), is_item
            slot.comparator = comparator or slot.comparator
            slot.row = self._row(path or "@", is_leaf=True)
        elif isinstance(node, Union):
            for case in node.cases:
                case_edge = yield self.edge(case, path, is_item=is_item, comparator=comparator)
                slot.edges += [] if case_edge is None else [case_edge]
        elif comparator is not None:
            raise ValueError(f"{path or '@'}: got {comparator}, wanted it on a scalar; write it on the items or fields")
        elif isinstance(node, Record):
            yield self._record(slot, node, path)
        elif isinstance(node, ItemList):
            yield self._items(slot, node, path)
        elif isinstance(node, FreeKeys):
            value = yield self.edge(node.value, f"{path}.*" if path else "*")
            slot.edges = [_require_edge(value, path)]
        else:
            raise ValueError(f"{path or '@'}: got any value, wanted a type; write FieldScores.infer(references)")
        for name in names:
            del self.open_references[name]
        return edge

    def _resolve(self, node: Type, path: str) -> tuple[Type, bool, NodeScoring, list[str]]:
        """Resolve a node, and merge the annotations of all references and of the path."""
        names, nullable, scoring = [], False, NodeScoring()
        while True:
            nullable = nullable or node.nullable
            scoring = NodeScoring(
                scoring.comparator or node.scoring.comparator,
                scoring.weight if scoring.weight != 1 else node.scoring.weight,
                scoring.ignore or node.scoring.ignore,
            )
            if not isinstance(node, Reference):
                break
            names.append(node.name)
            node = self.schema.definitions[node.name]
        if path in self.annotations or not path and "@" in self.annotations:
            annotations = self.annotations[path or "@"]
            self.used.add(path or "@")
            if any(isinstance(annotation, Comparator) for annotation in annotations):
                scoring = dataclasses.replace(scoring, comparator=None)
            node = annotate(dataclasses.replace(node, scoring=scoring), annotations, f"fields[{path or '@'!r}]")
            scoring = node.scoring
        return node, nullable, scoring, names

    def _row(self, path: str, is_leaf: bool) -> int:
        row = self.row_indices[path]
        if row == len(self.is_leaf):
            self.is_leaf.append(is_leaf)
            if row >= MAX_ROWS:
                raise ValueError(f"schema: got more than {MAX_ROWS} paths; write ignore() on a recursive field")
        return row

    def _record(self, slot: Slot, node: Record, path: str) -> Steps[None]:
        slot.known_keys = frozenset(
            itertools.chain.from_iterable(record_field.keys or (record_field.name,) for record_field in node.fields)
        )
        for record_field in node.fields:
            suffix = record_field.name if node.is_tuple else suffix_of(record_field.name)
            part = yield self.edge(record_field.type, (path + suffix).removeprefix("."))
            if part is not None:
                part.keys, part.field, part.suffix = record_field.keys or (record_field.name,), record_field, suffix
                slot.edges.append(part)
        if node.extra is not None:
            slot.other_keys = _require_edge((yield self.edge(FreeKeys(node.extra), path)), path)
            slot.edges.append(slot.other_keys)
        elif self.options.extra == "invented" and not node.is_tuple:
            slot.extra_row = self._row(f"{path}.{EXTRA}" if path else EXTRA, is_leaf=True)

    def _items(self, slot: Slot, node: ItemList, path: str) -> Steps[None]:
        slot.match = self.options.match if node.match is None else node.match
        slot.row = self._row(f"{path}[]", is_leaf=self._is_scalar(node.item))
        item = _require_edge((yield self.edge(node.item, f"{path}[]", is_item=True)), path)
        slot.edges = [item]
        if node.by is not None:
            keys = [edge for edge in item.slot.edges if node.by in edge.keys]
            if not keys or not isinstance(keys[0].slot.node, Leaf):
                raise ValueError(f"{path or '@'}: got by({node.by!r}), wanted the name of a scalar field of the items")
            slot.by = keys[0]

    def _is_scalar(self, node: Type) -> bool:
        node = self.schema.resolved(node)
        return isinstance(node, Leaf) or isinstance(node, Union) and all(map(self._is_scalar, node.cases))


def root_kinds(plan: CompiledSchema) -> set[str]:
    """Return the kinds of JSON values that a document may have."""
    kinds = _kinds(plan.root.slot, plan.options.numbers_in_strings)
    return kinds | {"null"} if plan.root.nullable else kinds


def _kinds(slot: Slot, numbers_in_strings: bool) -> set[str]:
    node = slot.node
    if isinstance(node, Union):
        return set().union(*(_kinds(edge.slot, numbers_in_strings) for edge in slot.edges))
    if isinstance(node, ItemList) or isinstance(node, Record) and node.is_tuple:
        return {"array"}
    if not isinstance(node, Leaf):
        return {"object"}
    if node.kind == "enum":
        return {json_kind(value) for value in node.values}
    kinds = set(KINDS[node.kind].json_kinds if node.kind in KINDS else {"string"})
    return kinds | {"string"} if numbers_in_strings and node.kind in ("integer", "number") else kinds
