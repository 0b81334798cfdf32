"""Sums, orders and counts with the same bits on every device and for every tile: the ground floor of the domain."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def halving_sum(terms: Tensor) -> Tensor:
    # terms: (..., D)  ->  (...)
    """The sum over D: padded with zeros to a power of two, the second half is added to the first until one is left."""
    return _one_operator(terms) if torch.compiler.is_compiling() else _by_halves(terms)


def _by_halves(terms: Tensor) -> Tensor:
    size = 1 << max(terms.shape[-1] - 1, 0).bit_length()
    if size > terms.shape[-1]:
        terms = torch.nn.functional.pad(terms, (0, size - terms.shape[-1]))
    while size > 1:
        size //= 2
        terms = terms[..., :size] + terms[..., size:]
    return terms[..., 0]


# The number of halvings depends on D, and a compiler would make a graph for each.
@torch.library.custom_op("tensormetrics::halving_sum", mutates_args=())
def _one_operator(terms: Tensor) -> Tensor:
    return _by_halves(terms).clone()


@_one_operator.register_fake
def _(terms: Tensor) -> Tensor:
    return terms.new_empty(terms.shape[:-1])


def _keep_size(context: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    context.size = inputs[0].shape[-1]


_one_operator.register_autograd(
    lambda context, grad: grad[..., None].expand(*grad.shape, context.size), setup_context=_keep_size
)


def sum_by_position(terms: Tensor, place: Tensor) -> Tensor:
    # terms: (..., P), 0 where there is none  place: (..., P) int64, 1, 2, ... of the others in order  ->  (...)
    """The sum over P, in which neither padding nor the device decides how it is rounded."""
    return halving_sum(torch.zeros_like(terms).scatter_add_(-1, (place - 1).clamp(min=0), terms))


def row_norms(rows: Tensor) -> Tensor:
    # rows: (..., D) float64  ->  (...)
    return sqrt(halving_sum(rows * rows))


def sqrt(x: Tensor) -> Tensor:
    # Correctly rounded. On a CPU torch's is not: 1 % of its float64 roots differ from a GPU's in the last bit.
    if x.device.type != "cpu":
        return x.sqrt()
    root = torch.empty_like(x)
    np.sqrt(x.numpy(), out=root.numpy())
    return root


def by_content(rows: Tensor, step: int) -> Tensor:
    # rows: (N, D)  ->  (N,) int64
    """An order of the rows by their values alone, so that any permutation of them is read in the same order.

    Rows go by a weighted sum, a piece of `step` of them at a time, and only where different rows have equal sums by
    all their columns.
    """
    keys = content_keys(rows, step)
    order = keys.argsort(stable=True)
    ordered = keys[order]
    tied = (ordered[1:] == ordered[:-1]).nonzero()[:, 0]
    if any((rows[order[at]] != rows[order[at + 1]]).any() for at in tied.split(step)):
        return lexsort(*rows.unbind(1), keys)
    return order


def content_keys(rows: Tensor, step: int) -> Tensor:
    # rows: (N, D)  ->  (N,) float64, equal for equal rows
    weights = torch.arange(1, rows.shape[1] + 1, dtype=torch.float64, device="cpu").cos().to(rows.device)
    return torch.cat([weights[:0], *(halving_sum(piece.double() * weights) for piece in rows.split(step))])


def lexsort(*keys: Tensor) -> Tensor:
    # keys: (n,) each, the last one decides first  ->  (n,) int64
    order = keys[0].argsort(stable=True)
    for key in keys[1:]:
        order = order[key[order].argsort(stable=True)]
    return order


def distinct(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # values: (..., N)  ->  (..., M) the distinct ones, ascending, (..., M) their counts, (..., N) the place of each
    """`unique` along the last dimension; where fewer than M are distinct, zeros of count 0 follow."""
    if counted := _counted_of_range(values):
        least, first, counts = counted
        place = torch.zeros_like(counts).index_copy_(0, first, torch.arange(len(first), device="cpu"))
        return first + least, counts[first], place[values - least]
    ordered, order = values.sort(-1)
    place = torch.zeros_like(order)
    place[..., 1:] = (ordered[..., 1:] != ordered[..., :-1]).cumsum(-1)
    # Waits for the device, as any size that depends on values does.
    shape = (*values.shape[:-1], int(place.max()) + 1 if place.numel() else 0)
    count = place.new_zeros(shape).scatter_add_(-1, place, torch.ones_like(place))
    first = ordered.new_zeros(shape).scatter_(-1, place, ordered)
    return first, count, torch.empty_like(place).scatter_(-1, order, place)


def distinct_counts(values: Tensor) -> tuple[Tensor, Tensor]:
    # values: (..., N)  ->  (..., M), (..., M): `distinct` without the places
    if counted := _counted_of_range(values):
        least, first, counts = counted
        return first + least, counts[first]
    return distinct(values)[:2]


def _counted_of_range(values: Tensor) -> tuple[int, Tensor, Tensor] | None:
    # values: (..., N)  ->  the least, (M,) the distinct ones less that, (range,) counts: if the range is narrow
    if values.ndim != 1 or values.dtype != torch.int64 or values.device.type != "cpu" or not len(values):
        return None
    least, largest = (int(end) for end in values.aminmax())
    if largest - least >= 4 * len(values):
        return None
    counts = (values - least).bincount()
    return least, counts.nonzero()[:, 0], counts
