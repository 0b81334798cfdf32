"""Items with variables, reduced to the terms that a mapping of the variables can satisfy."""

from typing import NamedTuple

import torch
from torch import Tensor

from .._groups import group_rows
from .._pairs import join
from ..constraints import Constraint
from ..overlap import common


class Terms(NamedTuple):
    """Weighted terms; a mapping satisfies a term if it maps all its `pred` variables to its `ref` variables.

    Predicted variables are numbered 0..P-1, reference ones 0..R-1; P and R pad terms of fewer than K variables.
    The predicted variables of a term ascend, and no two terms of a document require the same pairs.
    """

    document: Tensor  # (T,) in [0, D), ascending
    pred: Tensor  # (T, K)
    ref: Tensor  # (T, K)
    weight: Tensor  # (T,) float64
    free: Tensor  # (D,) float64: the overlap of the items without variables
    n_pred: Tensor  # (D,): predicted variables
    n_ref: Tensor  # (D,)
    p: int
    r: int

    def select(self, documents: Tensor) -> "Terms":
        # documents: (E,) ascending
        """Select the terms of some documents and renumber these from 0."""
        new_index = torch.full_like(self.n_pred, -1).scatter(
            0, documents, torch.arange(len(documents), device=documents.device)
        )
        document = new_index[self.document]
        mine = document >= 0
        parts = (document[mine], self.pred[mine], self.ref[mine], self.weight[mine])
        return Terms(*parts, self.free[documents], self.n_pred[documents], self.n_ref[documents], self.p, self.r)

    def to(self, device: torch.device) -> "Terms":
        """Return the terms on a device."""
        *tables, p, r = self
        return Terms._make([*(table.to(device) for table in tables), p, r])


class VariableItems(NamedTuple):
    """Predicted or reference items of every document."""

    props: Tensor  # (D, N, F) int64
    is_var: Tensor  # (D, N, F) bool, False in the padding
    valid: Tensor  # (D, N) bool

    def select(self, documents: slice | Tensor, size: int) -> "VariableItems":
        """Select the first `size` items of some documents."""
        return VariableItems(*(table[:, :size][documents] for table in self))

    def variables(self) -> Tensor:
        # -> (D,): one more than the highest variable
        return torch.nn.functional.pad(self.props.where(self.is_var, -1).flatten(1), (1, 0), value=-1).amax(-1) + 1

    def rows(self) -> Tensor:
        # -> (L, 1 + 2 F): document, is_var, props
        return torch.cat([self.valid.nonzero()[:, :1], self.is_var[self.valid].long(), self.props[self.valid]], -1)


def read_terms(pred: VariableItems, ref: VariableItems, constraint: Constraint, distinct: bool) -> Terms:
    """Collect the terms of all pairs of items that are equal except for the names of variables.

    Equal items are merged, and so are terms of the same variables. With `distinct` equal items of one collection count
    once.
    """
    width = pred.props.shape[-1]
    n_pred, n_ref = pred.variables(), ref.variables()
    p, r = (int(n.max()) if n.numel() else 0 for n in (n_pred, n_ref))
    (pred_rows, pred_count), (ref_rows, ref_count) = merge_rows(pred.rows()), merge_rows(ref.rows())
    if distinct:
        pred_count, ref_count = torch.ones_like(pred_count), torch.ones_like(ref_count)
    groups = group_rows(torch.cat([_anonymize(pred_rows), _anonymize(ref_rows)])).ids
    left, right = join(*groups.split([len(pred_rows), len(ref_rows)]))
    weight = common(pred_count[left], ref_count[right], constraint).double()

    # The first occurrences of variables, in the same columns of the matching reference items.
    is_first = _partner(pred_rows) == torch.arange(width, device=pred_rows.device)
    first = ((pred_rows[:, 1 : 1 + width] > 0) & is_first)[left]
    a = pred_rows[left, -width:].masked_fill(~first, p)
    x = ref_rows[right, -width:].masked_fill(~first, r)
    a, order = a.sort(-1)
    rows = torch.cat([pred_rows[left, :1], a, x.gather(-1, order)], -1)
    rows, weight = merge_rows(rows, weight)
    document, a, x = rows.split([1, width, width], -1)
    used = (a < p).sum(-1)
    k = min(max(int(used.max()) if len(used) else 0, 1), width)
    free = weight.new_zeros(len(n_pred)).index_add(0, document[used == 0, 0], weight[used == 0])
    is_term = used > 0
    return Terms(document[is_term, 0], a[is_term, :k], x[is_term, :k], weight[is_term], free, n_pred, n_ref, p, r)


def merge_rows(rows: Tensor, weight: Tensor | None = None, reduce: str = "sum") -> tuple[Tensor, Tensor]:
    # rows: (L, C)  weight: (L,) or None: 1 each  ->  distinct rows in ascending order (U, C), their weights merged (U,)
    groups, _, order = group_rows(rows)
    group = groups[order]
    new = torch.ones_like(group, dtype=torch.bool)
    new[1:] = group[1:] > group[:-1]
    weight = torch.ones_like(order) if weight is None else weight[order]
    distinct = rows[order[new]]
    merged = weight.new_zeros(len(distinct)).scatter_reduce(0, group, weight, reduce, include_self=False)
    return distinct, merged


def _partner(items: Tensor) -> Tensor:
    # items: (U, 1 + 2 F)  ->  (U, F): the first column that holds the same variable
    _, is_var, value = items.split([1, items.shape[-1] // 2, items.shape[-1] // 2], -1)
    same = (value[..., None] == value[:, None]) & (is_var[:, None] > 0)
    return same.long().argmax(-1) if value.shape[-1] else value


def _anonymize(items: Tensor) -> Tensor:
    # items: (U, 1 + 2 F) document, is_var, value  ->  (U, 1 + 2 F): variables replaced by their first column
    head, value = items.split([1 + items.shape[-1] // 2, items.shape[-1] // 2], -1)
    return torch.cat([head, _partner(items).where(head[:, 1:] > 0, value)], -1)
