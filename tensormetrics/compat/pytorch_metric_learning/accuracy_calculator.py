"""Names of the module of this name: `AccuracyCalculator`, and the functions that subclasses of it call.

gt_labels: (n, 1) or (n, 1, L); knn_labels: (n, K) or (n, K, L), nearest first. `label_comparison_fn` maps these two
to (n, K) bool. `label_counts` is a pair: labels (U,) or (U, L), and the number of references that match each, including
the query itself. Results are floats, lists of floats with `return_per_class`, in the order of the sorted labels.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...retrieval.calculator.calculator import AccuracyCalculator as AccuracyCalculator
from ...retrieval.calculator.knn_labels import EQUALITY, average_of, match_labels, ranks_of_matches, relevant_of_counts
from ...retrieval.calculator.knn_labels import get_label_match_counts as get_label_match_counts
from ...retrieval.calculator.knn_labels import get_lone_query_labels as get_lone_query_labels
from ...retrieval.scores.average_precision import average_precision, average_precision_at_r
from ...retrieval.scores.precision import precision
from ...retrieval.scores.precision import r_precision as r_precision_of
from ...retrieval.scores.query_metric import Classes, averaged
from ...retrieval.scores.reciprocal_rank import reciprocal_rank
from .inference import FaissKMeans as FaissKMeans
from .inference import FaissKNN as FaissKNN


def precision_at_k(
    knn_labels: Tensor,
    gt_labels: Tensor,
    k: int,
    avg_of_avgs: bool = False,
    return_per_class: bool = False,
    label_comparison_fn: Callable[[Tensor, Tensor], Tensor] = EQUALITY,
) -> float | list[float]:
    """Compute the mean precision among the first k columns."""
    ranks = ranks_of_matches(match_labels(gt_labels, knn_labels, label_comparison_fn))
    return maybe_get_avg_of_avgs(precision(ranks, k), gt_labels, avg_of_avgs, return_per_class)


def r_precision(
    knn_labels: Tensor,
    gt_labels: Tensor,
    ref_includes_query: bool,
    label_counts: Sequence,
    avg_of_avgs: bool = False,
    return_per_class: bool = False,
    label_comparison_fn: Callable[[Tensor, Tensor], Tensor] = EQUALITY,
) -> float | list[float]:
    """Compute the mean R-precision; a lower bound if K < R."""
    relevant = relevant_of_counts(gt_labels[:, 0], label_counts, ref_includes_query, label_comparison_fn)
    ranks = ranks_of_matches(match_labels(gt_labels, knn_labels, label_comparison_fn), relevant)
    return maybe_get_avg_of_avgs(r_precision_of(ranks), gt_labels, avg_of_avgs, return_per_class)


def mean_average_precision(
    knn_labels: Tensor,
    gt_labels: Tensor,
    ref_includes_query: bool,
    label_counts: Sequence,
    avg_of_avgs: bool = False,
    return_per_class: bool = False,
    label_comparison_fn: Callable[[Tensor, Tensor], Tensor] = EQUALITY,
    at_r: bool = False,
) -> float | list[float]:
    """Compute MAP among the K columns, or MAP@R; deeper references count as not found."""
    relevant = relevant_of_counts(gt_labels[:, 0], label_counts, ref_includes_query, label_comparison_fn)
    ranks = ranks_of_matches(match_labels(gt_labels, knn_labels, label_comparison_fn), relevant)
    score = average_precision_at_r if at_r else average_precision
    return maybe_get_avg_of_avgs(score(ranks), gt_labels, avg_of_avgs, return_per_class)


def mean_reciprocal_rank(
    knn_labels: Tensor,
    gt_labels: Tensor,
    avg_of_avgs: bool = False,
    return_per_class: bool = False,
    label_comparison_fn: Callable[[Tensor, Tensor], Tensor] = EQUALITY,
) -> float | list[float]:
    """Compute the mean reciprocal rank; a query without a match among the K columns counts as 0."""
    ranks = ranks_of_matches(match_labels(gt_labels, knn_labels, label_comparison_fn))
    return maybe_get_avg_of_avgs(reciprocal_rank(ranks), gt_labels, avg_of_avgs, return_per_class)


def get_unique_labels(labels: Tensor) -> Tensor:
    # labels: (n,) or (n, L)  ->  (U,) or (U, L), sorted
    return labels.unique(dim=0)


def get_relevance_mask(
    shape: Sequence[int], gt_labels: Tensor, ref_includes_query: bool, label_counts: Sequence
) -> tuple[Tensor, Tensor]:
    # ->  (n, K) bool, (n,) int64
    """Return whether each column is among the first R, and R of every query."""
    relevant = relevant_of_counts(gt_labels[:, 0], label_counts, ref_includes_query)
    return torch.arange(shape[1], device=relevant.device) < relevant[:, None], relevant


def maybe_get_avg_of_avgs(
    accuracy_per_sample: Tensor, sample_labels: Tensor, avg_of_avgs: bool, return_per_class: bool
) -> float | list[float]:
    # accuracy_per_sample: (n,)  sample_labels: (n, 1) or (n, 1, L)
    classes = Classes(sample_labels[:, 0], torch.ones_like(accuracy_per_sample, dtype=torch.bool))
    return averaged(accuracy_per_sample, classes, average_of(avg_of_avgs, return_per_class)).tolist()


def try_getting_not_lone_labels(
    knn_labels: Tensor, query_labels: Tensor, not_lone_query_mask: Tensor
) -> tuple[Tensor, Tensor] | tuple[None, None]:
    # not_lone_query_mask: (n,) bool
    if not not_lone_query_mask.any():
        return None, None
    return knn_labels[not_lone_query_mask], query_labels[not_lone_query_mask]


def nan_accuracy(unique_labels: Tensor, return_per_class: bool) -> float | list[float]:
    return [torch.nan] * len(unique_labels) if return_per_class else torch.nan
