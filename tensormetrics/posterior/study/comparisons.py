"""Comparisons of experiments: the samples come from a study, functions compare them."""

from itertools import combinations

import torch
from torch import Tensor

from ...uncertainty.statistics.cross_validation import FoldComparison, compare_folds
from ..comparison.listwise import ListwiseComparisonResult, listwise_compare
from ..comparison.pairwise import Differences, PairwiseComparisonResult, compare_pairs, pairwise_compare
from .config import AGGREGATED, split_name, unknown
from .samples import Label, Samples, experiments_by_group


def get_pairwise_comparison(
    source: Samples,
    metric: str,
    class_label: Label = None,
    *,
    experiment_a: str,
    experiment_b: str,
    min_sig_diff: float | None = None,
) -> PairwiseComparisonResult:
    """The difference a - b of a metric; see `pairwise_compare`. Either may be "group/aggregated"."""
    names = ["/".join(split_name(name)) for name in (experiment_a, experiment_b)]
    if names[0] == names[1]:
        raise ValueError(f"experiment_a, experiment_b: got {names[0]!r} twice, wanted two experiments")
    a, b = (source.column(metric, class_label, name) for name in names)
    random_a, random_b = (source.column(metric, class_label, name, "random") for name in names)
    observed = None
    if not any(name.endswith(f"/{AGGREGATED}") for name in names):
        first, second = (source.column(metric, class_label, name, "input") for name in names)
        observed = (first - second)[0]
    title, (paired,) = source.titled(metric, class_label, names), source.paired([names])
    first, second = names
    return _compare(source, metric, title, a - b, min_sig_diff, random_a - random_b, observed, first, second, paired)


def get_pairwise_random_comparison(
    source: Samples, metric: str, class_label: Label = None, *, experiment: str, min_sig_diff: float | None = None
) -> PairwiseComparisonResult:
    """The difference of an experiment and a guesser with the same prevalence."""
    name = "/".join(split_name(experiment))
    posterior, random = (source.column(metric, class_label, name, method) for method in ("posterior", "random"))
    title = source.titled(metric, class_label, [name])
    return _compare(source, metric, title, posterior - random, min_sig_diff, None, None, name, "random")


def compare_all_pairs(
    source: Samples, metric: str, class_label: Label = None, *, min_sig_diff: float | None = None
) -> PairwiseComparisonResult:
    """All pairs of experiments, in the order of `list_experiments`; fields (P,). They are taken in blocks."""
    names = source.list_experiments()
    if len(names) < 2:
        raise ValueError(f"the study has {len(names)} experiments, a comparison wants at least 2")
    a, b = torch.tensor(list(combinations(range(len(names)), 2)), device="cpu").T
    values = {
        method: torch.stack([source.column(metric, class_label, name, method) for name in names], -1)
        for method in ("posterior", "random", "input")
    }
    posterior, random, observed = values.values()
    left, right = ([names[e] for e in side.tolist()] for side in (a, b))
    return compare_pairs(
        Differences(posterior, a.to(posterior.device), b.to(posterior.device)),
        source.ci_probability,
        min_sig_diff,
        random,
        observed[0],
        (left, right),
        source.titled(metric, class_label, names),
        higher_is_better=source.find_metric(metric).higher_is_better,
        paired=source.paired(list(zip(left, right, strict=True))),
    )


def get_listwise_comparison_result(
    source: Samples, metric: str, class_label: Label = None, *, groups: bool = False
) -> ListwiseComparisonResult:
    """Which experiment is first, second, ...; with `groups`, which aggregate. See `listwise_compare`."""
    names = [f"{group}/{AGGREGATED}" for group in experiments_by_group(source)] if groups else source.list_experiments()
    samples = {name: source.column(metric, class_label, name) for name in names}
    paired = any(source.paired(list(combinations(names, 2))))
    title = source.titled(metric, class_label, names)
    return listwise_compare(samples, title, source.find_metric(metric).higher_is_better, paired)


def get_fold_comparison(
    source: Samples,
    metric: str,
    class_label: Label = None,
    *,
    group_a: str,
    group_b: str,
    rho: float | None = None,
    min_sig_diff: float = 0.0,
) -> FoldComparison:
    """The observed values of equally named experiments of two groups; see `compare_folds`."""
    groups = experiments_by_group(source)
    for group in group_a, group_b:
        if group not in groups:
            raise unknown("group", group, groups)
    folds = groups[group_a], groups[group_b]
    if sorted(folds[0]) != sorted(folds[1]) or len(folds[0]) < 2:
        raise ValueError(
            f"group_a, group_b: got experiments {sorted(folds[0])} and {sorted(folds[1])}, wanted the same two or "
            "more names in both"
        )
    a, b = (
        torch.cat([source.column(metric, class_label, f"{group}/{fold}", "input") for fold in folds[0]])
        for group in (group_a, group_b)
    )
    return compare_folds(a, b, rho, min_sig_diff, source.ci_probability)


def _compare(
    source: Samples,
    metric: str,
    title: str,
    diff: Tensor,
    min_sig_diff: float | None,
    random: Tensor | None,
    observed: Tensor | None,
    left: str | list[str],
    right: str | list[str],
    paired: bool | list[bool] = False,
) -> PairwiseComparisonResult:
    return pairwise_compare(
        diff,
        source.ci_probability,
        min_sig_diff,
        random,
        observed,
        left,
        right,
        title,
        higher_is_better=source.find_metric(metric).higher_is_better,
        paired=paired,
    )
