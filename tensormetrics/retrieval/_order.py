"""The order of neighbours: the canonical distance of a pair, and a filter with a bound on what it may be off by.

The canonical distance is made of elementwise float64 operations in one fixed order, so that it has the same bits on
every device and for every tile. A matrix product has not: it may only rule pairs out, within its bound.
"""

import contextlib
import functools
import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from . import _native

DISTANCES = ("l2", "sqeuclidean", "ip", "cosine")
_EUCLIDEAN = ("l2", "sqeuclidean")
BLOCK = 64  # the filter's columns are a multiple of it


def halving_sum(terms: Tensor) -> Tensor:
    # terms: (..., D)  ->  (...)
    """The sum over D: padded with zeros to a power of two, the second half is added to the first until one is left."""
    size = 1 << max(terms.shape[-1] - 1, 0).bit_length()
    if size > terms.shape[-1]:
        terms = torch.nn.functional.pad(terms, (0, size - terms.shape[-1]))
    while size > 1:
        size //= 2
        terms = terms[..., :size] + terms[..., size:]
    return terms[..., 0]


def canonical(query: Tensor, reference: Tensor, distance: str) -> Tensor:
    # query, reference: (..., D), broadcast against each other  ->  (...) float64, smaller is nearer
    """Squared Euclidean distance, negated inner product, or 1 - cosine (1 where a row is zero)."""
    query, reference = query.double(), reference.double()
    if distance in _EUCLIDEAN:
        difference = query - reference
        return halving_sum(difference * difference)
    product = halving_sum(query * reference)
    if distance == "ip":
        return -product
    norms = _norm(query) * _norm(reference)
    return torch.where(norms > 0, 1 - product / norms, 1.0)


def canonical_pairs(
    query: Tensor, reference: Tensor, row: Tensor, column: Tensor, distance: str, memory: int
) -> Tensor:
    # query: (Q, D)  reference: (R, D)  row, column: (n,) int64  ->  (n,) float64
    """Canonical distances of listed pairs, in pieces of at most `memory` bytes that stay in a CPU's cache."""
    if not len(row):
        return query.new_empty(0, dtype=torch.float64)
    if _native.BUILT and query.device.type == "cpu":
        query, reference = same_precision(query, reference)
        return _native.canonical_pairs(query, reference, row.contiguous(), column.contiguous(), native_code(distance))
    if _native.kernels(query.device):
        from . import _order_kernels

        if query.shape[1] <= _order_kernels.WIDEST:
            return _order_kernels.canonical_pairs(query, reference, row, column, native_code(distance))
    pairs = max(min(memory, 2**24) // (40 * query.shape[1] + 64), 1)
    pieces = zip(row.split(pairs), column.split(pairs), strict=True)
    return torch.cat([canonical(query[i], reference[j], distance) for i, j in pieces])


def canonical_table(query: Tensor, reference: Tensor, distance: str, memory: int) -> Tensor:
    # query: (Q, D)  reference: (R, D)  ->  (Q, R) float64, in such pieces
    delta = torch.empty(len(query), len(reference), dtype=torch.float64, device=query.device)
    pairs = max(min(memory, 2**24) // (40 * query.shape[1] + 64), 1)
    rows = max(pairs // max(len(reference), 1), 1)
    for i in range(0, len(query), rows):
        for j in range(0, len(reference), pairs):
            delta[i : i + rows, j : j + pairs] = canonical(
                query[i : i + rows, None], reference[j : j + pairs], distance
            )
    return delta


def same_precision(query: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    # (Q, D), (R, D)  ->  the same values, contiguous, both float32 or both float64
    dtype = torch.promote_types(torch.promote_types(query.dtype, reference.dtype), torch.float32)
    return query.to(dtype).contiguous(), reference.to(dtype).contiguous()


def native_code(distance: str) -> int:
    return {"ip": 1, "cosine": 2}.get(distance, 0)


def as_distance(delta: Tensor, distance: str) -> Tensor:
    """What a user calls the distance (for "ip" the inner product), from canonical distances."""
    if distance == "l2":
        return _sqrt(delta)
    return -delta if distance == "ip" else delta


class Filter:
    """References made ready for matrix products that approximate canonical distances, with a bound on the error.

    Rows are centred, which keeps them short and moves no neighbour, scaled by a power of two, so that float32 neither
    overflows nor loses small squares, and rounded to `dtype`. With u and v the unit roundoffs of `dtype` and float64,
    the products are off by at most (D + 8) u in any order of summation, canonical distances and centring by
    (4 log2 D + 32) v, in units of the terms' size and with room for second-order terms (Higham, Accuracy and Stability
    of Numerical Algorithms, 2002, chapter 3, DOI 10.1137/1.9780898718027).
    """

    def __init__(self, reference: Tensor, distance: str, dtype: torch.dtype) -> None:
        # reference: (R, D)
        count, dim = reference.shape
        self.reference, self.distance, self.dtype = reference, distance, dtype
        self.centre = torch.zeros(dim, dtype=torch.float64, device=reference.device)
        some = self.centred(reference[:: count // 1024 + 1])[0]
        away = (some - some.median(0).values).norm(dim=1, keepdim=True)
        near = away <= 4 * away.median()  # a few huge rows would take the mean far away from all others
        self.centre = torch.where(near, some, 0.0).sum(0) / near.sum().clamp(min=1)
        norms = [self.centred(piece)[1:] for piece in reference.split(rows_at_once(reference))]
        self.norms, plain = (torch.cat(side) for side in zip(*norms, strict=True))
        self.scale = power_of_two(self.norms.amax())
        self.norm = self.norms.amax() * self.scale
        self.plain = plain.all()

    @property
    def rows(self) -> Tensor:
        # ->  (R', D), R' the next multiple of BLOCK
        return self._table[0]

    @property
    def bias(self) -> Tensor:
        # ->  (R',), inf where there is no reference
        return self._table[1]

    @functools.cached_property
    def _table(self) -> tuple[Tensor, Tensor]:
        count, dim = self.reference.shape
        table = torch.zeros(-(-count // BLOCK) * BLOCK, dim, dtype=self.dtype, device=self.reference.device)
        bias = torch.full_like(table[:, 0], torch.inf)
        factor = 2 if self.distance in _EUCLIDEAN else 1
        step = rows_at_once(self.reference)
        for start in range(0, count, step):
            rows = (self.centred(self.reference[start : start + step])[0] * self.scale).nan_to_num().clamp_(-1, 1)
            table[start : start + len(rows)] = -factor * rows
            bias[start : start + len(rows)] = rows.square().sum(1) * (factor - 1)
        return table, bias

    def query(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        # rows: (Q, D)  ->  (Q, D) for `values`, (Q,) float64
        """Queries made ready, and the bound on the error of their values, up to one constant for each query."""
        euclidean = self.distance in _EUCLIDEAN
        x, norm, plain = self.centred(rows, euclidean)
        scale = self.scale if euclidean else power_of_two(norm)
        norm = norm * scale
        finfo, dim, rounding = torch.finfo(self.dtype), rows.shape[1], self.rounding
        filtering = (dim + 8) * finfo.eps / 2 + rounding
        if euclidean:
            error = filtering * self.norm * (self.norm + 2 * norm) + rounding * norm * norm
        else:
            error = (filtering * self.norm + rounding * self.centre.norm() * self.scale) * norm
        error = error + 8 * (dim + 8) * finfo.tiny * (1 + norm)
        # Beyond these sizes a square may leave the range of a dtype: then nothing is known.
        known = plain & self.plain & (norm < 2.0**40)
        x = torch.where(known[:, None], x * scale.unsqueeze(-1), 0.0)
        return x.to(self.dtype), torch.where(known, error, torch.inf)

    @property
    def rounding(self) -> float:
        """What canonical distances and centring are off by, in units of the terms' size."""
        return (4 * math.log2(max(len(self.centre), 1)) + 32) * 2.0**-53

    def place(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        # rows: (Q, D)  ->  (Q,), (Q,) float64
        """Factor and shift that take canonical distances to what `values` approximates, within its error."""
        euclidean = self.distance in _EUCLIDEAN
        x, norm, _ = self.centred(rows, euclidean)
        if euclidean:
            factor = (self.scale * self.scale).expand_as(norm)
            return factor, -factor * halving_sum(x * x)
        factor = self.scale * power_of_two(norm)
        centre = halving_sum(x * self.centre)
        return factor, factor * (centre if self.distance == "ip" else centre - 1)

    def products(self, x: Tensor, columns: slice, out: Tensor | None = None) -> Tensor:
        # x: (Q, D) from `query`  ->  (Q, C), `values` without what `bias` adds
        with _plain_products(x.device):
            return torch.mm(x, self.rows[columns].T, out=out)

    def values(self, x: Tensor, columns: slice = slice(None)) -> Tensor:
        # x: (Q, D) from `query`  ->  (Q, C), C a multiple of BLOCK, inf where there is no reference
        """Canonical distances times a power of two, up to a constant for each query and up to its error."""
        with _plain_products(x.device):
            return torch.addmm(self.bias[columns], x, self.rows[columns].T)

    def centred(self, rows: Tensor, centred: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        # rows: (N, D)  ->  (N, D) float64, their norms (N,), whether squares stay in the range of float64 (N,)
        rows = rows.double()
        norm = _norm(rows) if self.distance == "cosine" else None
        if norm is not None:
            rows = rows / torch.where(norm > 0, norm, 1.0)[:, None]
        if centred:
            rows = rows - self.centre
        length = rows.norm(dim=1)
        norm = length if norm is None else norm
        return rows, length, (norm == 0) | ((norm > 1e-140) & (norm < 1e140))


def rows_at_once(rows: Tensor) -> int:
    # A piece stays in a CPU's cache; on a GPU a small one takes as long as a large one.
    return 4096 if rows.device.type == "cpu" else max(2**22 // max(rows.shape[1], 1), 1)


def equal_rows(rows: Tensor) -> Tensor:
    # rows: (N, D)  ->  (N,) int64
    """For each row the lowest index of an equal one (where two sums collide, possibly a higher one)."""
    weights = torch.arange(1, rows.shape[1] + 1, dtype=torch.float64, device=rows.device).cos()
    pieces = rows.split(rows_at_once(rows))
    keys, inverse = torch.cat([halving_sum(piece.double() * weights) for piece in pieces]).unique(return_inverse=True)
    index = torch.arange(len(rows), device=rows.device)
    first = torch.full_like(index[: len(keys)], len(rows)).scatter_reduce(0, inverse, index, "amin")[inverse]
    same = [(piece == rows[other]).all(1) for piece, other in zip(pieces, first.split(len(pieces[0])), strict=True)]
    return torch.where(torch.cat(same), first, index)


def lexsort(*keys: Tensor) -> Tensor:
    # keys: (n,) each, the last one decides first  ->  (n,) int64
    order = keys[0].argsort(stable=True)
    for key in keys[1:]:
        order = order[key[order].argsort(stable=True)]
    return order


@contextlib.contextmanager
def _plain_products(device: torch.device) -> Iterator[None]:
    # Settings that let a float32 product be rounded to fewer bits would break the bound.
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


def power_of_two(norm: Tensor) -> Tensor:
    # The factor that brings a norm into [1/2, 1); 1 for 0.
    return torch.ldexp(torch.ones_like(norm), -torch.frexp(norm).exponent)


def _norm(rows: Tensor) -> Tensor:
    # rows: (..., D) float64  ->  (...)
    return _sqrt(halving_sum(rows * rows))


def _sqrt(x: Tensor) -> Tensor:
    # Correctly rounded. On a CPU torch's is not: 1 % of its float64 roots differ from a GPU's in the last bit.
    if x.device.type != "cpu":
        return x.sqrt()
    root = torch.empty_like(x)
    np.sqrt(x.numpy(), out=root.numpy())
    return root
