"""The door: names of metrics in, a dictionary of numbers out."""

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _checks
from ._embeddings import EmbeddingMetric, budget, check_finite, labelled
from .average_precision import average_precision_at_r
from .knn import TorchKNN
from .precision import precision, r_precision
from .ranks import PositiveRanks, count_relevant, ranks_of_neighbours

log = logging.getLogger("tensormetrics.retrieval")

METRICS: dict[str, Callable[[PositiveRanks], Tensor]] = {
    "mean_average_precision_at_r": average_precision_at_r,
    "precision_at_1": functools.partial(precision, k=1),
    "r_precision": r_precision,
}


class AccuracyCalculator(EmbeddingMetric):
    """Do nearest neighbours share labels? Means over queries, in [0, 1], higher is better.

    Lone queries (no other item has their label) are left out. `update(embeddings, labels)` and `compute()` score every
    item against all others; `get_accuracy` scores one set against another at once.

    Args:
        include: names of metrics, default all: mean_average_precision_at_r, precision_at_1, r_precision.
        exclude: names to leave out; wins over include.
        k: neighbours retrieved. None and "max_bin_count" are as many as the metrics can use; with an integer below the
            largest number of relevant references, r_precision and MAP@R are lower bounds.
        knn_func: `(query, k, reference, ref_includes_query) -> (distances, indices)`, default `TorchKNN`. Another
            one is called once, with all queries.
        distance, memory_budget: of the default `TorchKNN`; the budget also bounds the scoring.
    """

    higher_is_better = True

    def __init__(
        self,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        k: int | str | None = None,
        knn_func: Callable[[Tensor, int, Tensor, bool], tuple[Tensor, Tensor]] | None = None,
        *,
        distance: str = "l2",
        memory_budget: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if k is not None and k != "max_bin_count":
            try:
                k = _checks.integer_at_least("k", k, 1)
            except ValueError:
                raise ValueError(f"k must be an integer >= 1, None or 'max_bin_count', got {k!r}") from None
        if knn_func is not None and distance != "l2":
            raise ValueError(f"distance: got {distance!r} together with a knn_func; give the distance to the knn_func")
        default = TorchKNN(distance, memory_budget=memory_budget)
        self.metrics = _select(include, exclude, tuple(METRICS))
        self.k = k
        self.knn_func = knn_func or default
        self.memory_budget = default.memory_budget

    def compute(self) -> dict[str, Tensor]:
        """Metric name -> () float64. Each kept item is a query, all others are its references."""
        scores = self._scores(self.metrics, *self.kept()[:4], True)
        return dict(zip(self.metrics, scores.unbind(), strict=True))

    @torch.no_grad()
    def get_accuracy(
        self,
        query: Any,
        query_labels: Any,
        reference: Any = None,
        reference_labels: Any = None,
        ref_includes_query: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> dict[str, float]:
        # query: (Q, D)  query_labels: (Q,)  reference: (N, D)  reference_labels: (N,); tensors, arrays or lists
        """Metric name -> float for the queries against the references (default: against each other).

        `ref_includes_query=True`: the references begin with the queries, which are no neighbours of themselves.
        """
        names = _select(include, exclude, self.metrics)
        device = query.device if isinstance(query, Tensor) else self.device
        query, query_labels = labelled(query, query_labels, device, ("query", "query_labels"))
        check_finite(query=query, query_labels=query_labels)
        if (reference is None) != (reference_labels is None):
            lacking = "reference" if reference is None else "reference_labels"
            raise ValueError(f"{lacking}: got None, wanted both reference and reference_labels or neither")
        if reference is None:
            reference, reference_labels, ref_includes_query = query, query_labels, True
        else:
            sides = ("reference", "reference_labels")
            reference, reference_labels = labelled(reference, reference_labels, device, sides)
            _checks.shape("reference", reference, "N", query.shape[1])
            check_finite(reference=reference, reference_labels=reference_labels)
            query_labels, reference_labels = _comparable(query_labels, reference_labels)
            if ref_includes_query:
                _check_prefix(query, query_labels, reference, reference_labels)
        scores = self._scores(names, query, query_labels, reference, reference_labels, ref_includes_query)
        return dict(zip(names, scores.tolist(), strict=True))

    def _scores(
        self,
        names: tuple[str, ...],
        query: Tensor,
        query_labels: Tensor,
        reference: Tensor,
        reference_labels: Tensor,
        ref_includes_query: bool,
    ) -> Tensor:
        # query: (Q, D)  query_labels: (Q,)  reference: (N, D)  reference_labels: (N,)  ->  (len(names),) float64
        relevant = count_relevant(query_labels, reference_labels, ref_includes_query)
        longest = int(relevant.max()) if len(relevant) else 0
        if not longest:
            reason = "no query has a relevant reference" if len(relevant) else "there is no query"
            log.warning("%s: every metric is NaN", reason)
            return query.new_full((len(names),), torch.nan, dtype=torch.float64)
        depth = 1 if names == ("precision_at_1",) else longest  # none looks deeper
        if isinstance(self.k, int) and self.k < depth:
            log.warning(
                "k=%d is below the largest number of relevant references, %d: %s are lower bounds; "
                "write k=None or k='max_bin_count'",
                self.k,
                longest,
                " and ".join(name for name in names if name != "precision_at_1"),
            )
            depth = self.k
        neighbours = self._neighbours(query, depth, reference, ref_includes_query)
        rows = max(budget(self.memory_budget, query.device) // (96 * depth), 1)
        scores = []
        for start in range(0, len(query), rows):
            tile = slice(start, start + rows)
            ranks = ranks_of_neighbours(neighbours(tile), query_labels[tile], reference_labels, relevant[tile])
            scores.append(torch.stack([METRICS[name](ranks) for name in names]))
        return torch.cat(scores, 1).nanmean(1)

    def _neighbours(
        self, query: Tensor, depth: int, reference: Tensor, ref_includes_query: bool
    ) -> Callable[[slice], Tensor]:
        # a function of a slice of the queries: their neighbours (len(slice), depth) int64
        if isinstance(knn := self.knn_func, TorchKNN):
            rows = torch.arange(len(query), device=query.device)
            self_index = rows if ref_includes_query else torch.full_like(rows, -1)
            return lambda tile: knn.indices(query[tile], depth, reference, False, self_index=self_index[tile])
        indices = torch.as_tensor(knn(query, depth, reference, ref_includes_query)[1], device=query.device)
        _checks.integral("indices of knn_func", indices)
        _checks.shape("indices of knn_func", indices, len(query), depth)
        if (highest := int(indices.max())) >= len(reference):
            raise ValueError(f"indices of knn_func: got {highest}, wanted -1 to {len(reference) - 1}")
        return indices.long().__getitem__


def _select(include: Sequence[str], exclude: Sequence[str], default: tuple[str, ...]) -> tuple[str, ...]:
    for argument, names in (("include", include), ("exclude", exclude)):
        if not isinstance(names, list | tuple):
            raise TypeError(f"{argument}: got {names!r}, wanted a list or tuple of metric names")
        for name in names:
            _checks.one_of(argument, name, tuple(METRICS))
    wanted = include or default
    if chosen := tuple(name for name in METRICS if name in wanted and name not in exclude):
        return chosen
    raise ValueError(f"exclude: got {exclude!r}, which leaves none of {', '.join(wanted)}")


def _comparable(query_labels: Tensor, reference_labels: Tensor) -> tuple[Tensor, Tensor]:
    # (Q,), (N,)  ->  the same of one dtype, in which equality is exact
    labels = (query_labels, reference_labels)
    dtype = torch.promote_types(*(side.dtype for side in labels))
    if query_labels.is_floating_point() != reference_labels.is_floating_point():
        dtype = torch.float64
        if any((side.double().abs() >= 2**53).any() for side in labels if not side.is_floating_point()):
            raise ValueError(
                f"query_labels and reference_labels: got {query_labels.dtype} and {reference_labels.dtype} with "
                "integers of 2**53 or more, wanted both as integers"
            )
    return query_labels.to(dtype), reference_labels.to(dtype)


def _check_prefix(query: Tensor, query_labels: Tensor, reference: Tensor, reference_labels: Tensor) -> None:
    # query: (Q, D)  query_labels: (Q,)  reference: (N, D)  reference_labels: (N,)
    head = reference[: len(query)]
    if len(head) < len(query):
        raise ValueError(
            f"ref_includes_query: got {len(query)} queries and {len(reference)} references, wanted references that "
            "begin with the queries"
        )
    same = torch.isclose(head, query.to(head.dtype)).all(1) & (reference_labels[: len(query)] == query_labels)
    if not same.all():
        raise ValueError(
            f"ref_includes_query: row {int((~same).nonzero()[0])} of reference or reference_labels differs from the "
            "query's, wanted references that begin with the queries"
        )
