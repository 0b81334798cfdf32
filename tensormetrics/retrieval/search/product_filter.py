"""A filter: matrix products that approximate canonical distances, with a bound on what they may be off by.

A product's bits depend on the device and the tile, so it may only rule pairs out, within its bound.
"""

import contextlib
import functools
import math
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._exact_sums import power_of_two
from ..deterministic import halving_sum
from ..inputs import finite_rows
from . import operators
from .distance import Distance, rows_at_once

BLOCK = 64  # the filter's columns are a multiple of it
_MAX_NORM = 2.0**40  # beyond this norm a square may leave the range of a dtype: then nothing is known


class Normalization(NamedTuple):
    """What is subtracted from rows, and what they are then multiplied by."""

    centre: Tensor  # (D,) float64
    scale: Tensor  # () float64, a power of two
    longest: Tensor | None = None  # () float64, norm of the longest of all rows in it; None: each filter has its own


def middle(rows: Tensor, distance: Distance) -> Tensor:
    # rows: (N, D)  ->  (D,) float64
    """A point in the midst of most rows."""
    enough = min(max(2**19 // max(rows.shape[1], 1), 64), 1024)  # to take little memory, however many columns there are
    sample = distance.prepared(rows[:: len(rows) // enough + 1])
    sample = sample.where(finite_rows(sample)[:, None], 0.0)
    # A median of all of these would take longer than a small search.
    subsample = sample[:: len(sample) // 64 + 1].sort(0).values  # deterministic mode refuses medians with their indices
    distances = (sample - subsample[(len(subsample) - 1) // 2]).norm(dim=1, keepdim=True)
    is_close = distances <= 4 * distances.median()  # a few huge rows would take the mean far away from all others
    return torch.where(is_close, sample, 0.0).sum(0) / is_close.sum().clamp(min=1)


class Filter:
    """References made ready for matrix products that approximate canonical distances, with a bound on the error.

    Rows are centred, which keeps them short and moves no neighbour, scaled by a power of two, so that float32 neither
    overflows nor loses small squares, and rounded to `dtype`: once where that takes at most `memory` bytes, else again
    for each product. With u and v the unit roundoffs of `dtype` and float64, the products are off by at most (D + 8) u
    in any order of summation, canonical distances and centring by (4 log2 D + 32) v, in units of the terms' size and
    with room for second-order terms (Higham, Accuracy and Stability of Numerical Algorithms, 2002, chapter 3,
    DOI 10.1137/1.9780898718027). References that hold NaN or infinity are `hidden`: their products are infinite.
    In a given `frame` references may come out longer than 1: then the bound is infinite.
    """

    scale: Tensor  # () float64, a power of two
    norm: Tensor  # () float64, of the longest row, scaled
    center_norm: Tensor  # () float64, of the centre, scaled

    def __init__(
        self,
        reference: Tensor,
        distance: Distance,
        dtype: torch.dtype,
        memory: float = math.inf,
        subset: Tensor | None = None,
        frame: Normalization | None = None,
        norms: Tensor | None = None,
    ) -> None:
        # reference: (R, D)  chosen: (M,) int64, the references to take, None = all of them
        # norms: (R,) float64, where they are known, of centred references in a frame; not finite where a row is not
        self.reference, self.subset = reference, subset
        self.distance, self.dtype = distance, dtype
        self.count = len(reference) if subset is None else len(subset)
        self.size, dim = -(-self.count // BLOCK) * BLOCK, reference.shape[1]
        kernels = operators.preparing(reference) if subset is None and self.count else None
        if frame is not None and norms is not None:
            self.centre, self.norms, self.hidden, sizes = self._from_norms(frame, norms)
        elif kernels:
            self.centre, self.norms, self.hidden, sizes = kernels.lengths(reference, distance.unit, frame)
        else:
            self.centre, self.norms, self.hidden, sizes = self._lengths(frame)
        self.sizes = sizes  # (3,) float64
        self.scale, self.norm, self.center_norm = sizes.unbind()
        rows = memory / max(dim * dtype.itemsize, 1)
        self.step = self.size if self.size <= rows else max(int(rows / 4) // BLOCK, 1) * BLOCK

    def _lengths(self, normalization: Normalization | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # ->  (D,) centre, (M,) norms, (M,) hidden, (3,)
        if normalization is None:
            sample = self.reference if self.subset is None else self.reference[self.subset[:: self.count // 1024 + 1]]
        centre = self.centre = middle(sample, self.distance) if normalization is None else normalization.centre
        # Kept pieces would lie between the large ones that are freed, and hold their memory.
        norms = torch.empty(self.count, dtype=torch.float64, device=centre.device)
        for chunk in self._steps(0, self.count):
            norms[chunk] = self.centred(self._read(chunk)).norm(dim=1)
        nonfinite = ~norms.isfinite()
        norms.masked_fill_(nonfinite, 0.0)
        longest = norms.amax()
        return centre, norms, nonfinite, _sizes(normalization or Normalization(centre, power_of_two(longest)), longest)

    def _from_norms(self, normalization: Normalization, norms: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # ->  as `_lengths`
        nonfinite = ~norms.isfinite()
        norms = norms.masked_fill(nonfinite, 0.0)
        return normalization.centre, norms, nonfinite, _sizes(normalization, norms.amax())

    def __len__(self) -> int:
        return self.size

    @functools.cached_property
    def bias(self) -> Tensor:
        # ->  (R',), R' the next multiple of BLOCK, inf where there is no reference
        bias = self.norms.new_full((self.size,), torch.inf, dtype=self.dtype)
        # In place: of a number for each reference there may be very many.
        bias[: self.count] = (self.norms * self.scale).square_().clamp_(max=1).mul_(self.distance.factor - 1)
        bias[: self.count].masked_fill_(self.hidden, torch.inf)
        return bias

    @functools.cached_property
    def rows(self) -> Tensor | None:
        # ->  (R', D), None where the memory takes only pieces of it
        return self.ready(slice(0, self.size)) if self.step == self.size else None

    @property
    def rounding(self) -> float:
        """What canonical distances and centring are off by, in units of the terms' size."""
        return (4 * math.log2(max(len(self.centre), 1)) + 32) * 2.0**-53

    def query(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        # rows: (Q, D)  ->  (Q, D) for `values`, (Q,) float64
        """Queries made ready, and what their values are off by, up to one constant for each query."""
        x = torch.empty(rows.shape, dtype=self.dtype, device=rows.device)
        return x, self.error(self.scaled(rows, x))

    def scaled(self, rows: Tensor, out: Tensor) -> Tensor:
        # rows: (Q, D)  found: (Q, D) of the filter's type  ->  (Q,) float64
        """Makes queries ready in `found` and gives their norms; one of 2^40 or above, or of NaN, becomes zeros."""
        euclidean = self.distance.euclidean
        x = self.centred(rows, euclidean)
        norm = x.norm(dim=1)
        scale = self.scale if euclidean else power_of_two(norm)
        norm = norm * scale
        torch.mul(x, scale.unsqueeze(-1), out=out)
        out.masked_fill_(~(norm < _MAX_NORM)[:, None], 0.0)
        return norm

    def error(self, norm: Tensor, products: bool = True) -> Tensor:
        # norm: (Q,) float64, of queries made ready; `products`: that of products in `dtype` too  ->  (Q,) float64
        finfo, dim, rounding = torch.finfo(self.dtype), len(self.centre), self.rounding
        filtering = ((dim + 8) * finfo.eps / 2 if products else 0.0) + rounding
        if self.distance.euclidean:
            error = filtering * self.norm * (self.norm + 2 * norm) + rounding * norm * norm
        else:
            error = (filtering * self.norm + rounding * self.center_norm) * norm
        error = error + 8 * (dim + 8) * finfo.tiny * (1 + norm)
        return torch.where((norm < _MAX_NORM) & (self.norm <= 1), error, torch.inf)

    def place(self, rows: Tensor, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
        # rows: (Q, D)  scale: (Q,) float64, their own, None = as `query` takes it  ->  (Q,), (Q,) float64
        """Factor and shift that take canonical distances to what `values` approximates, within its error."""
        x = self.centred(rows, self.distance.euclidean)
        if self.distance.euclidean:
            factor = (self.scale * self.scale).expand(len(x))
            return factor, -factor * halving_sum(x * x)
        # A norm that was added up in another order may be on the other side of a power of two.
        factor = self.scale * (power_of_two(x.norm(dim=1)) if scale is None else scale)
        centre = halving_sum(x * self.centre)
        return factor, factor * (centre - self.distance.constant)

    def pieces(self, start: int = 0) -> Iterator[tuple[int, Tensor]]:
        # ->  (C, D) each, from row `first`
        """All rows from `start` on, as many at once as the memory allows, for products with what `query` gives."""
        for first in range(start, self.count, self.step):
            chunk = slice(first, min(first + self.step, self.count))
            yield first, self.ready(chunk) if self.rows is None else self.rows[chunk]

    def values(self, x: Tensor, columns: slice = slice(None)) -> Tensor:
        # x: (Q, D) from `query`  ->  (Q, C), C a multiple of BLOCK, inf where there is no reference
        """Canonical distances times a power of two, up to a constant for each query and up to its error."""
        bias = self.bias[columns]
        start = columns.start or 0
        rows = self.ready(slice(start, start + len(bias))) if self.rows is None else self.rows[columns]
        with exact_float32_products(x.device):
            return torch.addmm(bias, x, rows.T)

    def ready(self, rows: slice) -> Tensor:
        # ->  (N, D), zeros where there is no reference
        prepared = torch.empty(rows.stop - rows.start, len(self.centre), dtype=self.dtype, device=self.centre.device)
        prepared[max(self.count - rows.start, 0) :] = 0
        for chunk in self._steps(rows.start, min(rows.stop, self.count)):
            x = self.centred(self._read(chunk)).mul_(self.scale)
            x = x.nan_to_num_().clamp_(-1, 1).mul_(-self.distance.factor)
            prepared[chunk.start - rows.start : chunk.stop - rows.start] = x
        return prepared

    def _read(self, rows: slice) -> Tensor:
        # ->  (N, D)
        return self.reference[rows if self.subset is None else self.subset[rows]]

    def _steps(self, start: int, stop: int) -> Iterator[slice]:
        step = rows_at_once(self.reference)
        return (slice(first, min(first + step, stop)) for first in range(start, stop, step))

    def centred(self, rows: Tensor, centred: bool = True) -> Tensor:
        # rows: (N, D)  ->  (N, D) float64
        if self.distance.unit:
            rows = self.distance.prepared(rows)
        # Torch widens the rows as it reads them.
        return rows - self.centre if centred else rows.double()


def _sizes(normalization: Normalization, longest: Tensor) -> Tensor:
    # ->  (3,) float64
    longest = longest if normalization.longest is None else normalization.longest
    return torch.stack(
        [normalization.scale, normalization.scale * longest, normalization.scale * normalization.centre.norm()]
    )


class _Precision:
    """The process-wide precision of float32 products: "ieee" while any thread needs it, then as it was before.

    Another setting would let a product be rounded to fewer bits, which would break the bound.
    """

    def __init__(self) -> None:
        self.lock, self.users = threading.Lock(), 0
        self.before: dict[Any, str] = {}

    def take(self) -> None:
        with self.lock:
            self.users += 1
            for backend in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul):  # type: ignore[attr-defined]
                if backend.fp32_precision != "ieee":
                    self.before[backend] = backend.fp32_precision
                    backend.fp32_precision = "ieee"

    def give_back(self) -> None:
        with self.lock:
            self.users -= 1
            while self.before and not self.users:
                backend, precision = self.before.popitem()
                if backend.fp32_precision == "ieee":  # else somebody has chosen another one meanwhile
                    backend.fp32_precision = precision


_precision = _Precision()


@contextlib.contextmanager
def exact_float32_products(device: torch.device) -> Iterator[None]:
    _precision.take()
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        _precision.give_back()
