"""The order of neighbours: the canonical distance of a pair, and a filter with a bound on what it may be off by.

The canonical distance is made of elementwise float64 operations in one fixed order, so that it has the same bits on
every device and for every tile. A matrix product has not: it may only rule pairs out, within its bound.
"""

import numpy as np
import torch
from torch import Tensor

DISTANCES = ("l2", "sqeuclidean", "ip", "cosine")
_EUCLIDEAN = ("l2", "sqeuclidean")


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


def as_distance(delta: Tensor, distance: str) -> Tensor:
    """What a user calls the distance (for "ip" the inner product), from canonical distances."""
    if distance == "l2":
        return _sqrt(delta)
    return -delta if distance == "ip" else delta


def filter_rows(rows: Tensor, centre: Tensor, distance: str) -> Tensor:
    # rows: (N, D)  centre: (D,) float64, any point near the references  ->  (N, D) float64, for `filter_values`
    rows = rows.double()
    if distance in _EUCLIDEAN:
        return rows - centre
    if distance == "cosine":
        norm = _norm(rows)[:, None]
        return rows / torch.where(norm > 0, norm, 1.0)
    return rows


def filter_values(query: Tensor, reference: Tensor, distance: str) -> Tensor:
    # query: (Q, D)  reference: (R, D), both from filter_rows  ->  (Q, R) float64
    """Approximations of the canonical distances, each up to `filter_error` and one constant per query."""
    if distance in _EUCLIDEAN:
        return torch.addmm((reference * reference).sum(1), query, reference.T, alpha=-2)
    return query @ reference.T.neg()


def filter_error(query_norm: Tensor, reference_norm: Tensor, dim: int, distance: str) -> Tensor:
    """A bound on the error of `filter_values` for rows of filter_rows with these norms (or smaller ones).

    With u = 2^-53: a product of D terms is off by at most D u in any order of summation, the canonical distance by
    (log2 D + 4) u, centring by 2 u, in units of the terms' size. 2 D + 16 covers these with room for second-order
    terms and for the rounding of norms and comparisons (Higham, Accuracy and Stability of Numerical Algorithms, ch. 3).
    """
    size = (query_norm + reference_norm).square() if distance in _EUCLIDEAN else query_norm * reference_norm
    return (2 * dim + 16) * (2.0**-53 * size + torch.finfo(torch.float64).tiny)


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
