"""Sums, orders and counts with the same bits on every device and for every tile; the other modules build on them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.numbers.exact_sums import COARSE, parts


def halving_sum(terms: Tensor) -> Tensor:
    # terms: (..., D)  ->  (...)
    """Sum over D, padded with zeros to a power of two: the second half is added to the first until one term remains."""
    return _one_operator(terms) if torch.compiler.is_compiling() else _sum_by_halving(terms)


def power_of_two(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()


def _sum_by_halving(terms: Tensor) -> Tensor:
    size = power_of_two(terms.shape[-1])
    if size > terms.shape[-1]:
        terms = torch.nn.functional.pad(terms, (0, size - terms.shape[-1]))
    while size > 1:
        size //= 2
        terms = terms[..., :size] + terms[..., size:]
    return terms[..., 0]


# The number of steps depends on D, so that torch.compile would create a graph for each.
@torch.library.custom_op("tensormetrics::halving_sum", mutates_args=())
def _one_operator(terms: Tensor) -> Tensor:
    return _sum_by_halving(terms).clone()


@_one_operator.register_fake
def _(terms: Tensor) -> Tensor:
    return terms.new_empty(terms.shape[:-1])


def _keep_size(context: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    context.size = inputs[0].shape[-1]


_one_operator.register_autograd(
    lambda context, grad: grad[..., None].expand(*grad.shape, context.size), setup_context=_keep_size
)


def sum_by_position(terms: Tensor, position: Tensor) -> Tensor:
    # terms: (..., P)  position: (..., P) int64, 1, 2, ... in order; padding has position 0, or is 0 at any position
    # ->  (...)
    """Sum over P, with rounding that depends neither on padding nor on the device."""
    size = terms.shape[-1]
    size = size if torch.compiler.is_compiling() else power_of_two(size)
    table = terms.new_zeros(*terms.shape[:-1], size + 1)
    return halving_sum(table.scatter_add_(-1, position, terms)[..., 1:])


def rows_per_chunk(tensor: Tensor) -> int:
    """Return the number of rows to process at once, so that temporary tensors stay small."""
    # On a CPU they stay in its cache; on a GPU a small chunk takes as long as a large one.
    return max((2**20 if tensor.is_cpu else 2**24) // max(tensor.shape[1:].numel(), 1), 1)


def chunk_slices(stop: int, step: int, start: int = 0) -> list[slice]:
    return [slice(first, min(first + step, stop)) for first in range(start, stop, step)]


def largest_of_columns(rows: Tensor, prepare: Callable[[Tensor], Tensor] = Tensor.double) -> Tensor:
    # rows: (N, D)  ->  (D,) float64, maximum absolute values
    largest = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for chunk in rows.split(rows_per_chunk(rows)) if len(rows) else ():
        largest = torch.maximum(largest, prepare(chunk).abs().amax(0))
    return largest


def class_parts(
    rows: Tensor, codes: Tensor, classes: int, units: Tensor, prepare: Callable[[Tensor], Tensor] = Tensor.double
) -> Tensor:
    # rows: (N, D)  codes: (N,) int64 below `classes`  units: (D,), `unit_of` the largest of each column
    # ->  (parts, classes, D) float64, exact when summed over several sets of rows; `total` adds up the parts
    """Sum the rows of each class after `prepare`, in float64, with the same bits for any order of the rows."""
    sums = torch.zeros(len(COARSE), classes, rows.shape[1], dtype=torch.float64, device=rows.device)
    # A chunk fits into a CPU's cache; with fewer rows than classes the sums would take longer than the rows.
    step = max(rows_per_chunk(rows) // (8 if rows.device.type == "cpu" else 1), classes, 1)
    for chunk, chunk_codes in zip(rows.split(step), codes.split(step), strict=True) if len(rows) else ():
        order = chunk_codes.argsort(stable=True)
        chunk_classes, lengths = chunk_codes[order].unique_consecutive(return_counts=True)
        for sum_part, part in zip(sums, parts(prepare(chunk[order]), units, COARSE), strict=True):
            sum_part[chunk_classes] += torch.segment_reduce(part, "sum", lengths=lengths)
    return sums


def row_norms(rows: Tensor) -> Tensor:
    # rows: (..., D) float64  ->  (...)
    return sqrt(halving_sum(rows * rows))


def sqrt(x: Tensor) -> Tensor:
    # Correctly rounded, unlike torch.sqrt on a CPU: 1 % of its float64 roots differ from a GPU's in the last bit.
    if x.device.type != "cpu":
        return x.sqrt()
    root = torch.empty_like(x)
    np.sqrt(x.numpy(), out=root.numpy())
    return root


def argsort_by_content(rows: Tensor, step: int) -> Tensor:
    # rows: (N, D)  ->  (N,) int64
    """Order the rows by their values alone, so that every permutation of them yields the same sequence of rows.

    Rows are sorted by a weighted sum, computed in chunks of `step` rows; only if different rows have equal sums are
    they sorted by all their columns.
    """
    keys = content_keys(rows, step)
    order = keys.argsort(stable=True)
    ordered = keys[order]
    tied = (ordered[1:] == ordered[:-1]).nonzero()[:, 0]
    if any((rows[order[i]] != rows[order[i + 1]]).any() for i in tied.split(step)):
        return lexsort(*rows.unbind(1), keys)
    return order


def content_keys(rows: Tensor, step: int) -> Tensor:
    # rows: (N, D)  ->  (N,) float64, equal for equal rows
    weights = torch.arange(1, rows.shape[1] + 1, dtype=torch.float64, device="cpu").cos().to(rows.device)
    return torch.cat([weights[:0], *(halving_sum(chunk.double() * weights) for chunk in rows.split(step))])


def lexsort(*keys: Tensor) -> Tensor:
    # keys: (n,) each, the last one is the primary key  ->  (n,) int64
    order = keys[0].argsort(stable=True)
    for key in keys[1:]:
        order = order[key[order].argsort(stable=True)]
    return order


def distinct(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # values: (..., N)  ->  (..., M) distinct values, ascending, (..., M) their counts, (..., N) index of each value
    """Apply `unique` along the last dimension; rows of fewer than M distinct values are padded with count 0."""
    if dense := _count_dense_range(values):
        smallest, first, counts = dense
        index = torch.zeros_like(counts).index_copy_(0, first, torch.arange(len(first), device="cpu"))
        return first + smallest, counts[first], index[values - smallest]
    ordered, order = values.sort(-1)
    index = torch.zeros_like(order)
    index[..., 1:] = (ordered[..., 1:] != ordered[..., :-1]).cumsum(-1)
    # Synchronizes with the device, since the size depends on values.
    shape = (*values.shape[:-1], int(index.max()) + 1 if index.numel() else 0)
    count = index.new_zeros(shape).scatter_add_(-1, index, torch.ones_like(index))
    first = ordered.new_zeros(shape).scatter_(-1, index, ordered)
    return first, count, torch.empty_like(index).scatter_(-1, order, index)


def _count_dense_range(values: Tensor) -> tuple[int, Tensor, Tensor] | None:
    # values: (..., N)  ->  minimum, (M,) distinct values minus that, (range,) counts; None if the range is wide
    if values.ndim != 1 or values.dtype != torch.int64 or values.device.type != "cpu" or not len(values):
        return None
    smallest, largest = (int(end) for end in values.aminmax())
    if largest - smallest >= 4 * len(values):
        return None
    counts = (values - smallest).bincount()
    return smallest, counts.nonzero()[:, 0], counts
