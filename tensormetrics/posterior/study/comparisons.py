"""Comparisons of experiments: the samples come from a study, functions compare them."""

import operator
from itertools import combinations

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ...core.results.estimates import Comparison
from ...uncertainty.comparison import compare
from ...uncertainty.statistics.cross_validation import compare_folds
from ...uncertainty.statistics.sample_comparison import compare_samples
from ..comparison.listwise import ListwiseComparisonResult, listwise_compare
from ..comparison.pairwise import Differences, PairwiseComparisonResult, compare_pairs, pairwise_compare
from .config import AGGREGATED, split_name, unknown
from .confusion_posterior import ConfusionPosterior
from .experiment import Experiment
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
    """Compare two experiments by the difference a - b of a metric. Either may be "group/aggregated".

    `min_sig_diff` is the smallest difference of practical importance, in units of the metric; None: a tenth of the
    standard deviation of the difference.
    """
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
    """Compare an experiment with a random classifier of the same prevalence."""
    name = "/".join(split_name(experiment))
    posterior, random = (source.column(metric, class_label, name, method) for method in ("posterior", "random"))
    title = source.titled(metric, class_label, [name])
    return _compare(source, metric, title, posterior - random, min_sig_diff, None, None, name, "random")


def compare_all_pairs(
    source: Samples, metric: str, class_label: Label = None, *, min_sig_diff: float | None = None
) -> PairwiseComparisonResult:
    """Compare all pairs of experiments, in the order of `list_experiments`, in blocks; fields are (P,)."""
    names = source.list_experiments()
    if len(names) < 2:
        raise ValueError(f"the study has {len(names)} experiments, a comparison needs at least 2")
    a, b = torch.tensor(list(combinations(range(len(names)), 2)), device="cpu").T
    values = {
        method: torch.stack([source.column(metric, class_label, name, method) for name in names], -1)
        for method in ("posterior", "random", "input")
    }
    posterior, random, observed = values.values()
    left, right = ([names[e] for e in experiments.tolist()] for experiments in (a, b))
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


def compare_experiments(
    source: Samples, metric: str, class_label: Label = None, *, rope: float | None = None
) -> dict[tuple[str, str], Comparison]:
    """Compare all pairs: by `compare` where both have the same items, else by `compare_samples` of their posteriors."""
    names = source.list_experiments()
    metric_name = source.find_metric(metric).name
    with_items = {name: _with_items(source[name], metric_name, source.zero_division) for name in names}
    comparisons = {}
    for a, b in combinations(names, 2):
        (label, first), (other_label, second) = with_items[a], with_items[b]
        if label is None or label != other_label:
            comparisons[a, b] = _compare_posteriors(source, metric, class_label, a, b, rope)
            continue
        (comparison,) = compare(first, second, confidence=source.ci_probability, seed=source.seed, rope=rope).values()
        if comparison.difference.ndim:
            index = source.class_index(metric, class_label, [a, b])
            comparison = tree_map(operator.itemgetter(index), comparison)
        comparisons[a, b] = comparison
    return comparisons


def _with_items(
    experiment: Experiment, metric: str, zero_division: float | None
) -> tuple[str | None, ConfusionPosterior]:
    """Return the label of an experiment's items, None without any, and a metric that was updated with them."""
    C = experiment.num_classes
    updated = ConfusionPosterior(C, metric, zero_division=zero_division).to(experiment.confusion_matrix.device)
    if experiment.items is None:
        return None, updated
    label, cells, groups = experiment.items
    ids = torch.arange(len(cells), device=cells.device)
    updated.update(cells % C, cells // C, ids=ids, **({} if groups is None else {"groups": groups}))
    return label, updated


def _compare_posteriors(
    source: Samples, metric: str, class_label: Label, a: str, b: str, rope: float | None
) -> Comparison:
    draws, observed = (
        [source.column(metric, class_label, name, method).double() for name in (a, b)]
        for method in ("posterior", "input")
    )
    return compare_samples(
        *draws,
        observed=(observed[0] - observed[1])[0],
        confidence=source.ci_probability,
        rope=rope,
        higher_is_better=source.find_metric(metric).higher_is_better is not False,
    )


def get_listwise_comparison_result(
    source: Samples, metric: str, class_label: Label = None, *, groups: bool = False
) -> ListwiseComparisonResult:
    """Rank experiments by their posteriors, or with `groups` the aggregates of groups."""
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
) -> Comparison:
    """Compare the observed values of equally named experiments of two groups; see `compare_folds`."""
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
    higher_is_better = source.find_metric(metric).higher_is_better is not False
    confidence = source.ci_probability
    return compare_folds(a, b, rho, rope=min_sig_diff, confidence=confidence, higher_is_better=higher_is_better)


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
