"""The distances, and the order of neighbours: by the canonical distance of a pair, then by index.

The canonical distance is made of elementwise float64 operations in one fixed order, so that it has the same bits on
every device and for every tile. A pair with a row that holds NaN or infinity has none: there it is NaN.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ... import _checks, _native
from ..deterministic import halving_sum, row_norms, sqrt
from ..inputs import alike
from . import operators

DistanceName = Literal["l2", "sqeuclidean", "ip", "cosine"]


def _same(delta: Tensor) -> Tensor:
    return delta


@dataclass(frozen=True)
class Distance:
    """What a name of a distance means: all that the search, its backends and the ranks know of it.

    Matrix products rule most pairs out, so the canonical distance is one of two kinds, of rows that may first be given
    length 1 (`unit`): the square |x - y|^2 (`euclidean`), or a `constant` less the product x.y. A distance of any
    other kind is a function, which users write; see `FunctionDistance`.
    """

    name: DistanceName
    code: int  # of the canonical distance in csrc/nearest/canonical.h and kernels/canonical.py
    euclidean: bool = False
    unit: bool = False
    constant: float = 0.0
    largest_first: bool = False
    from_canonical: Callable[[Tensor], Tensor] = _same  # what users are told, from canonical distances

    @property
    def factor(self) -> int:
        """Of the product x.y in the canonical distance, negated."""
        return 2 if self.euclidean else 1

    def prepared(self, rows: Tensor) -> Tensor:
        # rows: (..., D)  ->  (..., D) float64, of length 1 where the distance is of such; zero rows stay zero
        rows = rows.double()
        if not self.unit:
            return rows
        norm = row_norms(rows)[..., None]
        return rows / torch.where(norm > 0, norm, 1.0)

    def of_product(self, product: Tensor) -> Tensor:
        """The canonical distance, where it is not Euclidean, from products x.y of prepared rows."""
        return self.constant - product if self.constant else -product

    def canonical(self, query: Tensor, reference: Tensor) -> Tensor:
        # query, reference: (..., D), broadcast against each other  ->  (...) float64, smaller is nearer
        """Squared Euclidean distance, negated inner product, or 1 - cosine (1 where a row is zero)."""
        query, reference = query.double(), reference.double()
        if self.euclidean:
            difference = query - reference
            return finite_or_nan(halving_sum(difference * difference))
        product = halving_sum(query * reference)
        if not self.unit:
            return finite_or_nan(self.of_product(product))
        norms = row_norms(query) * row_norms(reference)
        return torch.where(norms == 0, self.constant, finite_or_nan(self.of_product(product / norms)))

    def of_pairs(self, query: Tensor, reference: Tensor, row: Tensor, column: Tensor, memory: int) -> Tensor:
        # query: (Q, D)  reference: (R, D)  row, column: (n,) int64  ->  (n,) float64
        """Canonical distances of listed pairs, in pieces of at most `memory` bytes that stay in a CPU's cache."""
        if not len(row):
            return query.new_empty(0, dtype=torch.float64)
        if operators.kernels(query.device, "canonical distances"):
            from .kernels import canonical as kernel

            if query.shape[1] <= kernel.WIDEST:
                return finite_or_nan(kernel.canonical_pairs(query, reference, row, column, self.code))
        if query.device.type == "cpu":
            pairs = row.contiguous(), column.contiguous()
            query = query.double().contiguous()
            return finite_or_nan(operators.canonical_pairs(query, reference, *pairs, self.code))
        return self._in_chunks(query, reference, row, column, memory)

    def _in_chunks(self, query: Tensor, reference: Tensor, row: Tensor, column: Tensor, memory: int) -> Tensor:
        pairs = _pairs_at_once(query, memory)
        chunks = zip(row.split(pairs), column.split(pairs), strict=True)
        return torch.cat([self.canonical(query[i], reference[j]) for i, j in chunks])

    def of_table(self, query: Tensor, reference: Tensor, columns: Tensor, memory: int) -> Tensor:
        # query: (Q, D)  reference: (R, D)  columns: (C,) int64  ->  (Q, C) float64, in such pieces
        delta = torch.empty(len(query), len(columns), dtype=torch.float64, device=query.device)
        pairs = max(memory // 32, 1)  # each takes two indices and a number
        rows = max(pairs // max(len(columns), 1), 1)
        for i in range(0, len(query), rows):
            block = query[i : i + rows]
            row = torch.arange(len(block), device=query.device)
            for j in range(0, len(columns), pairs):
                column = columns[j : j + pairs]
                listed_pairs = row.repeat_interleave(len(column)), column.repeat(len(block))
                delta[i : i + rows, j : j + pairs] = self.of_pairs(block, reference, *listed_pairs, memory).view(
                    len(block), -1
                )
        return delta


DISTANCES: dict[str, Distance] = {
    distance.name: distance
    for distance in (
        Distance("l2", code=0, euclidean=True, from_canonical=sqrt),
        Distance("sqeuclidean", code=0, euclidean=True),
        Distance("ip", code=1, largest_first=True, from_canonical=torch.neg),
        Distance("cosine", code=2, unit=True, constant=1.0),
    )
}
DEFAULT: DistanceName = "l2"


class FunctionDistance:
    """A user's function `(Q, D), (R, D) -> (Q, R)`, whose values are the order as they are; see `TorchKNN`."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.function = function
        self.largest_first = bool(getattr(function, "is_inverted", getattr(function, "largest", False)))

    def __call__(self, query: Tensor, reference: Tensor) -> Tensor:
        # query: (Q, D)  reference: (R, D)  ->  (Q, R)
        values = self.function(*alike(query, reference))
        _checks.shape("result of distance", values, len(query), len(reference))
        return values


def distance_of(distance: str | Callable[[Tensor, Tensor], Tensor]) -> Distance | FunctionDistance:
    """What a door was given as `distance`, a name or a function."""
    return FunctionDistance(distance) if callable(distance) else DISTANCES[distance]


def finite_or_nan(delta: Tensor) -> Tensor:
    return delta.masked_fill(~delta.isfinite(), torch.nan)


def _pairs_at_once(query: Tensor, memory: int) -> int:
    # Small pieces stay in a CPU's cache; on a GPU each takes as long as a large one.
    limit = min(memory, 2**24) if query.device.type == "cpu" else memory
    return max(limit // (40 * query.shape[1] + 64), 1)


@_native.reference("canonical_pairs")
def _canonical_pairs(query: Tensor, reference: Tensor, row: Tensor, column: Tensor, code: int) -> Tensor:
    distance = next(distance for distance in DISTANCES.values() if distance.code == code)
    return distance._in_chunks(query, reference, row, column, 2**24)


def rows_at_once(rows: Tensor) -> int:
    # What is made of a piece stays in a CPU's cache; on a GPU a small one takes as long as a large one.
    return max((2**18 if rows.device.type == "cpu" else 2**22) // max(rows.shape[1], 1), 1)


def equal_rows(rows: Tensor) -> Tensor:
    # rows: (N, D)  ->  (N,) int64
    """For each row the lowest index of an equal one (where two sums collide, possibly a higher one)."""
    weights = torch.arange(1, rows.shape[1] + 1, dtype=torch.float64, device=rows.device).cos()
    index, sums = torch.arange(len(rows), device=rows.device), weights.new_empty(len(rows))
    step = rows_at_once(rows)
    chunks = [slice(start, start + step) for start in range(0, len(rows), step)]
    for chunk in chunks:
        sums[chunk] = halving_sum(rows[chunk].double() * weights)
    keys, inverse = sums.unique(return_inverse=True)
    first = torch.full_like(index[: len(keys)], len(rows)).scatter_reduce(0, inverse, index, "amin")[inverse]
    for chunk in chunks:
        same = (rows[chunk] == rows[first[chunk]]).all(1)
        first[chunk] = torch.where(same, first[chunk], index[chunk])
    return first
