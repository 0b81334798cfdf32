"""A search with leading dimensions or padding is a search of the rows that are present, for each item of the batch."""

from collections.abc import Iterator

import torch
from torch import Tensor

from .. import _checks


class Present:
    """The rows of one item of a batch that are no padding; tensors have one leading dimension B."""

    def __init__(self, item: int, query_mask: Tensor, reference_mask: Tensor) -> None:
        # query_mask: (B, Q) bool  reference_mask: (B, N) bool
        self.item = item
        self.query, self.reference = (mask[item].nonzero()[:, 0] for mask in (query_mask, reference_mask))
        self.number = item * query_mask.shape[1] + self.query  # among the queries of all items
        self.place = torch.where(reference_mask[item], reference_mask[item].cumsum(0) - 1, -1)

    def of_query(self, values: Tensor) -> Tensor:
        # values: (B, Q, ...)  ->  (q, ...), q queries are present
        return values[self.item, self.query]

    def of_reference(self, values: Tensor) -> Tensor:
        # values: (B, N, ...)  ->  (n, ...), n references are present
        return values[self.item, self.reference]

    def of_pairs(self, values: Tensor) -> Tensor:
        # values: (B, Q, N)  ->  (q, n)
        return values[self.item][self.query[:, None], self.reference]

    def index(self, index: Tensor) -> Tensor:
        # index: (B, Q) int64 among all references, -1 = none  ->  (q,) among those present
        index = self.of_query(index)
        return torch.where(index < 0, -1, self.place[index])

    def original(self, index: Tensor) -> Tensor:
        # index: (q, k) int64 among the references present, -1 = none  ->  (q, k) among all
        if not len(self.reference):
            return index
        return torch.where(index < 0, -1, self.reference[index])


def flattened(name: str, values: Tensor, lead: torch.Size, *tail: int | str) -> Tensor:
    # values: (*lead, *tail)  ->  (B, *tail), B = 1 where there are no leading dimensions
    _checks.shape(name, values, *lead, *tail)
    return values.reshape(lead.numel(), *values.shape[len(lead) :])


def present_rows(
    query: Tensor, reference: Tensor, query_mask: Tensor | None, reference_mask: Tensor | None
) -> tuple[torch.Size, Iterator[Present]]:
    # query: (..., Q, D)  reference: (..., N, D)  query_mask: (..., Q) bool  reference_mask: (..., N) bool
    """The leading dimensions, and what is present in each of their items."""
    for name, rows in (("query", query), ("reference", reference)):
        _checks.shape(name, rows, "...", "N", "D")
    lead = query.shape[:-2]
    if reference.shape[:-2] != lead:
        raise ValueError(
            f"query and reference: got shapes {tuple(query.shape)} and {tuple(reference.shape)}, "
            "wanted the same leading dimensions"
        )
    _checks.same_device(query=query, query_mask=query_mask, reference_mask=reference_mask)
    masks = []
    for name, mask, rows in (("query_mask", query_mask, query), ("reference_mask", reference_mask, reference)):
        if mask is None:
            mask = torch.ones(rows.shape[:-1], dtype=torch.bool, device=query.device)
        if mask.dtype != torch.bool:
            raise ValueError(f"{name}: got {mask.dtype}, wanted torch.bool; write {name}.bool()")
        masks.append(flattened(name, mask, lead, rows.shape[-2]))
    return lead, (Present(item, *masks) for item in range(lead.numel()))
