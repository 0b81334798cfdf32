"""Nodes of collections: ragged rows whose items are matched under a constraint."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....core.numbers.exact_sums import scatter_add
from ...tensors import _lengths
from ...tensors._pairs import counted_overlap, expand, join, matched
from ...tensors.constraints import Constraint
from ...tensors.overlap import common, set_overlap
from ...tensors.policy import Policy
from ..columns import (
    COLLECTIONS,
    MAX_TUPLES,
    Keys,
    RowPath,
    as_list,
    check_collection,
    check_mapping,
    elements_of,
    pairs_of,
)
from .node import LeafNode, MatchedPart, NeedsTensors, Node, upper_bound_mode
from .relations import equal_pairs, heaviest_relation

COMMON: dict[Constraint, Callable[[int, int], int]] = {  # matches of p equal predicted and r equal reference items
    Constraint.ONE_TO_ONE: min,
    Constraint.ONE_TO_MANY: lambda p, r: p,
    Constraint.MANY_TO_ONE: lambda p, r: r,
    Constraint.MANY_TO_MANY: lambda p, r: p * r,
}
MAX_UNEQUAL_ITEMS = 5  # items of a collection; for more of them tensors are faster than Python
MAX_PAIRS = 2**22  # candidate pairs of items at a time
MAX_TABLE = 2**16  # cells in a table of the counts of each key in each collection


@dataclass(eq=False)
class RaggedRows:
    start: Tensor  # (n,) int64: the first item of each collection
    count: Tensor  # (n,) int64
    items: Any  # rows of the inner node
    key: Keys | None  # of the items


@dataclass(eq=False)
class BoundedRows(RaggedRows):
    cache: dict[tuple, list[float]] = field(default_factory=dict, kw_only=True)  # of `Bounded`: value and bound by pair


class Collection(Node):
    """Base of sets, sequences and the best pair: reading and encoding. `items` returns the ordered items of a value."""

    cost = 1

    def __init__(self, inner: Node, items: Callable[[Any], Sequence[Any]]) -> None:
        self.inner, self.items = inner, items
        self.inherit_flags([inner])
        self.has_variables = False

    def encode(self, values: Sequence[Any], split: int, where: RowPath, device: torch.device) -> RaggedRows:
        self.check(values, where)
        columns = list(map(self.items, values))
        count = torch.tensor(list(map(len, columns)), dtype=torch.int64, device="cpu")
        start, items = count.cumsum(0) - count, list(chain.from_iterable(columns))

        def path(item: int) -> str:
            row = int(torch.searchsorted(start, item, right=True)) - 1
            return f"{where(row)}[{item - int(start[row])}]"

        rows = self.inner.encode(items, int(count[:split].sum()), path, device)
        key = self.inner.key(rows)
        if key is not None:
            key.ids  # noqa: B018  raises for unhashable items even if they are not compared
        return RaggedRows(start.to(device), count.to(device), rows, key)

    def check(self, values: Sequence[Any], where: RowPath) -> None:
        check_collection(values, where)
        if self.items in (as_list, pairs_of, elements_of):
            check_mapping(values, where, is_expected=self.items is not as_list)

    def candidates(self, rows: RaggedRows, i: Tensor, j: Tensor) -> Iterator[tuple[slice, "CandidatePairs"]]:
        """Yield the pairs of items that may be similar, for a chunk of pairs (i, j) of collections at a time."""
        cumulative_pairs = (rows.count[i] * rows.count[j]).clamp(min=1).cumsum(0)
        first = 0
        while first < len(i):
            done = cumulative_pairs[first - 1] if first else 0
            last = max(int(torch.searchsorted(cumulative_pairs, done + MAX_PAIRS, right=True)), first + 1)
            yield slice(first, last), CandidatePairs.of(self.inner, rows, i[first:last], j[first:last])
            first = last

    def dense(self, rows: RaggedRows, i: Tensor, j: Tensor) -> Tensor:
        # i, j: (P,) of equal length  ->  (P, N, M) float64
        """Compute the similarities of all pairs of items, 0 in the padding."""
        n, m = rows.count[i], rows.count[j]
        shape = [len(i), *(int(lengths.max()) if len(i) else 0 for lengths in (n, m))]
        if rows.key is None:  # every pair of items may be similar
            (x, x_valid), (y, y_valid) = (
                (rows.start[index][:, None] + torch.arange(size, device=i.device), _lengths.mask(count, size))
                for index, count, size in zip((i, j), (n, m), shape[1:], strict=True)
            )
            if x_valid.all() and y_valid.all():
                return self.inner.similarities(rows.items, x, y)
            x, y = x[:, :, None].expand(shape), y[:, None].expand(shape)
            valid = x_valid[:, :, None] & y_valid[:, None]
            delta = self.inner.similarity(rows.items, x[valid], y[valid])
            return delta.new_zeros(shape).masked_scatter_(valid, delta)
        pairs = CandidatePairs.of(self.inner, rows, i, j)
        indices = pairs.owner, pairs.x - rows.start[i][pairs.owner], pairs.y - rows.start[j][pairs.owner]
        return pairs.delta.new_zeros(shape).index_put_(indices, pairs.delta)

    def parts(self, rows: RaggedRows, i: int, j: int, x: Any, y: Any) -> Iterator[MatchedPart]:
        x, y = self.items(x), self.items(y)
        for a, b in self.relation(rows, *torch.tensor([[i], [j]], device=rows.start.device)):
            item_rows = int(rows.start[i]) + a, int(rows.start[j]) + b
            yield MatchedPart((a,), (b,), self.inner, rows.items, *item_rows, x[a], y[b])

    @abstractmethod
    def relation(self, rows: Any, i: Tensor, j: Tensor) -> Iterable[tuple[int, int]]:
        # i, j: (1,)
        """Return the pairs of items of row i and row j that are matched, by position."""


class CandidatePairs(NamedTuple):
    """Candidate pairs of items of pairs of collections."""

    size: int  # pairs of collections
    owner: Tensor  # (T,) index of the pair of collections
    a: Tensor  # (T,) index of the first item among the items of all first collections
    b: Tensor  # (T,)
    x: Tensor  # (T,) rows of the inner node
    y: Tensor  # (T,)
    block: Tensor  # (T,) pairs compete only within a block
    delta: Tensor  # (T,) float64: similarity of x and y

    @classmethod
    def of(cls, inner: Node, rows: RaggedRows, i: Tensor, j: Tensor) -> "CandidatePairs":
        # i, j: (P,)
        x_owner, x = expand(rows.start[i], rows.count[i])
        y_owner, y = expand(rows.start[j], rows.count[j])
        x_block, y_block = x_owner, y_owner
        if rows.key is not None:
            x_block, y_block = (
                owner * rows.key.size + rows.key.ids[item] for owner, item in ((x_owner, x), (y_owner, y))
            )
        a, b = join(x_block, y_block)
        x, y = x[a], y[b]
        return cls(len(i), x_owner[a], a, b, x, y, x_block[a], inner.similarity(rows.items, x, y))

    def matched(self, constraint: Constraint) -> tuple[Tensor, Tensor]:
        # ->  (size,) float64, (T,) bool
        return matched(self.a, self.b, self.delta, self.block, self.owner, self.size, constraint)


class Matched(Collection):
    """Base of sets and sequences: the heaviest relation between the items that the constraint allows.

    empty_is_one: an empty collection has self-overlap 1, and cross-overlap 1 with another one. duplicates, if the items
    are compared by equality: "multiset": all count; "set": equal items of a collection count once; "set_cross": only in
    the cross-overlap. ordered: name of the collection in messages, if equal items are distinguished by their positions,
    so that each of them counts.
    """

    ordered = ""

    def __init__(
        self,
        inner: Node,
        items: Callable[[Any], Sequence[Any]],
        constraint: Constraint,
        *,
        empty_is_one: bool = False,
        duplicates: str = "multiset",
    ) -> None:
        super().__init__(inner, items)
        self.constraint, self.empty_is_one = constraint, empty_is_one
        self.duplicates = duplicates if inner.equality else "multiset"
        self.distinct = self.duplicates != "multiset"
        self.dominated = constraint is Constraint.ONE_TO_ONE and inner.dominated
        self.supports_scalar_path = inner.supports_scalar_path and not self.inexact

    @classmethod
    def under(
        cls, policy: Policy, inner: Node, items: Callable[[Any], Sequence[Any]], constraint: Constraint
    ) -> "Matched":
        """Build the node by a policy; its "set_cross" applies only to scalars that are matched one-to-one."""
        if cls.ordered and policy.duplicates == "set":
            raise ValueError(
                f"duplicates: got 'set' for {cls.ordered}, whose equal items have different positions; wanted "
                "'multiset'; write a separate dataclass with @metametric(duplicates='multiset')"
            )
        is_leaf_matching = constraint is Constraint.ONE_TO_ONE and isinstance(inner, LeafNode)
        duplicates = "multiset" if policy.duplicates == "set_cross" and not is_leaf_matching else policy.duplicates
        return cls(inner, items, constraint, empty_is_one=policy.empty == "one", duplicates=duplicates)

    @abstractmethod
    def overlap(self, rows: RaggedRows, i: Tensor, j: Tensor, distinct: bool) -> Tensor:
        # i, j: (P,)  ->  (P,) float64
        """Compute the weight of the heaviest relation; distinct: equal items count once."""

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        if self.items is not as_list or not COLLECTIONS.issuperset(map(type, values)):
            self.check(values, str)
        rows = [*map(self.inner.read, map(self.items, values))]
        if max(map(len, rows), default=0) > (MAX_TUPLES if self.inner.equality else MAX_UNEQUAL_ITEMS):
            raise NeedsTensors
        if self.inner.equality:
            hash(tuple(map(tuple, rows)))  # raises for an unhashable value even if it is not compared
        return rows

    def scalar_similarity(self, a: Sequence[Any], b: Sequence[Any]) -> float:
        if self.empty_is_one and not a and not b:
            return 1.0
        return self.scalar_overlap(a, b, self.distinct)

    def scalar_self_similarity(self, a: Sequence[Any]) -> float:
        distinct = self.duplicates == "set"
        if self.empty_is_one and not a:
            return 1.0
        if self.constraint is Constraint.MANY_TO_MANY or distinct or not self.inner.dominated:
            return self.scalar_overlap(a, a, distinct)
        return float(len(a) if self.inner.equality else sum(map(self.inner.scalar_self_similarity, a)))

    def scalar_overlap(self, a: Sequence[Any], b: Sequence[Any], distinct: bool) -> float:
        """Compute the overlap of the items of two collections."""
        raise NotImplementedError

    def gains(self, a: Sequence[Any], b: Sequence[Any]) -> list[list[float]]:
        """Compute the similarity of each pair of items, at least 0."""
        return [[max(self.inner.scalar_similarity(x, y), 0.0) for y in b] for x in a]

    def similarity(self, rows: RaggedRows, i: Tensor, j: Tensor) -> Tensor:
        value = self.overlap(rows, i, j, self.distinct)
        if self.empty_is_one:
            value = torch.where((rows.count[i] == 0) & (rows.count[j] == 0), 1.0, value)
        return value

    def self_similarity(self, rows: RaggedRows, i: Tensor) -> Tensor:
        distinct = self.duplicates == "set"
        needs_solution = self.constraint is Constraint.MANY_TO_MANY or distinct
        if self.inner.equality and not needs_solution:
            value = rows.count[i].double()
        elif self.inner.dominated and not needs_solution:
            owner, item = expand(rows.start[i], rows.count[i])
            value = torch.zeros(len(i), dtype=torch.float64, device=i.device)
            scatter_add(value, owner, self.inner.self_similarity(rows.items, item))
        else:
            value = self.overlap(rows, i, i, distinct)
        return torch.where(rows.count[i] == 0, 1.0, value) if self.empty_is_one else value


class Bounded(Matched):
    """Base of graphs and latent sets, whose heaviest relation is NP-hard: the weight of a relation, and an upper bound.

    The solver returns both, once for each pair of collections: the `cache` of the rows holds the results.
    """

    inexact = True

    @abstractmethod
    def solve(self, rows: Any, i: Tensor, j: Tensor, distinct: bool) -> tuple[Tensor, Tensor]:
        # i, j: (P,) of equal length  ->  value (P,) float64, bound (P,) float64
        """Compute the weight of a relation, and an upper bound of all relations."""

    def overlap(self, rows: Any, i: Tensor, j: Tensor, distinct: bool) -> Tensor:
        uses_bounds = self.inner.inexact and upper_bound_mode.get()
        pairs = [(*pair, distinct, uses_bounds) for pair in zip(i.tolist(), j.tolist(), strict=True)]
        missing = {pair: n for n, pair in enumerate(pairs) if pair not in rows.cache}
        new = torch.tensor(list(missing.values()), dtype=torch.int64, device=i.device)
        for part in length_groups(rows.count[i[new]], rows.count[j[new]]):
            solutions = torch.stack(self.solve(rows, i[new[part]], j[new[part]], distinct), -1)
            rows.cache.update(zip((pairs[n] for n in new[part].tolist()), solutions.tolist(), strict=True))
        column = int(upper_bound_mode.get())
        return torch.tensor([rows.cache[pair][column] for pair in pairs], dtype=torch.float64, device=i.device)


class Set(Matched):
    """Unordered collection: items are matched in any order."""

    def scalar_overlap(self, a: Sequence[Any], b: Sequence[Any], distinct: bool) -> float:
        if not self.inner.equality:
            return heaviest_relation(self.gains(a, b), self.constraint)
        x, y = set(a), set(b)
        if distinct or (len(x) == len(a) and len(y) == len(b)):
            return float(len(x & y))
        times = Counter(a), Counter(b)
        return float(sum(COMMON[self.constraint](*(counts[key] for counts in times)) for key in x & y))

    def overlap(self, rows: RaggedRows, i: Tensor, j: Tensor, distinct: bool) -> Tensor:
        if self.inner.equality:
            return self._count_overlap(rows, i, j, distinct)
        value = torch.zeros(len(i), dtype=torch.float64, device=i.device)
        if rows.key is None:  # every pair of items may be similar
            for part in length_groups(rows.count[i], rows.count[j]):
                delta = self.dense(rows, i[part], j[part])
                full = len(delta) == 1  # no padding: a pass over the table for the lengths is avoided
                n, m = (None, None) if full else (rows.count[i[part]], rows.count[j[part]])
                value[part] = set_overlap(delta, n, m, self.constraint)
            return value
        for part, pairs in self.candidates(rows, i, j):
            value[part] = pairs.matched(self.constraint)[0]
        return value

    def _count_overlap(self, rows: RaggedRows, i: Tensor, j: Tensor, distinct: bool) -> Tensor:
        # i, j: (P,)  ->  (P,) float64
        assert rows.key is not None  # items that are compared by equality have a key
        collections, pairs, keys = len(rows.count), len(i), rows.key.size
        if max(collections, pairs) * keys > MAX_TABLE:
            both = torch.cat([i, j])
            owner, item = expand(rows.start[both], rows.count[both])
            return counted_overlap(owner, rows.key.ids[item], pairs, keys, self.constraint, distinct)
        cell = torch.repeat_interleave(rows.count) * keys + rows.key.ids
        times = torch.bincount(cell, minlength=collections * keys).view(collections, keys)
        if distinct:
            times = times.clamp(max=1)
        return common(times[i], times[j], self.constraint).sum(-1).double()

    def relation(self, rows: RaggedRows, i: Tensor, j: Tensor) -> list[tuple[int, int]]:
        if self.inner.equality:
            assert rows.key is not None
            ids = rows.key.ids
            x, y = (ids[rows.start[row] :][: rows.count[row]].tolist() for row in (i, j))
            return equal_pairs(x, y, self.constraint, self.distinct)
        pairs = CandidatePairs.of(self.inner, rows, i, j)
        _, selected = pairs.matched(self.constraint)
        return sorted(zip(pairs.a[selected].tolist(), pairs.b[selected].tolist(), strict=True))


class MaxPair(Collection):
    """Best single pair of items, 0 if a collection is empty."""

    def __init__(self, inner: Node, items: Callable[[Any], Sequence[Any]]) -> None:
        super().__init__(inner, items)
        self.dominated = inner.dominated

    def similarity(self, rows: RaggedRows, i: Tensor, j: Tensor) -> Tensor:
        value = torch.zeros(len(i), dtype=torch.float64, device=i.device)
        for part, pairs in self.candidates(rows, i, j):
            value[part] = value[part].scatter_reduce(0, pairs.owner, pairs.delta, "amax")
        return value

    def relation(self, rows: RaggedRows, i: Tensor, j: Tensor) -> list[tuple[int, int]]:
        pairs = CandidatePairs.of(self.inner, rows, i, j)
        best = pairs.delta.argmax() if len(pairs.delta) else slice(0)
        return list(zip(pairs.a[best].view(-1).tolist(), pairs.b[best].view(-1).tolist(), strict=True))


def length_groups(n: Tensor, m: Tensor) -> Iterator[slice | Tensor]:
    # n, m: (P,) lengths  ->  indices of pairs of similar lengths, whose padded matrices fit in memory
    for group, _ in _lengths.cuts((n.cpu(), m.cpu()), (), lambda n, m: (n + m) ** 2):
        yield group
