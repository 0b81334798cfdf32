"""What the backends of a nearest-neighbour search share: their arguments, unit rows, and the order of candidates."""

import torch
from torch import Tensor

from .. import _checks
from ._embeddings import as_embeddings


def search_arguments(
    query: Tensor, k: int, reference: Tensor, ref_includes_query: bool, self_index: Tensor | None
) -> tuple[Tensor, int, Tensor, Tensor]:
    # query: (Q, D)  reference: (R, D)  self_index: (Q,) integer  ->  (Q, D) floating, k, (R, D) floating, (Q,) int64
    """Checked arguments of a search. `self_index` comes back for either way of saying it, -1 for none."""
    k = _checks.integer_at_least("k", k, 1)
    query, reference = as_embeddings("query", query), as_embeddings("reference", reference)
    _checks.same_device(query=query, reference=reference, self_index=self_index)
    if query.shape[1] != reference.shape[1]:
        raise ValueError(
            f"query and reference: got shapes {tuple(query.shape)} and {tuple(reference.shape)}, "
            "wanted the same number of columns"
        )
    if self_index is not None:
        _checks.shape("self_index", self_index, len(query))
        _checks.integral("self_index", self_index)
        return query, k, reference, self_index.long()
    if not ref_includes_query:
        return query, k, reference, torch.full((len(query),), -1, device=query.device)
    if len(reference) < len(query):
        raise ValueError(
            f"ref_includes_query: got {len(query)} queries and {len(reference)} references, wanted references "
            "that begin with the queries"
        )
    return query, k, reference, torch.arange(len(query), device=query.device)


def nearest(values: Tensor, indices: Tensor, self_index: Tensor, k: int) -> tuple[Tensor, Tensor]:
    # values: (Q, C) smaller is nearer  indices: (Q, C), -1 for none  self_index: (Q,)  ->  (Q, k), (Q, k) int64
    """The first k candidates by (value, index) without self; where fewer are left, infinity and -1."""
    short = max(k - indices.shape[1], 0)
    values = torch.nn.functional.pad(values, (0, short), value=torch.inf)
    indices = torch.nn.functional.pad(indices, (0, short), value=-1)
    left_out = (indices < 0) | (indices == self_index[:, None])
    last = torch.iinfo(torch.int64).max
    indices, order = indices.masked_fill(left_out, last).sort(1)
    values, by_value = values.masked_fill(left_out, torch.inf).gather(1, order).sort(dim=1, stable=True)
    indices = indices.gather(1, by_value)[:, :k]
    return values[:, :k], indices.masked_fill(indices == last, -1)


def unit_rows(rows: Tensor) -> Tensor:
    # rows: (N, D) floating  ->  (N, D) of its dtype, with norm 1, or 0 where a row is zero
    norm = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64).to(rows.dtype)
    return rows / norm.where(norm > 0, 1)
