"""Tables of neighbors' labels, and the relevant references that labels have.

knn_labels: (n, K) or (n, K, L), nearest first. `label_counts` is a pair: labels (U,) or (U, L), and the number of
references that match each, including the query itself.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..inputs import comparable_labels
from ..ranking.positive_ranks import PositiveRanks
from ..relevance import Relevance
from ..scores.query_metric import Average

EQUALITY = torch.eq


def get_label_match_counts(
    query_labels: Tensor,
    reference_labels: Tensor,
    label_comparison_fn: Callable[[Tensor, Tensor], Tensor] = EQUALITY,
) -> tuple[Tensor, Tensor]:
    # query_labels: (n,) or (n, L)  reference_labels: (N,) or (N, L)  ->  (U,) or (U, L), (U,) int64
    """Return the distinct query labels and the number of references that match each.

    A custom comparison receives flat pairs.
    """
    labels, reference_labels = comparable_labels(query_labels.unique(dim=0), reference_labels)  # sorted
    if not len(labels) or not len(reference_labels):
        return labels, torch.zeros(len(labels), dtype=torch.int64, device=labels.device)
    no_self = torch.full((len(labels),), -1, device=labels.device)
    comparison = flat_equality if label_comparison_fn is EQUALITY else label_comparison_fn
    return labels, Relevance(labels, reference_labels, no_self, comparison)(slice(0, len(labels))).relevant


def get_lone_query_labels(
    query_labels: Tensor,
    label_counts: Sequence,
    ref_includes_query: bool,
    label_comparison_fn: Callable[[Tensor, Tensor], Tensor] = EQUALITY,
) -> tuple[Tensor, Tensor]:
    # query_labels: (n,) or (n, L)  ->  (U',) or (U', L), (n,) bool
    """Return the labels that only the query itself matches, and the mask of queries with another match."""
    labels = torch.as_tensor(label_counts[0], device=query_labels.device)
    lone = relevant_of_counts(labels, label_counts, ref_includes_query, label_comparison_fn) <= 0
    relevant = relevant_of_counts(query_labels, label_counts, ref_includes_query, label_comparison_fn)
    return labels[lone], relevant > 0


def flat_equality(x: Tensor, y: Tensor) -> Tensor:
    # x, y: (n,) or (n, L)  ->  (n,) bool
    return x == y if x.ndim == 1 else (x == y).all(1)


def match_labels(gt_labels: Tensor, knn_labels: Tensor, comparison: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    # gt_labels: (n, 1[, L])  knn_labels: (n, K[, L])  ->  (n, K) bool
    match = comparison(gt_labels, knn_labels)
    return match.all(2) if comparison is EQUALITY and match.ndim == 3 else match


def ranks_of_matches(match: Tensor, relevant: Tensor | None = None, candidates: Tensor | None = None) -> PositiveRanks:
    # match: (n, K) bool  relevant, candidates: (n,)  ->  rank (n, K)
    """Return the ranks of matches among K neighbors; without R no query is lone."""
    rank = match * torch.arange(1, match.shape[1] + 1, device=match.device)
    return PositiveRanks(rank, rank.new_ones(len(rank)) if relevant is None else relevant, candidates)


def relevant_of_counts(
    query_labels: Tensor,
    label_counts: Sequence,
    ref_includes_query: bool,
    comparison: Callable[[Tensor, Tensor], Tensor] = EQUALITY,
) -> Tensor:
    # query_labels: (n,) or (n, L)  ->  (n,) int64, R of every query
    """Look up the count of each query's label, without the query if it is a reference and matches itself."""
    labels, counts = (torch.as_tensor(values, device=query_labels.device) for values in label_counts)
    codes = torch.cat([labels.to(query_labels.dtype), query_labels]).unique(dim=0, return_inverse=True)[1]
    if ref_includes_query:
        self_match = flat_equality(labels, labels) if comparison is EQUALITY else comparison(labels, labels)
        counts = counts - self_match.long()
    table = counts.new_zeros(len(codes)).index_put((codes[: len(labels)],), counts)
    return table[codes[len(labels) :]]


def average_of(avg_of_avgs: bool, return_per_class: bool) -> Average:
    if avg_of_avgs and return_per_class:
        raise ValueError("avg_of_avgs and return_per_class: got both, wanted one of them")
    return "macro" if avg_of_avgs else "class" if return_per_class else "micro"
