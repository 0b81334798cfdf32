"""The plan of a metric: a tree of nodes, each of which encodes a column of objects and compares pairs of its rows.

A batch is encoded once, predictions first, references after them: rows of both sides are rows of one encoding, and
`split` says how many of them are predictions. Objects are walked column by column; what follows sees tensors.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial, reduce
from itertools import compress, repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...tensors.normalizers import (
    FScore,
    Jaccard,
    Normalizer,
    Precision,
    Recall,
    normalize,
    selves_read,
)
from ..values.columns import EQUAL_THEMSELVES, Keys, Where, check_no_nan, combined, read_once
from ..values.errors import WrongTypeError
from ..values.leaf_types import LeafType
from ..values.tolerance import checked
from ..variable import Variable

bounding = ContextVar("bounding", default=False)  # nodes that are inexact answer with a bound from above


class NotPlain(Exception):
    """More than is compared without tensors, or a value about which their way has something to say."""


class Part(NamedTuple):
    """A component of a pair of matched values: where it stands on both sides, and its own node and rows."""

    names: tuple[str | int, ...]  # what the path of the prediction is extended by
    ref_names: tuple[str | int, ...]
    node: "Node"
    rows: Any
    i: int
    j: int
    x: Any
    y: Any


class Node(ABC):
    """delta(x, y) of one type.

    equality: its values are 0 and 1, and it is an equivalence relation.
    dominated: delta(x, y) <= min(delta(x, x), delta(y, y)).
    inexact: what is found may be less than there is; see `bounding`.
    has_variables: values hold variables outside of any collection. binds: they hold collections that bind variables.
    cost: factors of a product are evaluated in this order, on the pairs that are left.
    tolerant: a value that is none of the type may be an `InvalidValue`.
    plain: a single pair of few values can be compared without tensors, which cost more: `read`, then `worth` and
    `own` in the place of `encode`, `similarity` and `self_similarity`. What raises there is left to these to refuse.
    """

    equality = False
    dominated = False
    inexact = False
    has_variables = False
    binds = False
    tolerant = False
    plain = False
    cost = 0

    def take_on(self, nodes: Iterable["Node"]) -> None:
        """What holds of a node once it holds of one of its parts."""
        for name in ("inexact", "has_variables", "binds"):
            setattr(self, name, getattr(self, name) or any(getattr(node, name) for node in nodes))

    @abstractmethod
    def encode(self, values: Sequence[Any], split: int, where: Where, device: torch.device) -> Any: ...

    @abstractmethod
    def similarity(self, rows: Any, i: Tensor, j: Tensor) -> Tensor: ...  # i, j: (P,)  ->  (P,) float64

    def self_similarity(self, rows: Any, i: Tensor) -> Tensor:  # i: (P,)  ->  (P,) float64
        return self.similarity(rows, i, i)

    def similarities(self, rows: Any, x: Tensor, y: Tensor) -> Tensor:
        # x: (P, N)  y: (P, M)  ->  (P, N, M) float64, of all pairs of rows
        i, j = x[:, :, None].expand(*x.shape, y.shape[1]), y[:, None].expand(*x.shape, y.shape[1])
        return self.similarity(rows, i.flatten(), j.flatten()).view(i.shape)

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        """What `worth` compares; hashable where `equality` holds."""
        raise NotImplementedError

    def worth(self, a: Any, b: Any) -> float:
        return float(len({a, b}) == 1)  # of an equality

    def own(self, a: Any) -> float:
        return 1.0 if self.equality else self.worth(a, a)

    def key(self, rows: Any) -> Keys | None:
        """Rows of different keys have similarity 0; where `equality` holds, those of equal keys have 1."""
        return None

    def variables(self, rows: Any) -> list[Sequence[Variable | None]]:
        """For each place where a variable may stand what stands there in each row; not inside of collections."""
        return []

    def parts(self, rows: Any, i: int, j: int, x: Any, y: Any) -> Iterator[Part]:
        """What of row i, which is x, stands for what of row j, which is y."""
        return iter(())


class Leaf(Node):
    """1 if x == y else 0. leaf_type: whose values are compared; default any that equal themselves."""

    equality = dominated = plain = True

    def __init__(self, leaf_type: LeafType | None = None) -> None:
        self.type = leaf_type
        self.tolerant = leaf_type is not None

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        if self.type is not None:
            return self.type.read_column(values, 0, str)
        if not EQUAL_THEMSELVES.issuperset(map(type, values)):
            check_no_nan(values, str)
        return values

    def encode(self, values: Sequence[Any], split: int, where: Where, device: torch.device) -> Keys:
        if self.type is None:
            check_no_nan(values, where)
        else:
            values = read_once(partial(self.type.read_column, values, split, where), self.type, values)
        return read_once(lambda: Keys(values, where, device), (Keys, device), values)

    def similarity(self, rows: Keys, i: Tensor, j: Tensor) -> Tensor:
        return (rows.ids[i] == rows.ids[j]).double()

    def key(self, rows: Keys) -> Keys:
        return rows


class Record(NamedTuple):
    key: Keys | None
    columns: list[Any]


class Product(Node):
    """The product over fields, 1 for no field.

    fields: component of the path -> (how to read it from a value, node). check: raises for values of another type.
    """

    def __init__(
        self,
        fields: dict[tuple[str | int, ...], tuple[Callable[[Any], Any], Node]],
        check: Callable[[Sequence[Any], Where], None],
    ) -> None:
        self.fields, self.check = fields, check
        self.nodes = [node for _, node in fields.values()]
        self.equality = all(node.equality for node in self.nodes)
        self.dominated = all(node.dominated for node in self.nodes)
        self.take_on(self.nodes)
        self.cost = max((node.cost for node in self.nodes), default=0)
        unequal = [place for place, node in enumerate(self.nodes) if not node.equality]
        self.factors = sorted(unequal, key=lambda place: self.nodes[place].cost)  # beside the key
        self.plain = all(node.plain for node in self.nodes)
        self.tolerant = all(node.tolerant for node in self.nodes)

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        self.check(values, str)
        columns = [node.read(list(map(read, values))) for read, node in self.fields.values()]
        keys = [column for node, column in zip(self.nodes, columns, strict=True) if node.equality]
        rows = [*zip(*keys, strict=True)] if keys else [()] * len(values)
        if self.equality:
            return rows
        hash(tuple(rows))  # an unhashable one is found whether or not it is compared
        return [*zip(rows, *(columns[place] for place in self.factors), strict=True)]

    def worth(self, a: Any, b: Any) -> float:
        if self.equality:
            return super().worth(a, b)
        value = float(a[0] == b[0])
        for place, x, y in zip(self.factors, a[1:], b[1:], strict=True):
            if not value:
                break
            value *= self.nodes[place].worth(x, y)
        return value

    def own(self, a: Any) -> float:
        if self.equality:
            return 1.0
        return math.prod(self.nodes[place].own(x) for place, x in zip(self.factors, a[1:], strict=True))

    def encode(self, values: Sequence[Any], split: int, where: Where, device: torch.device) -> Record:
        values = checked(self.check, values, split, where)
        columns = [
            node.encode(read_once(partial(_read_all, read, values), read, values), split, below(where, names), device)
            for names, (read, node) in self.fields.items()
        ]
        keys = [key for node, rows in zip(self.nodes, columns, strict=True) if (key := node.key(rows)) is not None]
        if not keys and not self.equality:
            return Record(None, columns)
        key = read_once(lambda: combined(keys, len(values), where, device), (combined, device), *keys)
        return Record(key, columns)

    def similarity(self, rows: Record, i: Tensor, j: Tensor) -> Tensor:
        value = None if rows.key is None else (rows.key.ids[i] == rows.key.ids[j]).double()
        for place in self.factors:
            node, column = self.nodes[place], rows.columns[place]
            if value is None:
                value = node.similarity(column, i, j)
            else:
                (left,) = value.nonzero(as_tuple=True)
                value = value.index_put((left,), value[left] * node.similarity(column, i[left], j[left]))
        assert value is not None  # what has no key has a factor
        return value

    def self_similarity(self, rows: Record, i: Tensor) -> Tensor:
        if self.equality:
            return torch.ones(len(i), dtype=torch.float64, device=i.device)
        return reduce(torch.mul, (self.nodes[place].self_similarity(rows.columns[place], i) for place in self.factors))

    def key(self, rows: Record) -> Keys | None:
        return rows.key

    def variables(self, rows: Record) -> list[Sequence[Variable | None]]:
        return [slot for node, column in zip(self.nodes, rows.columns, strict=True) for slot in node.variables(column)]

    def parts(self, rows: Record, i: int, j: int, x: Any, y: Any) -> Iterator[Part]:
        for (names, (read, node)), column in zip(self.fields.items(), rows.columns, strict=True):
            yield Part(names, names, node, column, i, j, read(x), read(y))


class Choice(NamedTuple):
    case: Tensor  # (n,) int64
    place: Tensor  # (n,) int64: the row among those of its case
    columns: list[Any]
    key: Keys


class Union(Node):
    """The case's similarity if both sides take the same case, else 0. choose(value) is the case, None for no case."""

    def __init__(self, cases: Sequence[Node], choose: Callable[[Any], int | None], wanted: str) -> None:
        self.cases, self.choose, self.wanted = cases, choose, wanted
        self.equality = all(node.equality for node in cases)
        self.dominated = all(node.dominated for node in cases)
        self.take_on(cases)
        self.cost = max(node.cost for node in cases)
        self.plain = all(node.plain for node in cases)
        self.tolerant = all(node.tolerant for node in cases)

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        chosen = [case for case in map(self.choose, values) if case is not None]
        if len(chosen) < len(values):
            raise NotPlain
        rows = [(case, *self.cases[case].read([value])) for case, value in zip(chosen, values, strict=True)]
        hash(tuple(row for row in rows if self.cases[row[0]].equality))
        return rows

    def worth(self, a: Any, b: Any) -> float:
        if self.equality or a[0] != b[0]:
            return super().worth(a, b) if self.equality else 0.0
        return self.cases[a[0]].worth(a[1], b[1])

    def own(self, a: Any) -> float:
        return self.cases[a[0]].own(a[1])

    def encode(self, values: Sequence[Any], split: int, where: Where, device: torch.device) -> Choice:
        chosen = [case for case in map(self.choose, values) if case is not None]
        if len(chosen) < len(values):
            values = checked(self._check, values, split, where)
            chosen = [self.choose(value) or 0 for value in values]  # the first case stands for an invalid value
        case = torch.tensor(chosen, dtype=torch.int64, device="cpu")
        place, columns = torch.zeros_like(case), []
        for number, node in enumerate(self.cases):
            (here,) = (case == number).nonzero(as_tuple=True)
            own = here.tolist()
            taken = list(compress(values, (case == number).tolist()))
            part = int((here < split).sum())
            column = node.encode(taken, part, _among(where, own), device)
            columns.append(column)
            place[here] = torch.arange(len(here), device="cpu")
        parts = [node.key(column) for node, column in zip(self.cases, columns, strict=True)]
        own = [repeat(None) if part is None else iter(part.values) for part in parts]
        key = Keys([(n, next(own[n])) for n in chosen], where, device, [part for part in parts if part is not None])
        return Choice(case.to(device), place.to(device), columns, key)

    def _check(self, values: Sequence[Any], where: Where) -> None:
        for row, value in enumerate(values):
            if self.choose(value) is None:
                got = f"got {value!r:.60} of type {type(value).__name__}"
                raise WrongTypeError(f"{where(row)}: {got}, wanted {self.wanted}")

    def similarity(self, rows: Choice, i: Tensor, j: Tensor) -> Tensor:
        value = (rows.key.ids[i] == rows.key.ids[j]).double()
        for number, (node, column) in enumerate(zip(self.cases, rows.columns, strict=True)):
            if not node.equality:
                (left,) = ((value > 0) & (rows.case[i] == number)).nonzero(as_tuple=True)
                value[left] = node.similarity(column, rows.place[i[left]], rows.place[j[left]])
        return value

    def self_similarity(self, rows: Choice, i: Tensor) -> Tensor:
        value = torch.ones(len(i), dtype=torch.float64, device=i.device)
        for number, (node, column) in enumerate(zip(self.cases, rows.columns, strict=True)):
            if not node.equality:
                (left,) = (rows.case[i] == number).nonzero(as_tuple=True)
                value[left] = node.self_similarity(column, rows.place[i[left]])
        return value

    def key(self, rows: Choice) -> Keys:
        return rows.key

    def variables(self, rows: Choice) -> list[Sequence[Variable | None]]:
        slots: list[Sequence[Variable | None]] = []
        for number, (node, column) in enumerate(zip(self.cases, rows.columns, strict=True)):
            for slot in node.variables(column):
                taken = zip(rows.case.tolist(), rows.place.tolist(), strict=True)
                slots.append([slot[place] if case == number else None for case, place in taken])
        return slots

    def parts(self, rows: Choice, i: int, j: int, x: Any, y: Any) -> Iterator[Part]:
        case = int(rows.case[i])
        places = int(rows.place[i]), int(rows.place[j])
        return self.cases[case].parts(rows.columns[case], *places, x, y)


class Normalized(Node):
    """A score of delta(x, y), delta(x, x), delta(y, y) of the inner node; with itself, of three times the same."""

    cost = 1

    def __init__(self, inner: Node, normalizer: Normalizer, zero_division: float | str) -> None:
        self.inner, self.normalizer, self.zero_division = inner, normalizer, zero_division
        known = isinstance(normalizer, Precision | Recall | Jaccard | FScore)
        self.equality, self.dominated = known and inner.equality, known and inner.dominated
        self.take_on([inner])
        self.plain = self.equality and inner.plain
        self.tolerant = inner.tolerant

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        return self.inner.read(values)

    def encode(self, values: Sequence[Any], split: int, where: Where, device: torch.device) -> Any:
        return self.inner.encode(values, split, where, device)

    def key(self, rows: Any) -> Keys | None:
        return self.inner.key(rows) if self.equality else None

    def variables(self, rows: Any) -> list[Sequence[Variable | None]]:
        return self.inner.variables(rows)

    def _ratio(self, cross: Tensor, pred: Tensor, ref: Tensor) -> Tensor:
        # One undefined part must not make a whole document undefined.
        ratio = normalize(cross, pred, ref, self.normalizer, self.zero_division)
        return ratio.masked_fill(ratio.isnan(), 0)

    def similarity(self, rows: Any, i: Tensor, j: Tensor) -> Tensor:
        cross, reads = self.inner.similarity(rows, i, j), selves_read([self.normalizer], self.zero_division)
        selves = (
            self.inner.self_similarity(rows, side) if name in reads else torch.zeros_like(cross)
            for name, side in (("pred", i), ("ref", j))
        )
        return self._ratio(cross, *selves)

    def self_similarity(self, rows: Any, i: Tensor) -> Tensor:
        s = self.inner.self_similarity(rows, i)
        return self._ratio(s, s, s)

    def parts(self, rows: Any, i: int, j: int, x: Any, y: Any) -> Iterator[Part]:
        return self.inner.parts(rows, i, j, x, y)


class Preprocess(Node):
    """The inner similarity of images: of predictions under `pred`, of references under `ref`."""

    def __init__(self, inner: Node, pred: Callable[[Any], Any], ref: Callable[[Any], Any]) -> None:
        self.inner, self.pred, self.ref = inner, pred, ref
        self.equality = inner.equality and pred is ref
        self.dominated, self.cost = inner.dominated, inner.cost
        self.take_on([inner])

    def encode(self, values: Sequence[Any], split: int, where: Where, device: torch.device) -> Any:
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

    def parts(self, rows: Any, i: int, j: int, x: Any, y: Any) -> Iterator[Part]:
        return self.inner.parts(rows, i, j, self.pred(x), self.ref(y))


def _read_all(read: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    return list(map(read, values))


def _among(where: Where, rows: Sequence[int]) -> Where:
    """The path of a value that was taken from one of these rows."""
    return lambda row: where(rows[row])


def below(where: Where, names: tuple[str | int, ...]) -> Where:
    """The path of a component, from that of the value it belongs to."""

    def path(row: int) -> str:
        text = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in names)
        return f"{where(row)}{text}".removeprefix(".")

    return path
