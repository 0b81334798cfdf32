"""Search with batch dimensions or padding: small items of the batch at once, large ones one after the other."""

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from ...core.arguments import checks
from ..inputs import as_embeddings, check_self_index, check_squares, finite_rows
from ..relevance import BatchGains, Triples, inverse_index, renumber_triples
from .direct_search import DirectSearch
from .distance import Distance
from .product_filter import Filter
from .stages import candidate_count, certify_topk

SMALL = 2**16  # maximal number of pairs of an item that is searched together with others


class BatchItem:
    """Rows of one item of a batch without padding; tensors have one leading dimension B."""

    def __init__(self, item: int, query_mask: Tensor, reference_mask: Tensor) -> None:
        # query_mask: (B, Q) bool  reference_mask: (B, N) bool
        self.item, self.queries = item, query_mask.shape[1]
        self.query, self.reference = (mask[item].nonzero()[:, 0] for mask in (query_mask, reference_mask))
        self.query_rows = item * query_mask.shape[1] + self.query  # among the queries of all items
        self.compact_index = torch.where(reference_mask[item], reference_mask[item].cumsum(0) - 1, -1)

    def of_query(self, values: Tensor) -> Tensor:
        # values: (B, Q, ...)  ->  (q, ...), the q valid queries
        return values[self.item, self.query]

    def of_reference(self, values: Tensor) -> Tensor:
        # values: (B, N, ...)  ->  (n, ...), the n valid references
        return values[self.item, self.reference]

    def of_pairs(self, values: Tensor) -> Tensor:
        # values: (B, Q, N)  ->  (q, n)
        return values[self.item][self.query[:, None], self.reference]

    def of_triples(self, gains: BatchGains) -> Triples:
        """Select the triples of valid pairs."""
        return renumber_triples(gains(self.item), inverse_index(self.query, self.queries), self.compact_index)

    def index(self, index: Tensor) -> Tensor:
        # index: (B, Q) int64 into all references, -1 if none  ->  (q,) into the valid ones
        index = self.of_query(index)
        return torch.where(index < 0, -1, self.compact_index[index])

    def original(self, index: Tensor) -> Tensor:
        # index: (q, k) int64 into the valid references, -1 if none  ->  (q, k) into all
        if not len(self.reference):
            return index
        return torch.where(index < 0, -1, self.reference[index])


class Batch:
    """Queries and references of B items with padding; tensors have one batch dimension, of size 1 without batches."""

    def __init__(
        self,
        query: Tensor,
        reference: Tensor,
        query_mask: Tensor | None,
        reference_mask: Tensor | None,
        self_index: Tensor | None,
    ) -> None:
        # query: (..., Q, D)  reference: (..., N, D)  query_mask, self_index: (..., Q)  reference_mask: (..., N)
        for name, rows in (("query", query), ("reference", reference)):
            checks.shape(name, rows, "...", "N", "D")
        self.batch_shape = query.shape[:-2]
        if reference.shape[:-2] != self.batch_shape or reference.shape[-1] != query.shape[-1]:
            raise ValueError(
                f"query and reference: got shapes {tuple(query.shape)} and {tuple(reference.shape)}, "
                "wanted the same leading dimensions and columns"
            )
        checks.same_device(
            query=query,
            reference=reference,
            query_mask=query_mask,
            reference_mask=reference_mask,
            self_index=self_index,
        )
        self.query, self.reference = (
            as_embeddings(name, rows.flatten(0, -2)).view(self.batch_shape.numel(), *rows.shape[-2:])
            for name, rows in (("query", query), ("reference", reference))
        )
        self.query_mask = self._mask("query_mask", query_mask, self.query)
        self.reference_mask = self._mask("reference_mask", reference_mask, self.reference)
        if self_index is None:
            self_index = torch.full(query.shape[:-1], -1, device=query.device)
        checks.integral("self_index", self_index)
        flat = self.flattened("self_index", self_index, query.shape[-2])
        self.self_index = check_self_index(flat.flatten(), flat.numel(), reference.shape[-2]).view_as(flat)

    def _mask(self, name: str, mask: Tensor | None, rows: Tensor) -> Tensor:
        # mask: (..., N) bool  rows: (B, N, D)  ->  (B, N)
        if mask is None:
            return torch.ones(rows.shape[:-1], dtype=torch.bool, device=rows.device)
        if mask.dtype != torch.bool:
            raise ValueError(f"{name}: got {mask.dtype}, wanted torch.bool; write {name}.bool()")
        return self.flattened(name, mask, rows.shape[1])

    def __len__(self) -> int:
        return len(self.query)

    def flattened(self, name: str, values: Tensor, *tail: int | str) -> Tensor:
        # values: (..., *tail)  ->  (B, *tail)
        checks.shape(name, values, *self.batch_shape, *tail)
        return values.reshape(len(self), *values.shape[len(self.batch_shape) :])

    def item(self, item: int) -> BatchItem:
        return BatchItem(item, self.query_mask, self.reference_mask)

    def search_small_items(
        self, k: int, distance: Distance, exact: bool, memory: int, ignored: Tensor | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        # ignored: (B, Q, N) bool  ->  (b,) int64 items, (b, Q, k) int64 into the references of an item, -1 if none
        """Yield the k nearest references of the small items for which they are proven; k is at most N."""
        (queries, dim), size = self.query.shape[1:], self.reference.shape[1]
        rows = self.query.flatten(0, 1), self.reference.flatten(0, 1), self.self_index.flatten()
        direct = DirectSearch(*rows, k, distance, memory, len(self))
        if direct.can_run:
            masks = self.query_mask[..., None], self.reference_mask[..., None]
            check_squares(query=self.query.where(masks[0], 0).flatten(0, 1))
            check_squares(reference=self.reference.where(masks[1], 0).flatten(0, 1))
            excluded = ~(masks[0] & masks[1].mT)
            excluded = excluded if ignored is None else excluded | ignored
            nearest = direct.search(excluded.flatten(0, 1))[1].view(len(self), queries, k)
            yield torch.arange(len(self), device=nearest.device), nearest
            return
        max_pairs = SMALL // 4 if k == size else SMALL  # sorting all values takes longer
        if len(self) < 2 or not 0 < queries * size <= max_pairs:
            return
        step = max(memory // (96 * queries * size + 32 * dim * (queries + size)), 1)
        for start in range(0, len(self), step):
            nearest, proven = self._search(slice(start, start + step), k, distance, exact, memory, ignored)
            yield start + proven.nonzero()[:, 0], nearest[proven]

    def distances(self, items: Tensor, nearest: Tensor, distance: Distance, memory: int) -> Tensor:
        # items: (b,) int64  nearest: (b, Q, k) int64  ->  (b, Q, k) float64, arbitrary where the index is -1
        queries, size = self.query.shape[1], self.reference.shape[1]
        row = (items[:, None] * queries + torch.arange(queries, device=items.device))[..., None].expand_as(nearest)
        pairs = row.flatten(), (items[:, None, None] * size + nearest.clamp(min=0)).flatten()
        rows = self.query.flatten(0, 1), self.reference.flatten(0, 1)
        return distance.from_canonical(distance.of_pairs(*rows, *pairs, memory // 4)).view_as(nearest)

    def _search(
        self, items: slice, k: int, distance: Distance, exact: bool, memory: int, ignored: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        # ->  (b, Q, k) int64, (b,) bool
        valid = self.query_mask[items], self.reference_mask[items]
        query = self.query[items].where(valid[0][..., None], 0)
        reference = self.reference[items].where(valid[1][..., None], 0)
        (count, queries, dim), size = query.shape, reference.shape[1]
        query, reference = query.flatten(0, 1), reference.flatten(0, 1)
        check_squares(query=query, reference=reference)
        filter_ = Filter(reference, distance, torch.float64)
        x, error = filter_.query(query)
        assert filter_.rows is not None  # the filter has no memory limit
        operands = x.view(count, queries, dim), filter_.rows[: count * size].view(count, size, dim)
        values = torch.baddbmm(filter_.bias[: count * size].view(count, 1, size), operands[0], operands[1].mT)
        masked = torch.arange(size, device=x.device) == self.self_index[items, :, None]
        masked |= ~(valid[0][..., None] & valid[1][:, None])
        values.masked_fill_(masked if ignored is None else masked | ignored[items], torch.inf)
        values, columns = values.topk(candidate_count(k, size, exact), largest=False)
        first = size * torch.arange(count, device=x.device)[:, None, None]
        deltas = functools.partial(distance.of_pairs, query, reference, memory=memory // 4)
        flat = values.flatten(0, 1), (columns + first).flatten(0, 1)
        nearest, proven = certify_topk(*flat, error, k, deltas, values.shape[2] == size, exact)
        finite = finite_rows(query)
        nearest = nearest.masked_fill(~finite[:, None], -1).view(count, queries, k)
        proven = ((proven | ~finite).view(count, queries) | ~valid[0]).all(1)
        return torch.where(nearest < 0, -1, nearest - first), proven
