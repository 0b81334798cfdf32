"""The order of neighbours: by the canonical distance of a pair, then by index.

The canonical distance is made of elementwise float64 operations in one fixed order, so that it has the same bits on
every device and for every tile. A pair with a row that holds NaN or infinity has none: there it is NaN.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from ... import _native
from ..sums import halving_sum, row_norms, sqrt
from . import operators

DistanceName = Literal["l2", "sqeuclidean", "ip", "cosine"]
DISTANCES = get_args(DistanceName)
EUCLIDEAN = DISTANCES[:2]


def canonical(query: Tensor, reference: Tensor, distance: str) -> Tensor:
    # query, reference: (..., D), broadcast against each other  ->  (...) float64, smaller is nearer
    """Squared Euclidean distance, negated inner product, or 1 - cosine (1 where a row is zero)."""
    query, reference = query.double(), reference.double()
    if distance in EUCLIDEAN:
        difference = query - reference
        return finite_or_nan(halving_sum(difference * difference))
    product = halving_sum(query * reference)
    if distance == "ip":
        return finite_or_nan(-product)
    norms = row_norms(query) * row_norms(reference)
    return torch.where(norms == 0, 1.0, finite_or_nan(1 - product / norms))


def finite_or_nan(delta: Tensor) -> Tensor:
    return delta.masked_fill(~delta.isfinite(), torch.nan)


def canonical_pairs(
    query: Tensor, reference: Tensor, row: Tensor, column: Tensor, distance: str, memory: int
) -> Tensor:
    # query: (Q, D)  reference: (R, D)  row, column: (n,) int64  ->  (n,) float64
    """Canonical distances of listed pairs, in pieces of at most `memory` bytes that stay in a CPU's cache."""
    if not len(row):
        return query.new_empty(0, dtype=torch.float64)
    if operators.kernels(query.device):
        from .kernels import canonical as kernel

        if query.shape[1] <= kernel.WIDEST:
            return finite_or_nan(kernel.canonical_pairs(query, reference, row, column, native_code(distance)))
    if query.device.type == "cpu":
        pairs = row.contiguous(), column.contiguous()
        query = query.double().contiguous()
        return finite_or_nan(operators.canonical_pairs(query, reference, *pairs, native_code(distance)))
    return _in_pieces(query, reference, row, column, distance, memory)


def _in_pieces(query: Tensor, reference: Tensor, row: Tensor, column: Tensor, distance: str, memory: int) -> Tensor:
    pairs = max(min(memory, 2**24) // (40 * query.shape[1] + 64), 1)
    pieces = zip(row.split(pairs), column.split(pairs), strict=True)
    return torch.cat([canonical(query[i], reference[j], distance) for i, j in pieces])


@_native.reference("canonical_pairs")
def _canonical_pairs(query: Tensor, reference: Tensor, row: Tensor, column: Tensor, code: int) -> Tensor:
    return _in_pieces(query, reference, row, column, ("l2", "ip", "cosine")[code], 2**24)


def canonical_table(query: Tensor, reference: Tensor, columns: Tensor, distance: str, memory: int) -> Tensor:
    # query: (Q, D)  reference: (R, D)  columns: (C,) int64  ->  (Q, C) float64, in such pieces
    delta = torch.empty(len(query), len(columns), dtype=torch.float64, device=query.device)
    pairs = max(min(memory, 2**24) // (40 * query.shape[1] + 64), 1)
    rows = max(pairs // max(len(columns), 1), 1)
    for i in range(0, len(query), rows):
        for j in range(0, len(columns), pairs):
            delta[i : i + rows, j : j + pairs] = canonical(
                query[i : i + rows, None], reference[columns[j : j + pairs]], distance
            )
    return delta


def native_code(distance: str) -> int:
    return {"ip": 1, "cosine": 2}.get(distance, 0)


def as_distance(delta: Tensor, distance: str) -> Tensor:
    """What a user calls the distance (for "ip" the inner product), from canonical distances."""
    if distance == "l2":
        return sqrt(delta)
    return -delta if distance == "ip" else delta


def rows_at_once(rows: Tensor) -> int:
    # What is made of a piece stays in a CPU's cache; on a GPU a small one takes as long as a large one.
    return max((2**18 if rows.device.type == "cpu" else 2**22) // max(rows.shape[1], 1), 1)


def equal_rows(rows: Tensor) -> Tensor:
    # rows: (N, D)  ->  (N,) int64
    """For each row the lowest index of an equal one (where two sums collide, possibly a higher one)."""
    weights = torch.arange(1, rows.shape[1] + 1, dtype=torch.float64, device=rows.device).cos()
    index, sums = torch.arange(len(rows), device=rows.device), weights.new_empty(len(rows))
    step = rows_at_once(rows)
    pieces = [slice(start, start + step) for start in range(0, len(rows), step)]
    for piece in pieces:
        sums[piece] = halving_sum(rows[piece].double() * weights)
    keys, inverse = sums.unique(return_inverse=True)
    first = torch.full_like(index[: len(keys)], len(rows)).scatter_reduce(0, inverse, index, "amin")[inverse]
    for piece in pieces:
        same = (rows[piece] == rows[first[piece]]).all(1)
        first[piece] = torch.where(same, first[piece], index[piece])
    return first
