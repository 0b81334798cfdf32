"""Classification by the nearest class centroid."""

import itertools
from typing import Any, cast

import torch
from torch import Tensor
from torch import distributed as dist
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.metric.distributed import all_reduce
from ...core.numbers.exact_sums import COARSE, parts, total, unit_of
from ..deterministic import class_parts, largest_of_columns, rows_per_chunk
from ..inputs import (
    RetrievalInputs,
    as_inputs,
    both_or_neither,
    budget,
    check_self_index,
    finite_rows,
)
from ..ranking.sharded import gathered_scores
from ..search.distance import DISTANCES, Distance, DistanceName
from ..search.knn import References, TorchKNN
from .embedding_metric import EmbeddingOptions
from .query_metric import Average, OnLone, QueryMetric

INPUT_NAMES = "query", "query_labels", "reference", "reference_labels"
MAX_CELLS = 2**20  # queries times references of an item of a batch; larger items are searched one by one


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
    """Return 1 if no class mean of the references is nearer than that of the query's class, else 0.

    Shapes: query: (..., Q, D); query_labels, self_index: (..., Q); reference: (..., N, D); reference_labels: (..., N)
    -> (..., Q) float64.

    A query that is itself a reference (`self_index`, -1 = none; all queries without a reference set) is removed from
    the mean of its class; the score is NaN if the class is then empty. Ties go to the smaller label. Means are float64,
    for "cosine" of rows of length 1. References with NaN or infinity are left out of the means; queries with them
    score NaN. Higher is better. ValueError for incompatible arguments.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> nearest_centroid(x, labels)
    tensor([1., 1., 1., 1., 0.], dtype=torch.float64)
    """
    checks.check_choice("distance", distance, DISTANCES)
    checks.shape("query", query, "...", "Q", "D")
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
        return _batch_scores(query, others, distance, memory_budget)
    inputs = _check_inputs(query, query_labels, reference, reference_labels, self_index=self_index)
    return checked_centroids(inputs, DISTANCES[distance], memory_budget)


def _check_inputs(
    query: Tensor,  # (Q, D)
    query_labels: Tensor,  # (Q,)
    reference: Tensor,  # (N, D)
    reference_labels: Tensor,  # (N,)
    *,
    self_index: Tensor | None,  # (Q,)
    size: int | None = None,  # references of an item of a batch; None: all
) -> RetrievalInputs:
    checks.same_device(query=query, query_labels=query_labels, reference=reference, reference_labels=reference_labels)
    checks.same_device(query=query, self_index=self_index)
    inputs = as_inputs(query, query_labels, reference, reference_labels, is_finite=False)
    if self_index is None:
        return inputs._replace(query_index=torch.full((len(query),), -1, device=query.device))
    return inputs._replace(query_index=check_self_index(self_index, len(query), size or len(reference)))


@torch.no_grad()
def checked_centroids(inputs: RetrievalInputs, distance: Distance, memory_budget: int | None) -> Tensor:
    # ->  (Q,) float64
    """Compute `nearest_centroid` of checked inputs. Sums of sharded rows are combined over ranks."""
    layout, query, reference = inputs.layout, inputs.query, inputs.reference
    query_slice = reference_slice = slice(None)
    if layout is not None:
        query_slice, reference_slice = layout.local(layout.query), layout.local(layout.reference)
    query_labels, self_index = inputs.query_labels[query_slice], inputs.self_index()[query_slice]
    scores = torch.full((len(query),), torch.nan, dtype=torch.float64, device=query.device)
    if not len(inputs.reference_labels) or not len(inputs.query_labels):
        return scores

    def prepare(rows: Tensor) -> Tensor:
        # ->  float64, zeros for rows that are not finite
        return distance.prepared(rows.double().where(finite_rows(rows)[:, None], 0.0))

    def reduce(values: Tensor, op: Any) -> Tensor:
        return values if layout is None else all_reduce(values, op, layout.group)

    classes, codes = inputs.reference_labels.unique(return_inverse=True)
    codes = codes[reference_slice]
    is_finite = torch.cat([finite_rows(chunk) for chunk in reference.split(rows_per_chunk(reference))])
    counts = torch.zeros_like(classes, dtype=torch.int64).index_add_(0, codes, is_finite.long())
    counts = reduce(counts, dist.ReduceOp.SUM)
    units = unit_of(reduce(largest_of_columns(reference, prepare), dist.ReduceOp.MAX))
    sums = total(reduce(class_parts(reference, codes, len(classes), units, prepare), dist.ReduceOp.SUM))
    centroids = sums / counts[:, None]
    knn, references = TorchKNN(distance.name, memory_budget=memory_budget), References(centroids, distance)
    class_index = torch.searchsorted(classes, query_labels.contiguous()).clamp(max=len(classes) - 1)
    is_reference = self_index >= 0
    if layout is None:  # else all rows are finite, and the query has the same values as its reference
        is_reference &= is_finite[self_index]
    remaining = counts[class_index] - is_reference.long()
    for chunk in torch.arange(len(query), device=query.device).split(rows_per_chunk(query)) if len(query) else ():
        x, chunk_class = prepare(query[chunk]), class_index[chunk]
        self_rows = x if layout else prepare(reference[self_index[chunk]])
        removed = torch.where(is_reference[chunk, None], self_rows, 0.0)
        class_distance = distance.canonical(x, (sums[chunk_class] - removed) / remaining[chunk, None])
        other = knn.search(x, 1, references, chunk_class)[1][:, 0]
        rival_distance = distance.canonical(x, centroids[other])
        is_nearest = (
            (class_distance < rival_distance)
            | ((class_distance == rival_distance) & (chunk_class < other))
            | (other < 0)
        )
        scores[chunk] = torch.where(finite_rows(query[chunk]), is_nearest.double(), torch.nan)
    scores = scores.masked_fill((classes[class_index] != query_labels) | (remaining == 0), torch.nan)
    return gathered_scores(scores[None], layout)[0]


def _batch_scores(
    query: Tensor, others: dict[str, Tensor | None], distance: DistanceName, memory_budget: int | None
) -> Tensor:
    # query: (..., Q, D)  others: (..., *)  ->  (..., Q)
    """Return the scores of a batch; small items are scored together."""
    batch_shape = query.shape[:-2]
    args = {name: other for name, other in others.items() if other is not None}
    for name, other in args.items():
        if other.shape[: len(batch_shape)] != batch_shape:
            expected = f"leading dimensions {tuple(batch_shape)}, those of query"
            raise ValueError(f"{name}: got shape {tuple(other.shape)}, wanted {expected}")
    (queries, width), references = query.shape[-2:], args["reference"].shape[len(batch_shape)]
    if min(batch_shape.numel(), queries, references) == 0 or queries * references > MAX_CELLS:
        scores = query.new_full(query.shape[:-1], torch.nan, dtype=torch.float64)
        for item in itertools.product(*map(range, batch_shape)):
            item_args = {name: other[item] for name, other in args.items()}
            scores[item] = nearest_centroid(query[item], distance=distance, memory_budget=memory_budget, **item_args)
        return scores
    flat = {name: tensor.flatten(0, len(batch_shape)) for name, tensor in {"query": query, **args}.items()}
    *tables, self_index = (flat.get(name) for name in (*INPUT_NAMES, "self_index"))
    inputs = _check_inputs(*cast("list[Tensor]", tables), self_index=self_index, size=references)
    rows = inputs.query, inputs.query_labels, inputs.reference, inputs.reference_labels, inputs.self_index()
    memory = budget(memory_budget, query.device)
    chunk_size = max(memory // (40 * queries * references + 64 * (queries + references) * width), 1)
    chunks = zip(*(tensor.unflatten(0, (batch_shape.numel(), -1)).split(chunk_size) for tensor in rows), strict=True)
    return torch.cat(
        [_small_batch_scores(*chunk, distance=DISTANCES[distance], memory=memory // 4) for chunk in chunks]
    ).view(query.shape[:-1])


def _small_batch_scores(
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
    """Return the scores of `checked_centroids` by a table of the queries and classes of each item."""
    items, size = reference_labels.shape
    finite = [finite_rows(tensor.flatten(0, 1)) for tensor in (query, reference)]
    x, rows = (
        distance.prepared(tensor.flatten(0, 1).double().where(is_finite[:, None], 0.0))
        for tensor, is_finite in zip((query, reference), finite, strict=True)
    )
    labels, order = reference_labels.sort(stable=True)
    is_new = torch.nn.functional.pad(labels[:, 1:] != labels[:, :-1], (1, 0), value=False)
    ordered = is_new.cumsum(1)  # classes are numbered by their labels, from 0 in each item
    count = int(ordered[:, -1].max()) + 1
    item = torch.arange(items, device=query.device)[:, None]
    codes = (torch.empty_like(ordered).scatter_(1, order, ordered) + item * count).flatten()
    counts = torch.zeros(items * count, dtype=torch.int64, device=query.device).index_add_(0, codes, finite[1].long())
    units = unit_of(rows.view(items, size, -1).abs().amax(1)).repeat_interleave(size, 0, output_size=len(rows))
    sums = torch.zeros(len(COARSE), len(counts), rows.shape[1], dtype=torch.float64, device=query.device)
    for sum_part, part in zip(sums, parts(rows, units, COARSE), strict=True):
        sum_part.index_add_(0, codes, part)  # exact, hence independent of the order
    class_sums = total(sums)
    centroids = class_sums / counts[:, None]

    index = torch.searchsorted(labels, query_labels.contiguous()).clamp(max=size - 1)
    has_class = labels.gather(1, index) == query_labels
    class_index = ordered.gather(1, index)
    of_class = (class_index + item * count).flatten()
    flat_self_index = (self_index.clamp(min=0) + item * size).flatten()
    is_reference = (self_index.flatten() >= 0) & finite[1][flat_self_index]
    remaining = counts[of_class] - is_reference.long()
    removed = torch.where(is_reference[:, None], rows[flat_self_index], 0.0)
    class_distance = distance.canonical(x, (class_sums[of_class] - removed) / remaining[:, None]).view_as(class_index)
    cell = torch.arange(len(x) * count, device=query.device)
    column = cell % count + cell // (count * class_index.shape[1]) * count
    table = distance.of_pairs(x, centroids, cell // count, column, memory).view(*class_index.shape, count)
    classes = torch.arange(count, device=query.device)
    table = table.masked_fill(table.isnan() | (classes == class_index[..., None]), torch.inf)
    rival_distance = table.amin(-1)
    other = torch.where(table == rival_distance[..., None], classes, count).amin(-1)
    is_nearest = (
        (class_distance < rival_distance)
        | ((class_distance == rival_distance) & (class_index < other))
        | (rival_distance == torch.inf)
    )
    is_defined = has_class & (remaining != 0).view_as(class_index) & finite[0].view_as(class_index)
    return is_nearest.double().where(is_defined, torch.nan)


class NearestCentroidAccuracy(QueryMetric):
    """Fraction of queries with their class mean as the nearest one, in [0, 1]; see `nearest_centroid`.

    `gains`, `ignore`, `ties` and `label_comparison_fn` are a TypeError.

    >>> NearestCentroidAccuracy()(torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1]))
    tensor(0.8000, dtype=torch.float64)
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
        if refused := kwargs.keys() & {"gains", "ignore", "label_comparison_fn", "ties"}:
            name = type(self).__name__
            raise TypeError(f"{name}: got the argument {min(refused)!r}, which class means cannot use; leave it out")
        super().__init__(
            None, None, average=average, on_lone=on_lone, distance=distance, memory_budget=memory_budget, **kwargs
        )

    def rows_may_stay(self) -> bool:
        return True

    def scores(self, inputs: RetrievalInputs) -> tuple[Tensor, Tensor]:
        # ->  (1, Q) float64, NaN = lone; (Q,) bool, not lone
        if inputs.ignore is not None:
            raise ValueError("cameras: got some, wanted none: a class mean cannot leave out references of each query")
        scores = checked_centroids(inputs, DISTANCES[self.distance], self.memory_budget)
        return scores[None], ~scores.isnan()
