"""Classification by the nearest class centroid."""

import itertools
from typing import Any, cast

import torch
from torch import Tensor
from torch import distributed as dist
from typing_extensions import Unpack

from ... import _checks
from ..._checks import takes_arrays
from ..._distributed import all_reduce
from ..._exact_sums import COARSE, parts, total, unit_of
from ..inputs import (
    RetrievalInputs,
    as_embeddings,
    both_or_neither,
    budget,
    check_squares,
    class_parts,
    comparable_labels,
    few_rows,
    finite_rows,
    largest_of_columns,
)
from ..ranking.sharded import gathered_scores
from ..search.distance import DISTANCES, Distance, DistanceName
from ..search.knn import References, TorchKNN
from .embedding_metric import EmbeddingOptions
from .query_metric import Average, OnLone, QueryMetric

SIDES = "query", "query_labels", "reference", "reference_labels"
MOST_CELLS = 2**20  # queries times references of an item of a batch; for more, each item is searched by itself


@takes_arrays
@torch.no_grad()
def nearest_centroid(
    query: Tensor,
    query_labels: Tensor,
    reference: Tensor | None = None,
    reference_labels: Tensor | None = None,
    *,
    self_index: Tensor | None = None,
    distance: DistanceName = "l2",
    memory_budget: int | None = None,
) -> Tensor:
    """1 if no class mean of the references is nearer than that of the query's own class, else 0.

    Shapes: query: (..., Q, D); query_labels, self_index: (..., Q); reference: (..., N, D); reference_labels: (..., N)
    -> (..., Q) float64.

    A query that is itself a reference (`self_index`, -1 = none; all queries where there is no reference set) is taken
    out of its class's mean; NaN where nothing is left of the class. Ties go to the smaller label. Means are float64,
    for "cosine" of rows of length 1. References that hold NaN or infinity are left out of the means; a query that does
    has NaN. Higher is better. ValueError for arguments that do not fit each other.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> nearest_centroid(x, labels)
    tensor([1., 1., 1., 1., 0.], dtype=torch.float64)
    """
    _checks.check_choice("distance", distance, DISTANCES)
    _checks.shape("query", query, "...", "Q", "D")
    both_or_neither(reference=reference, reference_labels=reference_labels)
    if reference is None or reference_labels is None:
        reference, reference_labels = query, query_labels
        if self_index is None:
            self_index = torch.arange(query.shape[-2], device=query.device).expand(query.shape[:-1])
    if query.ndim > 2:
        others = {
            "query_labels": query_labels,
            "reference": reference,
            "reference_labels": reference_labels,
            "self_index": self_index,
        }
        return _each_item(query, others, distance, memory_budget)
    sides = _checked(query, query_labels, reference, reference_labels, self_index=self_index)
    return checked_centroids(sides, DISTANCES[distance], memory_budget)


def _checked(
    query: Tensor,  # (Q, D)
    query_labels: Tensor,  # (Q,)
    reference: Tensor,  # (N, D)
    reference_labels: Tensor,  # (N,)
    *,
    self_index: Tensor | None,  # (Q,)
) -> RetrievalInputs:
    query, reference = as_embeddings("query", query), as_embeddings("reference", reference)
    _checks.shape("reference", reference, "N", query.shape[1])
    _checks.shape("query_labels", query_labels, len(query))
    _checks.shape("reference_labels", reference_labels, len(reference))
    _checks.same_device(query=query, query_labels=query_labels, reference=reference, reference_labels=reference_labels)
    query_labels, reference_labels = comparable_labels(query_labels, reference_labels)
    check_squares(query=query, reference=reference)
    if self_index is None:
        self_index = torch.full((len(query),), -1, device=query.device)
    return RetrievalInputs(query, query_labels, reference, reference_labels, 0, own=self_index)


@torch.no_grad()
def checked_centroids(sides: RetrievalInputs, distance: Distance, memory_budget: int | None) -> Tensor:
    # ->  (Q,) float64
    """`nearest_centroid` of sides that a door has checked. Of rows that stay on their ranks sums are put together."""
    spread, query, reference = sides.spread, sides.query, sides.reference
    mine, here = (slice(None), slice(None)) if spread is None else (spread.own(), spread.own_references())
    query_labels, self_index = sides.query_labels[mine], sides.self_index()[mine]
    scores = torch.full((len(query),), torch.nan, dtype=torch.float64, device=query.device)
    if not len(sides.reference_labels) or not len(sides.query_labels):
        return scores

    def prepared(rows: Tensor) -> Tensor:
        # ->  float64, zeros where a row is not finite
        return distance.prepared(rows.double().where(finite_rows(rows)[:, None], 0.0))

    def together(values: Tensor, how: Any) -> Tensor:
        return values if spread is None else all_reduce(values, how, spread.group)

    classes, codes = sides.reference_labels.unique(return_inverse=True)
    codes = codes[here]
    there = torch.cat([finite_rows(piece) for piece in reference.split(few_rows(reference))])
    number = torch.zeros_like(classes, dtype=torch.int64).index_add_(0, codes, there.long())
    number = together(number, dist.ReduceOp.SUM)
    units = unit_of(together(largest_of_columns(reference, prepared), dist.ReduceOp.MAX))
    sums = total(together(class_parts(reference, codes, len(classes), units, prepared), dist.ReduceOp.SUM))
    centroids = sums / number[:, None]
    knn, references = TorchKNN(distance.name, memory_budget=memory_budget), References(centroids, distance)
    own = torch.searchsorted(classes, query_labels.contiguous()).clamp(max=len(classes) - 1)
    itself = self_index >= 0
    if spread is None:  # else all rows are finite, and a query has the values of the reference that it is
        itself &= there[self_index]
    left = number[own] - itself.long()
    for piece in torch.arange(len(query), device=query.device).split(few_rows(query)) if len(query) else ():
        x, of_class = prepared(query[piece]), own[piece]
        same = x if spread else prepared(reference[self_index[piece]])
        taken = torch.where(itself[piece, None], same, 0.0)
        near = distance.canonical(x, (sums[of_class] - taken) / left[piece, None])
        other = knn.search(x, 1, references, of_class)[1][:, 0]
        rival = distance.canonical(x, centroids[other])
        won = (near < rival) | ((near == rival) & (of_class < other)) | (other < 0)
        scores[piece] = torch.where(finite_rows(query[piece]), won.double(), torch.nan)
    scores = scores.masked_fill((classes[own] != query_labels) | (left == 0), torch.nan)
    return gathered_scores(scores[None], spread)[0]


def _each_item(
    query: Tensor, others: dict[str, Tensor | None], distance: DistanceName, memory_budget: int | None
) -> Tensor:
    # query: (..., Q, D)  others: (..., *)  ->  (..., Q)
    """Return the scores of a batch; of small items many are scored at once."""
    lead = query.shape[:-2]
    given = {name: other for name, other in others.items() if other is not None}
    for name, other in given.items():
        if other.shape[: len(lead)] != lead:
            wanted = f"leading dimensions {tuple(lead)}, those of query"
            raise ValueError(f"{name}: got shape {tuple(other.shape)}, wanted {wanted}")
    (queries, width), references = query.shape[-2:], given["reference"].shape[len(lead)]
    if min(lead.numel(), queries, references) == 0 or queries * references > MOST_CELLS:
        scores = query.new_full(query.shape[:-1], torch.nan, dtype=torch.float64)
        for item in itertools.product(*map(range, lead)):
            of_item = {name: other[item] for name, other in given.items()}
            scores[item] = nearest_centroid(query[item], distance=distance, memory_budget=memory_budget, **of_item)
        return scores
    flat = {name: side.flatten(0, len(lead)) for name, side in {"query": query, **given}.items()}
    *tables, self_index = (flat.get(name) for name in (*SIDES, "self_index"))
    sides = _checked(*cast("list[Tensor]", tables), self_index=self_index)
    rows = sides.query, sides.query_labels, sides.reference, sides.reference_labels, sides.self_index()
    memory = budget(memory_budget, query.device)
    few = max(memory // (40 * queries * references + 64 * (queries + references) * width), 1)
    parts = zip(*(side.unflatten(0, (lead.numel(), -1)).split(few) for side in rows), strict=True)
    return torch.cat([_of_batch(*part, distance=DISTANCES[distance], memory=memory // 4) for part in parts]).view(
        query.shape[:-1]
    )


def _of_batch(
    query: Tensor,  # (B, Q, D)
    query_labels: Tensor,  # (B, Q)
    reference: Tensor,  # (B, N, D)
    reference_labels: Tensor,  # (B, N)
    self_index: Tensor,  # (B, Q)
    *,
    distance: Distance,
    memory: int,
) -> Tensor:
    # ->  (B, Q)
    """Return the scores of `checked_centroids` by a table of each item's queries and classes."""
    items, size = reference_labels.shape
    finite = [finite_rows(side.flatten(0, 1)) for side in (query, reference)]
    x, rows = (
        distance.prepared(side.flatten(0, 1).double().where(is_finite[:, None], 0.0))
        for side, is_finite in zip((query, reference), finite, strict=True)
    )
    labels, order = reference_labels.sort(stable=True)
    is_new = torch.nn.functional.pad(labels[:, 1:] != labels[:, :-1], (1, 0), value=False)
    ordered = is_new.cumsum(1)  # classes are numbered by their labels, from 0 in each item
    count = int(ordered[:, -1].max()) + 1
    item = torch.arange(items, device=query.device)[:, None]
    codes = (torch.empty_like(ordered).scatter_(1, order, ordered) + item * count).flatten()
    number = torch.zeros(items * count, dtype=torch.int64, device=query.device).index_add_(0, codes, finite[1].long())
    units = unit_of(rows.view(items, size, -1).abs().amax(1)).repeat_interleave(size, 0, output_size=len(rows))
    sums = torch.zeros(len(COARSE), len(number), rows.shape[1], dtype=torch.float64, device=query.device)
    for of_part, part in zip(sums, parts(rows, units, COARSE), strict=True):
        of_part.index_add_(0, codes, part)  # exact, and so in any order
    of_classes = total(sums)
    centroids = of_classes / number[:, None]

    at = torch.searchsorted(labels, query_labels.contiguous()).clamp(max=size - 1)
    has_class = labels.gather(1, at) == query_labels
    own = ordered.gather(1, at)
    of_class = (own + item * count).flatten()
    same = (self_index.clamp(min=0) + item * size).flatten()
    itself = (self_index.flatten() >= 0) & finite[1][same]
    left = number[of_class] - itself.long()
    taken = torch.where(itself[:, None], rows[same], 0.0)
    near = distance.canonical(x, (of_classes[of_class] - taken) / left[:, None]).view_as(own)
    cell = torch.arange(len(x) * count, device=query.device)
    column = cell % count + cell // (count * own.shape[1]) * count
    table = distance.of_pairs(x, centroids, cell // count, column, memory).view(*own.shape, count)
    classes = torch.arange(count, device=query.device)
    table = table.masked_fill(table.isnan() | (classes == own[..., None]), torch.inf)
    rival = table.amin(-1)
    other = torch.where(table == rival[..., None], classes, count).amin(-1)
    won = (near < rival) | ((near == rival) & (own < other)) | (rival == torch.inf)
    is_known = has_class & (left != 0).view_as(own) & finite[0].view_as(own)
    return won.double().where(is_known, torch.nan)


class NearestCentroidAccuracy(QueryMetric):
    """Share of queries whose nearest class mean is their own class's, in [0, 1]; see `nearest_centroid`.

    Options as in `PrecisionAtK`.
    """

    def __init__(
        self,
        *,
        average: Average = "micro",
        on_lone: OnLone = "exclude",
        distance: DistanceName = "l2",
        memory_budget: int | None = None,
        **kwargs: Unpack[EmbeddingOptions],
    ) -> None:
        super().__init__(
            None, None, average=average, on_lone=on_lone, distance=distance, memory_budget=memory_budget, **kwargs
        )

    def rows_may_stay(self) -> bool:
        return True

    def scores(self, sides: RetrievalInputs) -> tuple[Tensor, Tensor]:
        # ->  (Q,) float64, NaN = lone; (Q,) bool, lone
        if sides.ignore is not None:
            raise ValueError("cameras: got some, wanted none: a class mean cannot leave out references of each query")
        scores = checked_centroids(sides, DISTANCES[self.distance], self.memory_budget)
        return scores, scores.isnan()
