"""What AccuracyCalculator lets in and out: names of metrics, queries and references, functions and their values."""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import _checks
from ._embeddings import Sides, as_tensor, both_or_neither, check_finite, comparable_labels, few_rows, labelled
from ._ranking import log
from .average_precision import average_precision, average_precision_at_r
from .cluster_accuracy import cluster_accuracy
from .mutual_info import adjusted_mutual_info, completeness, homogeneity, normalized_mutual_info, v_measure
from .ndcg import ndcg
from .pair_counts import adjusted_rand, fowlkes_mallows
from .position import first_rank, inverse_negative_penalty, ranking_auroc
from .precision import precision, r_precision
from .ranks import PositiveRanks
from .recall import hit_rate, recall
from .reciprocal_rank import reciprocal_rank


class RankScore(NamedTuple):
    """A score of ranks, how deep it looks (k, "relevant" or None: everywhere), and the statistic over queries."""

    function: Callable[[PositiveRanks], Tensor]
    depth: int | str | None = None
    statistic: str = "mean"


RANK_SCORES = {
    "mean_auroc": RankScore(ranking_auroc),
    "mean_average_precision": RankScore(average_precision),
    "mean_average_precision_at_r": RankScore(average_precision_at_r, "relevant"),
    "mean_inp": RankScore(inverse_negative_penalty),
    "mean_rank": RankScore(first_rank),
    "mean_reciprocal_rank": RankScore(reciprocal_rank),
    "median_rank": RankScore(first_rank, None, "median"),
    "ndcg": RankScore(ndcg),
    "r_precision": RankScore(r_precision, "relevant"),
}
SCORES_AT_K = {
    "hit_rate": hit_rate,
    "mean_average_precision": functools.partial(average_precision, denominator="min"),
    "ndcg": ndcg,
    "precision": precision,
    "recall": recall,
}
CENTROID = "nearest_centroid_accuracy"
CLUSTERING = {
    "AMI": adjusted_mutual_info,
    "ARI": adjusted_rand,
    "FMI": fowlkes_mallows,
    "NMI": normalized_mutual_info,
    "cluster_accuracy": cluster_accuracy,
    "completeness": completeness,
    "homogeneity": homogeneity,
    "v_measure": v_measure,
}
NAMES = (*sorted((*RANK_SCORES, *CLUSTERING, CENTROID)), *(f"{name}_at_{{k}}" for name in SCORES_AT_K))


def rank_score(name: str) -> RankScore | None:
    """The score of ranks of this name, if there is one: "ndcg", "ndcg_at_10", ..."""
    if (at_k := re.fullmatch(r"(\w+)_at_([1-9]\d*)", name)) and at_k[1] in SCORES_AT_K:
        k = int(at_k[2])
        return RankScore(functools.partial(SCORES_AT_K[at_k[1]], k=k), k)
    return RANK_SCORES.get(name)


def statistic_of(name: str) -> str:
    """What a metric is of the scores of queries: "mean" or "median"."""
    score = rank_score(re.sub(r"_level\d+$", "", name))
    return score.statistic if score else "mean"


def is_known(name: Any) -> bool:
    return isinstance(name, str) and (name in CLUSTERING or name == CENTROID or rank_score(name) is not None)


def needed_depth(ranked: dict[str, RankScore], k: int | str | None, longest: int, available: int) -> int | None:
    """How many neighbours have to be known, of which k are retrieved; None: the ranks of all relevant references.

    longest: the largest number of relevant references; available: the number of references of a query.
    """
    depths = {name: longest if score.depth == "relevant" else score.depth for name, score in ranked.items()}
    wanted = None if None in depths.values() else max(depths.values())
    if k is None:
        return wanted
    limit = longest if k == "max_bin_count" else k
    if limit > available:
        log.info("k=%d is cut to the %d references of a query", limit, available)
    short = [name for name, depth in depths.items() if depth is not None and limit < min(depth, available)]
    if short:
        log.warning(
            "k=%d is below the largest number of relevant references, %d: %s are lower bounds; "
            "write k=None or k='max_bin_count'",
            limit,
            longest,
            " and ".join(short),
        )
    return min(limit, available, *([] if wanted is None else [wanted]))


def default_device(rows: Any) -> torch.device:
    """Where to score: where the rows are, if that is no CPU, else the current CUDA device if there is one."""
    if isinstance(rows, Tensor) and rows.device.type != "cpu":
        return rows.device
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def as_sides(
    query: Any,
    query_labels: Any,
    reference: Any,
    reference_labels: Any,
    ref_includes_query: bool,
    device: torch.device,
    columns: bool,
) -> Sides:
    """Both sides as finite tensors of comparable labels; no reference: the queries against each other."""
    both_or_neither(reference=reference, reference_labels=reference_labels)
    query, query_labels = labelled(query, query_labels, device, ("query", "query_labels"), columns)
    check_finite(query=query, query_labels=query_labels)
    if reference is None:
        return Sides(query, query_labels, query, query_labels, len(query))
    names = ("reference", "reference_labels")
    reference, reference_labels = labelled(reference, reference_labels, device, names, columns)
    _checks.shape("reference", reference, "N", query.shape[1])
    check_finite(reference=reference, reference_labels=reference_labels)
    query_labels, reference_labels = comparable_labels(query_labels, reference_labels)
    if ref_includes_query:
        _check_prefix(query, query_labels, reference, reference_labels)
    return Sides(query, query_labels, reference, reference_labels, len(query) if ref_includes_query else 0)


def with_options(
    sides: Sides,
    *,
    groups: tuple[Any, Any] = (None, None),
    self_index: Any = None,
    gains: Any = None,
    ignore: Any = None,
) -> Sides:
    """The same with what else says who is a candidate, and of what worth; arrays and lists become tensors."""
    device = sides.query.device
    sides = sides.without(_as_groups(groups, (sides.query, sides.reference), device))
    if isinstance(ignore, tuple):
        names = ("ignore: query groups", "ignore: reference groups")
        ignore = tuple(as_tensor(name, group, device) for name, group in zip(names, ignore, strict=True))
    elif ignore is not None and not callable(ignore):
        ignore = as_tensor("ignore", ignore, device)
    if gains is not None and not callable(gains):
        gains = as_tensor("gains", gains, device)
    if self_index is not None:
        self_index = as_tensor("self_index", self_index, device)
        _checks.shape("self_index", self_index, len(sides.query))
        _checks.integral("self_index", self_index)
        if len(self_index) and int(self_index.max()) >= len(sides.reference):
            got, most = int(self_index.max()), len(sides.reference) - 1
            raise ValueError(f"self_index: got {got}, wanted -1 to {most}")
        sides = sides._replace(shared=0, own=self_index.long().clamp(min=-1))
    return sides._replace(gains=gains).without(ignore)


def _as_groups(
    groups: tuple[Any, Any], sides: tuple[Tensor, Tensor], device: torch.device
) -> tuple[Tensor, Tensor] | None:
    names = ("query_groups", "reference_groups")
    both_or_neither(**dict(zip(names, groups, strict=True)))
    if groups[0] is None:
        return None
    tensors = tuple(as_tensor(name, side, device) for name, side in zip(names, groups, strict=True))
    for name, group, rows in zip(names, tensors, sides, strict=True):
        _checks.shape(name, group, len(rows))
    return tensors


def _check_prefix(query: Tensor, query_labels: Tensor, reference: Tensor, reference_labels: Tensor) -> None:
    # query: (Q, D)  query_labels: (Q[, L])  reference: (N, D)  reference_labels: (N[, L])
    head, head_labels = reference[: len(query)], reference_labels[: len(query)]
    if len(head) < len(query):
        raise ValueError(
            f"ref_includes_query: got {len(query)} queries and {len(reference)} references, wanted references that "
            "begin with the queries"
        )
    same = (head_labels == query_labels).unsqueeze(-1).flatten(1).all(1)
    for rows, *sides in zip(*(side.split(few_rows(head)) for side in (same, head, query)), strict=True):
        rows &= torch.isclose(sides[0], sides[1].to(head.dtype)).all(1)
    if not same.all():
        raise ValueError(
            f"ref_includes_query: row {int((~same).nonzero()[0])} of reference or reference_labels differs from the "
            "query's, wanted references that begin with the queries"
        )


def called(functions: dict[str, Callable], given: dict[str, Any]) -> dict[str, Any]:
    """The value of each function, given those arguments that it names."""
    values = {}
    for name, function in functions.items():
        parameters = inspect.signature(function).parameters
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        values[name] = function(**(given if takes_all else {key: given[key] for key in parameters if key in given}))
    return values


def as_numbers(values: dict[str, Any]) -> dict[str, Any]:
    """Tensors as floats and lists of floats, by one transfer to the host."""
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    numbers, flat = dict(values), []
    if tensors:
        device = next(iter(tensors.values())).device
        flat = torch.cat([tensor.to(device, torch.float64).flatten() for tensor in tensors.values()]).tolist()
    for name, tensor in tensors.items():
        numbers[name], flat = (flat[: tensor.numel()], flat[tensor.numel() :]) if tensor.ndim else (flat[0], flat[1:])
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in numbers.items()}
