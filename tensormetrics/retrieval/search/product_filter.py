"""Filter by matrix products that approximate canonical distances, with an error bound.

The bits of a product depend on the device and the tile, so it may only exclude pairs, within its bound.
"""

import contextlib
import functools
import math
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.numbers.exact_sums import power_of_two
from ..deterministic import chunk_slices, halving_sum
from ..inputs import finite_rows
from . import operators
from .distance import Distance, rows_at_once

BLOCK = 64  # the number of columns of a filter is a multiple
_MAX_NORM = 2.0**40  # squares of larger norms may overflow, so the error is unbounded


class Normalization(NamedTuple):
    """Center that is subtracted from rows, and scale by which they are multiplied afterwards."""

    center: Tensor  # (D,) float64
    scale: Tensor  # () float64, a power of two


def robust_center(rows: Tensor, distance: Distance) -> Tensor:
    # rows: (N, D)  ->  (D,) float64
    """Return a robust center of the rows."""
    enough = min(max(2**19 // max(rows.shape[1], 1), 64), 1024)  # bounded memory for any number of columns
    sample = distance.prepared(rows[:: len(rows) // enough + 1])
    sample = sample.where(finite_rows(sample)[:, None], 0.0)
    # A median of the entire sample would take longer than a small search.
    # Deterministic mode rejects `median`, which returns indices.
    subsample = sample[:: len(sample) // 64 + 1].sort(0).values
    distances = (sample - subsample[(len(subsample) - 1) // 2]).norm(dim=1, keepdim=True)
    is_close = distances <= 4 * distances.median()  # a few huge rows would move the mean far from all others
    return torch.where(is_close, sample, 0.0).sum(0) / is_close.sum().clamp(min=1)


class Filter:
    """References prepared for matrix products that approximate canonical distances, with an error bound.

    Rows are centered, which keeps them short and the neighbors unchanged, scaled by a power of two, so that float32
    neither overflows nor loses small squares, and rounded to `dtype`: once if that needs at most `memory` bytes, else
    for each product. With u and v the unit roundoffs of `dtype` and float64, products have an error of at most
    (D + 8) u for any order of summation, canonical distances and centering one of (4 log2 D + 32) v, relative to the
    terms and including second-order terms (Higham, Accuracy and Stability of Numerical Algorithms, 2002, chapter 3,
    DOI 10.1137/1.9780898718027). References that contain NaN or infinity are masked: their products are infinite.
    With an explicit `normalization`, references may be longer than 1: then the bound is infinite.
    """

    scale: Tensor  # () float64, a power of two
    norm: Tensor  # () float64, scaled norm of the longest row
    center_norm: Tensor  # () float64, scaled norm of the center

    def __init__(
        self,
        reference: Tensor,
        distance: Distance,
        dtype: torch.dtype,
        memory: float = math.inf,
        subset: Tensor | None = None,
        normalization: Normalization | None = None,
    ) -> None:
        # reference: (R, D)  subset: (M,) int64, the references to use, None: all
        self.reference, self.subset = reference, subset
        self.distance, self.dtype = distance, dtype
        self.count = len(reference) if subset is None else len(subset)
        self.size, dim = -(-self.count // BLOCK) * BLOCK, reference.shape[1]
        kernels = operators.preparing(reference) if subset is None and self.count else None
        inputs = reference, distance.unit, normalization
        lengths: tuple[Tensor, ...] = kernels.lengths(*inputs) if kernels else self._lengths(normalization)
        self.center, self.norms, self.nonfinite, self.sizes = lengths  # sizes: (3,) float64
        self.scale, self.norm, self.center_norm = self.sizes.unbind()
        rows = memory / max(dim * dtype.itemsize, 1)
        self.step = self.size if self.size <= rows else max(int(rows / 4) // BLOCK, 1) * BLOCK

    def _lengths(self, normalization: Normalization | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # ->  (D,) center, (M,) norms, (M,) nonfinite, (3,)
        if normalization is None:
            sample = self.reference if self.subset is None else self.reference[self.subset[:: self.count // 1024 + 1]]
        center = self.center = robust_center(sample, self.distance) if normalization is None else normalization.center
        # Chunks kept in a list would lie between large freed blocks and fragment the memory.
        norms = torch.empty(self.count, dtype=torch.float64, device=center.device)
        for chunk in chunk_slices(self.count, rows_at_once(self.reference)):
            norms[chunk] = self.centered(self._read(chunk)).norm(dim=1)
        nonfinite = ~norms.isfinite()
        norms.masked_fill_(nonfinite, 0.0)
        longest = norms.amax()
        scale = power_of_two(longest) if normalization is None else normalization.scale
        return center, norms, nonfinite, torch.stack([scale, scale * longest, scale * center.norm()])

    def __len__(self) -> int:
        return self.size

    @functools.cached_property
    def bias(self) -> Tensor:
        # ->  (R',), R' the next multiple of BLOCK, inf where there is no reference
        bias = self.norms.new_full((self.size,), torch.inf, dtype=self.dtype)
        # In-place operations, because there may be very many references.
        bias[: self.count] = (self.norms * self.scale).square_().clamp_(max=1).mul_(self.distance.factor - 1)
        bias[: self.count].masked_fill_(self.nonfinite, torch.inf)
        return bias

    @functools.cached_property
    def rows(self) -> Tensor | None:
        # ->  (R', D), None if only chunks of it fit in memory
        return self.ready(slice(0, self.size)) if self.step == self.size else None

    @property
    def rounding(self) -> float:
        """Error bound of canonical distances and centering, relative to the terms."""
        return (4 * math.log2(max(len(self.center), 1)) + 32) * 2.0**-53

    def query(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        # rows: (Q, D)  ->  (Q, D) for `values`, (Q,) float64
        """Prepare queries and bound the error of their values, up to one constant per query."""
        x = torch.empty(rows.shape, dtype=self.dtype, device=rows.device)
        return x, self.error(self.scaled(rows, x))

    def scaled(self, rows: Tensor, out: Tensor) -> Tensor:
        # rows: (Q, D)  out: (Q, D) of the dtype of the filter  ->  (Q,) float64
        """Write prepared queries to `out` and return their norms; rows of norm NaN or at least 2^40 become zeros."""
        euclidean = self.distance.euclidean
        x = self.centered(rows, euclidean)
        norm = x.norm(dim=1)
        scale = self.scale if euclidean else power_of_two(norm)
        norm = norm * scale
        torch.mul(x, scale.unsqueeze(-1), out=out)
        out.masked_fill_(~(norm < _MAX_NORM)[:, None], 0.0)
        return norm

    def error(self, norm: Tensor, products: bool = True) -> Tensor:
        # norm: (Q,) float64, of prepared queries  products: include the error of products in `dtype`  ->  (Q,) float64
        finfo, dim, rounding = torch.finfo(self.dtype), len(self.center), self.rounding
        filtering = ((dim + 8) * finfo.eps / 2 if products else 0.0) + rounding
        if self.distance.euclidean:
            error = filtering * self.norm * (self.norm + 2 * norm) + rounding * norm * norm
        else:
            error = (filtering * self.norm + rounding * self.center_norm) * norm
        error = error + 8 * (dim + 8) * finfo.tiny * (1 + norm)
        return torch.where((norm < _MAX_NORM) & (self.norm <= 1), error, torch.inf)

    def affine_map(self, rows: Tensor, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
        # rows: (Q, D)  scale: (Q,) float64, None: as in `query`  ->  (Q,), (Q,) float64
        """Return the factor and shift that map canonical distances to `values`, within their error."""
        x = self.centered(rows, self.distance.euclidean)
        if self.distance.euclidean:
            factor = (self.scale * self.scale).expand(len(x))
            return factor, -factor * halving_sum(x * x)
        # A norm that is summed in another order may be above or below a power of two.
        factor = self.scale * (power_of_two(x.norm(dim=1)) if scale is None else scale)
        center = halving_sum(x * self.center)
        return factor, factor * (center - self.distance.constant)

    def chunks(self, start: int = 0) -> Iterator[tuple[int, Tensor]]:
        # ->  first row and (C, D) of each chunk
        """Yield all rows from `start` on in chunks that fit in memory, for products with the result of `query`."""
        for chunk in chunk_slices(self.count, self.step, start):
            yield chunk.start, self.ready(chunk) if self.rows is None else self.rows[chunk]

    def values(self, x: Tensor, columns: slice = slice(None)) -> Tensor:
        # x: (Q, D) from `query`  ->  (Q, C), C a multiple of BLOCK, inf where there is no reference
        """Compute canonical distances times a power of two, up to a constant of each query and within its error."""
        bias = self.bias[columns]
        start = columns.start or 0
        rows = self.ready(slice(start, start + len(bias))) if self.rows is None else self.rows[columns]
        with exact_float32_products(x.device):
            return torch.addmm(bias, x, rows.T)

    def ready(self, rows: slice) -> Tensor:
        # ->  (N, D), zeros where there is no reference
        prepared = torch.empty(rows.stop - rows.start, len(self.center), dtype=self.dtype, device=self.center.device)
        prepared[max(self.count - rows.start, 0) :] = 0
        for chunk in chunk_slices(min(rows.stop, self.count), rows_at_once(self.reference), rows.start):
            x = self.centered(self._read(chunk)).mul_(self.scale)
            x = x.nan_to_num_().clamp_(-1, 1).mul_(-self.distance.factor)
            prepared[chunk.start - rows.start : chunk.stop - rows.start] = x
        return prepared

    def _read(self, rows: slice) -> Tensor:
        # ->  (N, D)
        return self.reference[rows if self.subset is None else self.subset[rows]]

    def centered(self, rows: Tensor, centered: bool = True) -> Tensor:
        # rows: (N, D)  ->  (N, D) float64
        if self.distance.unit:
            rows = self.distance.prepared(rows)
        # Subtraction converts the rows to float64 while it reads them.
        return rows - self.center if centered else rows.double()


class _Precision:
    """Process-wide precision of float32 products: "ieee" while any thread needs it, then restored.

    Any other setting may round a product to fewer bits, which invalidates the bound.
    """

    def __init__(self) -> None:
        self.lock, self.users = threading.Lock(), 0
        self.before: dict[Any, str] = {}

    def __enter__(self) -> None:
        with self.lock:
            self.users += 1
            for backend in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul):  # type: ignore[attr-defined]
                if backend.fp32_precision != "ieee":
                    self.before[backend] = backend.fp32_precision
                    backend.fp32_precision = "ieee"

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            while self.before and not self.users:
                backend, precision = self.before.popitem()
                if backend.fp32_precision == "ieee":  # else it was changed in the meantime
                    backend.fp32_precision = precision


_precision = _Precision()


@contextlib.contextmanager
def exact_float32_products(device: torch.device) -> Iterator[None]:
    with _precision, torch.autocast(device.type, enabled=False):
        yield
