"""The overlap of two collections: the heaviest relation between their items that a constraint allows."""

from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor

from ...assignment import linear_sum_assignment
from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from . import _lengths
from ._groups import count_groups, group_rows
from .constraints import Constraint


class Overlap(NamedTuple):
    """Overlap of prediction and reference, and of each with itself."""

    cross: Tensor  # (...)
    pred: Tensor  # (...)
    ref: Tensor  # (...)


class Pairs(NamedTuple):
    """An overlap and its pairs; -1 is unmatched, None if the constraint allows several partners."""

    value: Tensor  # (...)
    ref_of_pred: Tensor | None  # (..., N) int64
    pred_of_ref: Tensor | None  # (..., M) int64


def read_similarity(similarity: Tensor, n_pred: Tensor | None, n_ref: Tensor | None) -> tuple[Tensor, ...]:
    # similarity: (..., N, M)  n_pred, n_ref: (...)
    # ->  gains (..., N, M), never negative and 0 in the padding; n_pred, n_ref; False where one was NaN or +inf (...)
    similarity, n_pred, n_ref = without_padding(similarity, n_pred, n_ref)
    pairs = similarity.flatten(-2)
    valid = pairs.amax(-1) < torch.inf if pairs.shape[-1] else torch.ones_like(n_pred, dtype=torch.bool)
    return similarity.nan_to_num(0, 0, 0).clamp(min=0), n_pred, n_ref, valid


def without_padding(
    similarity: Tensor,  # (..., N, M)
    n_pred: Tensor | None,  # (...) or None: all
    n_ref: Tensor | None,  # (...)
) -> tuple[Tensor, Tensor, Tensor]:
    # -> similarity (..., N, M), at least single precision, 0 in the padding; n_pred, n_ref (...)
    checks.shape("similarity", similarity, "...", "N", "M")
    checks.floating("similarity", similarity)
    *batch, n, m = similarity.shape
    padded = n_pred is not None or n_ref is not None
    n_pred = _lengths.full_or_clamped("n_pred", n_pred, similarity, batch, n)
    n_ref = _lengths.full_or_clamped("n_ref", n_ref, similarity, batch, m)
    if similarity.dtype in (torch.float16, torch.bfloat16):
        similarity = similarity.float()
    if padded:
        valid = _lengths.mask(n_pred, n)[..., None] & _lengths.mask(n_ref, m)[..., None, :]
        similarity = similarity.where(valid, 0)
    return similarity, n_pred, n_ref


@overload
def set_overlap(
    similarity: Tensor,
    n_pred: Tensor | None = ...,
    n_ref: Tensor | None = ...,
    constraint: str | Constraint = ...,
    return_pairs: Literal[False] = ...,
) -> Tensor: ...
@overload
def set_overlap(
    similarity: Tensor,
    n_pred: Tensor | None = ...,
    n_ref: Tensor | None = ...,
    constraint: str | Constraint = ...,
    *,
    return_pairs: Literal[True],
) -> Pairs: ...
@takes_arrays
def set_overlap(
    similarity: Tensor,
    n_pred: Tensor | None = None,
    n_ref: Tensor | None = None,
    constraint: str | Constraint = "<->",
    return_pairs: bool = False,
) -> Tensor | Pairs:
    """Compute the largest sum of similarities over the pairs of items that a constraint allows, in float64.

    Shapes: similarity: (..., N, M); n_pred: (...); n_ref: (...) -> (...).

    Higher is better. Pairs of similarity <= 0 are never selected, so -inf forbids a pair. `n_pred` and `n_ref` (int,
    default all) are the numbers of items; entries beyond them never matter. NaN or +inf among a document's similarities
    makes its value NaN. Differentiable in `similarity` through the selected pairs; half types are summed from float32.
    `return_pairs` adds the partner of each item, -1 for none; `~` allows many partners and is a ValueError.

    >>> set_overlap(torch.tensor([[0.9, 0.5], [0.8, 0.1]]))
    tensor(1.3000, dtype=torch.float64)
    """
    constraint = Constraint.parse(constraint)
    if return_pairs and constraint is Constraint.MANY_TO_MANY:
        raise ValueError("return_pairs: got '~', under which an item has many partners; compare similarity > 0 instead")
    gain, n_pred, n_ref, valid = read_similarity(similarity, n_pred, n_ref)
    ref_of_pred = pred_of_ref = None
    if constraint is Constraint.MANY_TO_MANY:
        total = gain.sum((-2, -1), dtype=torch.float64)
    elif constraint is Constraint.ONE_TO_ONE:
        solution = linear_sum_assignment(gain, maximize=True, row_lengths=n_pred, col_lengths=n_ref, check=False)
        total = solution.cost
        if return_pairs:
            ref_of_pred = _drop_worthless(solution.col_of_row, gain)
            pred_of_ref = _drop_worthless(solution.row_of_col, gain.mT)
    elif constraint is Constraint.ONE_TO_MANY:
        total, ref_of_pred = _best_partners(gain)
    else:
        total, pred_of_ref = _best_partners(gain.mT)
    total = total.masked_fill(~valid, torch.nan)
    return Pairs(total, ref_of_pred, pred_of_ref) if return_pairs else total


def _best_partners(gain: Tensor) -> tuple[Tensor, Tensor]:
    # gain: (..., N, M)  ->  total (...), partner (..., N)
    if gain.shape[-1] == 0:
        return gain.sum((-2, -1), dtype=torch.float64), gain.new_full(gain.shape[:-1], -1, dtype=torch.int64)
    best, partner = gain.max(-1)
    return best.sum(-1, dtype=torch.float64), partner.where(best > 0, -1)


def _drop_worthless(partner: Tensor, gain: Tensor) -> Tensor:
    # partner: (..., N)  gain: (..., N, M)  ->  (..., N)
    if gain.shape[-1] == 0:
        return partner
    partner_gain = gain.gather(-1, partner.clamp(min=0)[..., None])[..., 0]
    return partner.where(partner_gain > 0, -1)


@takes_arrays
def multiset_overlap(
    pred_keys: Tensor,
    ref_keys: Tensor,
    n_pred: Tensor | None = None,
    n_ref: Tensor | None = None,
    constraint: str | Constraint = "<->",
    duplicates: str = "multiset",
    *,
    columns: bool = False,
) -> Overlap:  # int64
    """Compute the overlap of two multisets of items that are equal or not: exact counts, no pairwise matrix.

    Shapes: pred_keys: (..., N) int, or (..., N, F) with columns=True; ref_keys: (..., M) int, or (..., M, F); n_pred:
    (...); n_ref: (...) -> int64.

    With p and r the counts of an item in prediction and reference, cross is the sum over items of min(p, r) under
    `<->`, p [r > 0] under `->`, r [p > 0] under `<-` and p r under `~`; a self-overlap is the number of items, under
    `~` the sum of squares. With `columns` an item is a row of F numbers; rows are equal if all columns are.
    `duplicates`: see `Policy`. `n_pred` and `n_ref` are the numbers of items; entries beyond them never matter.

    >>> multiset_overlap(torch.tensor([1, 2, 2]), torch.tensor([1, 1, 1, 2])).cross
    tensor(2)
    """
    constraint = Constraint.parse(constraint)
    checks.check_choice("duplicates", duplicates, ("multiset", "set", "set_cross"))
    checks.integral("pred_keys", pred_keys)
    checks.integral("ref_keys", ref_keys)
    if not columns:
        pred_keys, ref_keys = pred_keys[..., None], ref_keys[..., None]
    *batch, n, width = pred_keys.shape
    m = ref_keys.shape[-2]
    checks.shape("ref_keys", ref_keys, *batch, "M", width)
    checks.same_device(pred_keys=pred_keys, ref_keys=ref_keys)
    n_pred = _lengths.full_or_clamped("n_pred", n_pred, pred_keys, batch, n)
    n_ref = _lengths.full_or_clamped("n_ref", n_ref, ref_keys, batch, m)

    ids = group_rows(torch.cat([pred_keys.long(), ref_keys.long()], -2)).ids
    counted = _lengths.mask_of_both((n_pred, n_ref), (n, m))
    return overlap_of_groups(ids, counted, n, constraint, duplicates)


def overlap_of_groups(
    ids: Tensor, counted: Tensor, n: int, constraint: Constraint = Constraint.ONE_TO_ONE, duplicates: str = "multiset"
) -> Overlap:
    # ids: (..., N + M)  counted: (..., N + M) bool, broadcast; rows that do not count have any id  ->  int64
    """Compute `multiset_overlap` of items that are equal if their ids are."""
    p, r = count_groups(ids, counted, n)
    if duplicates == "set":
        p, r = p.clamp(max=1), r.clamp(max=1)
    once = duplicates == "set_cross" and constraint is Constraint.ONE_TO_ONE
    cross = common(p.clamp(max=1), r.clamp(max=1), constraint) if once else common(p, r, constraint)
    if constraint is Constraint.MANY_TO_MANY:
        return Overlap(cross.sum(-1), (p * p).sum(-1), (r * r).sum(-1))
    return Overlap(cross.sum(-1), p.sum(-1), r.sum(-1))


def common(p: Tensor, r: Tensor, constraint: Constraint) -> Tensor:
    # p, r: (..., K) counts of each item  ->  (..., K)
    if constraint is Constraint.ONE_TO_ONE:
        return torch.minimum(p, r)
    if constraint is Constraint.ONE_TO_MANY:
        return p * (r > 0)
    return r * (p > 0) if constraint is Constraint.MANY_TO_ONE else p * r
