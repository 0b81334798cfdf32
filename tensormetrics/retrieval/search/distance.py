"""Distances and the order of neighbors: by the canonical distance of a pair, then by index.

The canonical distance consists of elementwise float64 operations in one fixed order, so it has the same bits on every
device and for every tile size. It is NaN if a row of the pair contains NaN or infinity.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.native import native
from ..deterministic import chunk_slices, halving_sum, row_norms, sqrt
from ..inputs import promote_dtypes
from . import operators

DistanceName = Literal["l2", "sqeuclidean", "ip", "cosine"]


def _same(delta: Tensor) -> Tensor:
    return delta


@dataclass(frozen=True)
class Distance:
    """Properties of a named distance, as used by the search, its backends and the ranking.

    Matrix products exclude most pairs, so the canonical distance has one of two forms, of rows that may first be
    normalized (`unit`): the square |x - y|^2 (`euclidean`), or a `constant` minus the product x.y. Any other distance
    is a function written by the user; see `FunctionDistance`.
    """

    name: DistanceName
    code: int  # of the canonical distance in csrc/nearest/canonical.h and kernels/canonical.py
    euclidean: bool = False
    unit: bool = False
    constant: float = 0.0
    largest_first: bool = False
    from_canonical: Callable[[Tensor], Tensor] = _same  # converts canonical distances to those that users see

    @property
    def factor(self) -> int:
        """Negated coefficient of the product x.y in the canonical distance."""
        return 2 if self.euclidean else 1

    def prepared(self, rows: Tensor) -> Tensor:
        # rows: (..., D)  ->  (..., D) float64, normalized if `unit`; zero rows stay zero
        rows = rows.double()
        if not self.unit:
            return rows
        norm = row_norms(rows)[..., None]
        return rows / torch.where(norm > 0, norm, 1.0)

    def of_product(self, product: Tensor) -> Tensor:
        """Convert products x.y of prepared rows to canonical distances; not for Euclidean distances."""
        return self.constant - product if self.constant else -product

    def canonical(self, query: Tensor, reference: Tensor) -> Tensor:
        # query, reference: (..., D), broadcast against each other  ->  (...) float64, smaller is nearer
        """Compute squared Euclidean distance, negated inner product, or 1 - cosine (1 where a row is zero)."""
        query, reference = query.double(), reference.double()
        if self.euclidean:
            difference = query - reference
            return finite_or_nan(halving_sum(difference * difference))
        product = halving_sum(query * reference)
        if not self.unit:
            return finite_or_nan(self.of_product(product))
        norms = row_norms(query) * row_norms(reference)
        return torch.where(norms == 0, self.constant, finite_or_nan(self.of_product(product / norms)))

    def of_lists(self, query: Tensor, reference: Tensor, columns: Tensor, memory: int) -> Tensor:
        # query: (Q, D)  reference: (R, D)  columns: (Q, K) integer, -1 = none  ->  (Q, K) float64, arbitrary where none
        """Compute the canonical distances of the references that are listed for each query."""
        return self.of_pairs(query, reference, None, columns.flatten(), memory).view_as(columns)

    def of_pairs(self, query: Tensor, reference: Tensor, row: Tensor | None, column: Tensor, memory: int) -> Tensor:
        # query: (Q, D)  reference: (R, D)  row, column: (n,) int64  ->  (n,) float64
        """Compute the canonical distances of listed pairs, in chunks of at most `memory` bytes.

        Without `row` each query has the same number of consecutive columns.
        """
        if not len(column):
            return query.new_empty(0, dtype=torch.float64)
        if operators.kernels(query, "canonical distances"):
            from .kernels import canonical

            return canonical.canonical_pairs(query, reference, row, column, self.code)
        if row is None:
            row, column = torch.arange(len(query), device=query.device), column.long().clamp(min=0)
            row = row.repeat_interleave(len(column) // len(query))
        if query.device.type == "cpu":
            pairs = row.contiguous(), column.contiguous()
            query = query.double().contiguous()
            return finite_or_nan(operators.canonical_pairs(query, reference, *pairs, self.code))
        return self._in_chunks(query, reference, row, column, memory)

    def _in_chunks(self, query: Tensor, reference: Tensor, row: Tensor, column: Tensor, memory: int) -> Tensor:
        # Small chunks stay in the cache of a CPU; on a GPU a small chunk takes as long as a large one.
        limit = min(memory, 2**24) if query.device.type == "cpu" else memory
        pairs = max(limit // (40 * query.shape[1] + 64), 1)
        chunks = zip(row.split(pairs), column.split(pairs), strict=True)
        return torch.cat([self.canonical(query[i], reference[j]) for i, j in chunks])


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
    """Function of the user, `(Q, D), (R, D) -> (Q, R)`, whose values define the order; see `TorchKNN`."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.function = function
        self.largest_first = bool(getattr(function, "is_inverted", getattr(function, "largest", False)))

    def __call__(self, query: Tensor, reference: Tensor) -> Tensor:
        # query: (Q, D)  reference: (R, D)  ->  (Q, R)
        values = self.function(*promote_dtypes(query, reference))
        checks.shape("result of distance", values, len(query), len(reference))
        return values


def distance_of(distance: str | Callable[[Tensor, Tensor], Tensor]) -> Distance | FunctionDistance:
    """Resolve the argument `distance` of a public function, a name or a function."""
    return FunctionDistance(distance) if callable(distance) else DISTANCES[distance]


def finite_or_nan(delta: Tensor) -> Tensor:
    return delta.masked_fill(~delta.isfinite(), torch.nan)


@native.reference("canonical_pairs")
def _canonical_pairs(query: Tensor, reference: Tensor, row: Tensor, column: Tensor, code: int) -> Tensor:
    distance = next(distance for distance in DISTANCES.values() if distance.code == code)
    return distance._in_chunks(query, reference, row, column, 2**24)


def rows_at_once(rows: Tensor) -> int:
    # Temporaries of a chunk stay in the cache of a CPU; on a GPU a small chunk takes as long as a large one.
    return max((2**18 if rows.device.type == "cpu" else 2**22) // max(rows.shape[1], 1), 1)


def equal_rows(rows: Tensor) -> Tensor:
    # rows: (N, D)  ->  (N,) int64
    """Return the lowest index of an equal row for each row (possibly a higher one if two sums collide)."""
    weights = torch.arange(1, rows.shape[1] + 1, dtype=torch.float64, device=rows.device).cos()
    index, sums = torch.arange(len(rows), device=rows.device), weights.new_empty(len(rows))
    chunks = chunk_slices(len(rows), rows_at_once(rows))
    for chunk in chunks:
        sums[chunk] = halving_sum(rows[chunk].double() * weights)
    keys, inverse = sums.unique(return_inverse=True)
    first = torch.full_like(index[: len(keys)], len(rows)).scatter_reduce(0, inverse, index, "amin")[inverse]
    for chunk in chunks:
        same = (rows[chunk] == rows[first[chunk]]).all(1)
        first[chunk] = torch.where(same, first[chunk], index[chunk])
    return first
