"""The plan of a metric: a tree of nodes, each of which encodes a column of objects and compares pairs of its rows.

A batch is encoded once: predictions and references are rows of one encoding, predictions first, and `split` is the
number of predictions. Objects are traversed column by column; all later steps work on tensors.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from itertools import compress, repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...tensors.normalizers import FScore, Jaccard, Normalizer, Precision, Recall, normalize, required_self_overlaps
from ..columns import Keys, LeafType, RowPath, check, check_no_nan, combine_keys

upper_bound_mode = ContextVar("bounding", default=False)  # if set, inexact nodes return an upper bound


@dataclass(frozen=True)
class Variable:
    """Name that has a meaning only within its structure, such as a variable of a graph."""

    name: str


class NeedsTensors(Exception):
    """Signal that values must be compared with tensors: they are too many, or the tensor path reports an error."""


class MatchedPart(NamedTuple):
    """A component of a pair of matched values: its path and row in both values, and its own node."""

    names: tuple[str | int, ...]  # appended to the path of the prediction
    ref_names: tuple[str | int, ...]
    node: "Node"
    rows: Any
    i: int
    j: int
    x: Any
    y: Any


class Node(ABC):
    """Similarity delta(x, y) of the values of one type.

    equality: the similarity is 0 or 1, and is an equivalence relation.
    dominated: delta(x, y) <= min(delta(x, x), delta(y, y)).
    inexact: the solver may return less than the optimum; see `upper_bound_mode`.
    has_variables: values hold variables outside of any collection. binds: they hold collections that bind variables.
    cost: factors of a product are evaluated in this order, on the remaining pairs.
    supports_scalar_path: a single pair of small values can be compared without tensors, which is faster: `read`, then
    `scalar_similarity` and `scalar_self_similarity` instead of `encode`, `similarity` and `self_similarity`. If the
    scalar path raises an error, the tensor path runs and reports it.
    """

    equality = False
    dominated = False
    inexact = False
    has_variables = False
    binds = False
    supports_scalar_path = False
    cost = 0

    def inherit_flags(self, nodes: Iterable["Node"]) -> None:
        """Set the flags that hold for a node as soon as they hold for one of its parts."""
        for name in ("inexact", "has_variables", "binds"):
            setattr(self, name, getattr(self, name) or any(getattr(node, name) for node in nodes))

    @abstractmethod
    def encode(self, values: Sequence[Any], split: int, where: RowPath, device: torch.device) -> Any: ...

    @abstractmethod
    def similarity(self, rows: Any, i: Tensor, j: Tensor) -> Tensor: ...  # i, j: (P,)  ->  (P,) float64

    def self_similarity(self, rows: Any, i: Tensor) -> Tensor:  # i: (P,)  ->  (P,) float64
        return self.similarity(rows, i, i)

    def similarities(self, rows: Any, x: Tensor, y: Tensor) -> Tensor:
        # x: (P, N)  y: (P, M)  ->  (P, N, M) float64, of all pairs of rows
        i, j = x[:, :, None].expand(*x.shape, y.shape[1]), y[:, None].expand(*x.shape, y.shape[1])
        return self.similarity(rows, i.flatten(), j.flatten()).view(i.shape)

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the operands of `scalar_similarity`; hashable where `equality` holds."""
        raise NotImplementedError

    def scalar_similarity(self, a: Any, b: Any) -> float:
        return float(len({a, b}) == 1)  # of an equality

    def scalar_self_similarity(self, a: Any) -> float:
        return 1.0 if self.equality else self.scalar_similarity(a, a)

    def key(self, rows: Any) -> Keys | None:
        """Return the keys of the rows: different keys imply similarity 0 and, if `equality` holds, equal keys 1."""
        return None

    def variables(self, rows: Any) -> list[Sequence[Variable | None]]:
        """Return the variable of each row for each position outside of collections that can hold one."""
        return []

    def parts(self, rows: Any, i: int, j: int, x: Any, y: Any) -> Iterator[MatchedPart]:
        """Return the matched components of row i, whose value is x, and row j, whose value is y."""
        return iter(())


class LeafNode(Node):
    """1 if x == y else 0. leaf_type: the type of the values; default any values that equal themselves."""

    equality = dominated = supports_scalar_path = True

    def __init__(self, leaf_type: LeafType | None = None) -> None:
        self.type = leaf_type

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        if self.type is not None:
            return self.type.read_column(values, str)
        check_no_nan(values, str)
        return values

    def encode(self, values: Sequence[Any], split: int, where: RowPath, device: torch.device) -> Keys:
        if self.type is None:
            check_no_nan(values, where)
        else:
            values = self.type.read_column(values, where)
        return Keys(values, where, device)

    def similarity(self, rows: Keys, i: Tensor, j: Tensor) -> Tensor:
        return (rows.ids[i] == rows.ids[j]).double()

    def key(self, rows: Keys) -> Keys:
        return rows


Fields = dict[tuple[str | int, ...], tuple[Callable[[Any], Any], Node]]  # component of the path -> its reader and node


class ProductRows(NamedTuple):
    key: Keys | None
    columns: list[Any]


class Product(Node):
    """Product over fields, 1 for no field.

    check: raises an error for values of another type.
    """

    def __init__(self, fields: Fields, check: Callable[[Sequence[Any], RowPath], None]) -> None:
        self.fields, self.check = fields, check
        self.nodes = [node for _, node in fields.values()]
        self.equality = all(node.equality for node in self.nodes)
        self.dominated = all(node.dominated for node in self.nodes)
        self.inherit_flags(self.nodes)
        self.cost = max((node.cost for node in self.nodes), default=0)
        unequal = [index for index, node in enumerate(self.nodes) if not node.equality]
        self.factors = sorted(unequal, key=lambda index: self.nodes[index].cost)  # in addition to the key
        self.supports_scalar_path = all(node.supports_scalar_path for node in self.nodes)

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        self.check(values, str)
        columns = [node.read(list(map(read, values))) for read, node in self.fields.values()]
        keys = [column for node, column in zip(self.nodes, columns, strict=True) if node.equality]
        rows = [*zip(*keys, strict=True)] if keys else [()] * len(values)
        if self.equality:
            return rows
        hash(tuple(rows))  # raises for an unhashable value even if it is not compared
        return [*zip(rows, *(columns[index] for index in self.factors), strict=True)]

    def scalar_similarity(self, a: Any, b: Any) -> float:
        if self.equality:
            return super().scalar_similarity(a, b)
        value = float(a[0] == b[0])
        for index, x, y in zip(self.factors, a[1:], b[1:], strict=True):
            if not value:
                break
            value *= self.nodes[index].scalar_similarity(x, y)
        return value

    def scalar_self_similarity(self, a: Any) -> float:
        if self.equality:
            return 1.0
        return math.prod(
            self.nodes[index].scalar_self_similarity(x) for index, x in zip(self.factors, a[1:], strict=True)
        )

    def encode(self, values: Sequence[Any], split: int, where: RowPath, device: torch.device) -> ProductRows:
        self.check(values, where)
        columns = [
            node.encode(list(map(read, values)), split, below(where, names), device)
            for names, (read, node) in self.fields.items()
        ]
        keys = [key for node, rows in zip(self.nodes, columns, strict=True) if (key := node.key(rows)) is not None]
        if not keys and not self.equality:
            return ProductRows(None, columns)
        return ProductRows(combine_keys(keys, len(values), where, device), columns)

    def similarity(self, rows: ProductRows, i: Tensor, j: Tensor) -> Tensor:
        value = None if rows.key is None else (rows.key.ids[i] == rows.key.ids[j]).double()
        for index in self.factors:
            node, column = self.nodes[index], rows.columns[index]
            if value is None:
                value = node.similarity(column, i, j)
            else:
                (left,) = value.nonzero(as_tuple=True)
                value = value.index_put((left,), value[left] * node.similarity(column, i[left], j[left]))
        assert value is not None  # a product without a key has a factor
        return value

    def self_similarity(self, rows: ProductRows, i: Tensor) -> Tensor:
        if self.equality:
            return torch.ones(len(i), dtype=torch.float64, device=i.device)
        return reduce(torch.mul, (self.nodes[index].self_similarity(rows.columns[index], i) for index in self.factors))

    def key(self, rows: ProductRows) -> Keys | None:
        return rows.key

    def variables(self, rows: ProductRows) -> list[Sequence[Variable | None]]:
        return [slot for node, column in zip(self.nodes, rows.columns, strict=True) for slot in node.variables(column)]

    def parts(self, rows: ProductRows, i: int, j: int, x: Any, y: Any) -> Iterator[MatchedPart]:
        for (names, (read, node)), column in zip(self.fields.items(), rows.columns, strict=True):
            yield MatchedPart(names, names, node, column, i, j, read(x), read(y))


class Choice(NamedTuple):
    case: Tensor  # (n,) int64
    case_row: Tensor  # (n,) int64: the row among the rows of its case
    columns: list[Any]
    key: Keys


class UnionNode(Node):
    """Similarity of the case if both values have the same case, else 0. choose: value -> case, None without a case."""

    def __init__(self, cases: Sequence[Node], choose: Callable[[Any], int | None], expected: str) -> None:
        self.cases, self.choose, self.expected = cases, choose, expected
        self.equality = all(node.equality for node in cases)
        self.dominated = all(node.dominated for node in cases)
        self.inherit_flags(cases)
        self.cost = max(node.cost for node in cases)
        self.supports_scalar_path = all(node.supports_scalar_path for node in cases)

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        cases = [case for case in map(self.choose, values) if case is not None]
        if len(cases) < len(values):
            raise NeedsTensors
        rows = [(case, *self.cases[case].read([value])) for case, value in zip(cases, values, strict=True)]
        hash(tuple(row for row in rows if self.cases[row[0]].equality))
        return rows

    def scalar_similarity(self, a: Any, b: Any) -> float:
        if self.equality or a[0] != b[0]:
            return super().scalar_similarity(a, b) if self.equality else 0.0
        return self.cases[a[0]].scalar_similarity(a[1], b[1])

    def scalar_self_similarity(self, a: Any) -> float:
        return self.cases[a[0]].scalar_self_similarity(a[1])

    def encode(self, values: Sequence[Any], split: int, where: RowPath, device: torch.device) -> Choice:
        cases = [case for case in map(self.choose, values) if case is not None]
        if len(cases) < len(values):
            check(values, where, lambda value: self.choose(value) is not None, self.expected)
        case = torch.tensor(cases, dtype=torch.int64, device="cpu")
        case_row, columns = torch.zeros_like(case), []
        for index, node in enumerate(self.cases):
            (rows,) = (case == index).nonzero(as_tuple=True)
            case_values = list(compress(values, (case == index).tolist()))
            case_split = int((rows < split).sum())
            row_list = rows.tolist()

            def path(n: int, rows: Sequence[int] = row_list) -> str:
                return where(rows[n])

            column = node.encode(case_values, case_split, path, device)
            columns.append(column)
            case_row[rows] = torch.arange(len(rows), device="cpu")
        parts = [node.key(column) for node, column in zip(self.cases, columns, strict=True)]
        key_values = [repeat(None) if part is None else iter(part.values) for part in parts]
        pairs = [(n, next(key_values[n])) for n in cases]
        key = Keys(pairs, where, device, [part for part in parts if part is not None])
        return Choice(case.to(device), case_row.to(device), columns, key)

    def similarity(self, rows: Choice, i: Tensor, j: Tensor) -> Tensor:
        value = (rows.key.ids[i] == rows.key.ids[j]).double()
        for index, (node, column) in enumerate(zip(self.cases, rows.columns, strict=True)):
            if not node.equality:
                (left,) = ((value > 0) & (rows.case[i] == index)).nonzero(as_tuple=True)
                value[left] = node.similarity(column, rows.case_row[i[left]], rows.case_row[j[left]])
        return value

    def self_similarity(self, rows: Choice, i: Tensor) -> Tensor:
        value = torch.ones(len(i), dtype=torch.float64, device=i.device)
        for index, (node, column) in enumerate(zip(self.cases, rows.columns, strict=True)):
            if not node.equality:
                (left,) = (rows.case[i] == index).nonzero(as_tuple=True)
                value[left] = node.self_similarity(column, rows.case_row[i[left]])
        return value

    def key(self, rows: Choice) -> Keys:
        return rows.key

    def variables(self, rows: Choice) -> list[Sequence[Variable | None]]:
        slots: list[Sequence[Variable | None]] = []
        for index, (node, column) in enumerate(zip(self.cases, rows.columns, strict=True)):
            for slot in node.variables(column):
                case_rows = zip(rows.case.tolist(), rows.case_row.tolist(), strict=True)
                slots.append([slot[row] if case == index else None for case, row in case_rows])
        return slots

    def parts(self, rows: Choice, i: int, j: int, x: Any, y: Any) -> Iterator[MatchedPart]:
        case = int(rows.case[i])
        case_rows = int(rows.case_row[i]), int(rows.case_row[j])
        return self.cases[case].parts(rows.columns[case], *case_rows, x, y)


class Normalized(Node):
    """Normalized score of delta(x, y), delta(x, x) and delta(y, y) of the inner node."""

    cost = 1

    def __init__(self, inner: Node, normalizer: Normalizer, zero_division: float | str) -> None:
        self.inner, self.normalizer, self.zero_division = inner, normalizer, zero_division
        is_standard = isinstance(normalizer, Precision | Recall | Jaccard | FScore)
        self.equality, self.dominated = is_standard and inner.equality, is_standard and inner.dominated
        self.inherit_flags([inner])
        self.supports_scalar_path = self.equality and inner.supports_scalar_path

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        return self.inner.read(values)

    def encode(self, values: Sequence[Any], split: int, where: RowPath, device: torch.device) -> Any:
        return self.inner.encode(values, split, where, device)

    def key(self, rows: Any) -> Keys | None:
        return self.inner.key(rows) if self.equality else None

    def variables(self, rows: Any) -> list[Sequence[Variable | None]]:
        return self.inner.variables(rows)

    def _ratio(self, cross: Tensor, pred: Tensor, ref: Tensor) -> Tensor:
        # One undefined part must not make a document undefined.
        ratio = normalize(cross, pred, ref, self.normalizer, self.zero_division)
        return ratio.masked_fill(ratio.isnan(), 0)

    def similarity(self, rows: Any, i: Tensor, j: Tensor) -> Tensor:
        cross, reads = self.inner.similarity(rows, i, j), required_self_overlaps([self.normalizer], self.zero_division)
        self_overlaps = (
            self.inner.self_similarity(rows, index) if name in reads else torch.zeros_like(cross)
            for name, index in (("pred", i), ("ref", j))
        )
        return self._ratio(cross, *self_overlaps)

    def self_similarity(self, rows: Any, i: Tensor) -> Tensor:
        s = self.inner.self_similarity(rows, i)
        return self._ratio(s, s, s)

    def parts(self, rows: Any, i: int, j: int, x: Any, y: Any) -> Iterator[MatchedPart]:
        return self.inner.parts(rows, i, j, x, y)


class Preprocess(Node):
    """Inner similarity after preprocessing: predictions by `pred`, references by `ref`."""

    def __init__(self, inner: Node, pred: Callable[[Any], Any], ref: Callable[[Any], Any]) -> None:
        self.inner, self.pred, self.ref = inner, pred, ref
        self.equality = inner.equality and pred is ref
        self.dominated, self.cost = inner.dominated, inner.cost
        self.inherit_flags([inner])

    def encode(self, values: Sequence[Any], split: int, where: RowPath, device: torch.device) -> Any:
        images = [*map(self.pred, values[:split]), *map(self.ref, values[split:])]
        return self.inner.encode(images, split, where, device)

    def similarity(self, rows: Any, i: Tensor, j: Tensor) -> Tensor:
        return self.inner.similarity(rows, i, j)

    def self_similarity(self, rows: Any, i: Tensor) -> Tensor:
        return self.inner.self_similarity(rows, i)

    def key(self, rows: Any) -> Keys | None:
        return self.inner.key(rows)

    def variables(self, rows: Any) -> list[Sequence[Variable | None]]:
        return self.inner.variables(rows)

    def parts(self, rows: Any, i: int, j: int, x: Any, y: Any) -> Iterator[MatchedPart]:
        return self.inner.parts(rows, i, j, self.pred(x), self.ref(y))


def below(where: RowPath, names: tuple[str | int, ...]) -> RowPath:
    """Return the path function of a component from that of the value it belongs to."""

    def path(row: int) -> str:
        text = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in names)
        return f"{where(row)}{text}".removeprefix(".")

    return path
