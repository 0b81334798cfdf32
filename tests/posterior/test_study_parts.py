"""Comparisons, reports and figures of fixed samples instead of a study."""

from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from torch import tensor

from tensormetrics.posterior import get_metric
from tensormetrics.posterior.comparison import pairwise
from tensormetrics.posterior.study.comparisons import (
    compare_all_pairs,
    get_fold_comparison,
    get_listwise_comparison_result,
    get_pairwise_comparison,
)
from tensormetrics.posterior.study.figures import plot_forest_plot, plot_metric_summaries
from tensormetrics.posterior.study.reports import (
    report_aggregated_metric_summaries,
    report_listwise_comparison,
    report_metric_summaries,
)

PAIR = {"experiment_a": "m/a", "experiment_b": "n/a"}


class FixedSamples:
    """Stand-in for a study that has four fixed samples of four experiments."""

    ci_probability = 0.5
    posterior = {
        "m/a": tensor([0.1, 0.2, 0.3, 0.4]),
        "n/a": tensor([0.0, 0.3, 0.1, 0.4]),
        "m/b": tensor([0.5, 0.6, 0.7, 0.9]),
        "n/b": tensor([0.5, 0.6, 0.7, 0.8]),
    }
    observed = {"m/a": 0.3, "n/a": 0.1, "m/b": 0.7, "n/b": 0.7}

    def list_experiments(self):
        return list(self.posterior)

    def find_metric(self, metric):
        return get_metric(metric)

    def column(self, metric, class_label, experiment, method="posterior"):
        if method == "input":
            return tensor([self.observed[experiment]])
        return self.posterior[experiment.replace("aggregated", "b")] * (0.5 if method == "random" else 1)

    def class_index(self, metric, class_label, experiments):
        return 0

    def titled(self, metric, class_label, experiments, title=None):
        return title or metric

    def paired(self, pairs):
        return ["m/a" in pair for pair in pairs]

    def get_metric_samples(self, metric, experiment_name, sampling_method="posterior"):
        zero = tensor([0.25])
        between = SimpleNamespace(within_experiment_variance=zero, between_experiment_variance=zero, i2=zero)
        values = self.column(metric, None, experiment_name)[:, None]
        return SimpleNamespace(values=values, bounds=(0.0, 1.0), heterogeneity_results=between)


def test_comparisons_of_fixed_samples_match_by_hand():
    pair = get_pairwise_comparison(FixedSamples(), "acc", **PAIR, min_sig_diff=0.15)  # 0.1, -0.1, 0.2, 0
    assert [float(pair.p_greater), float(pair.p_less), float(pair.p_tie)] == [0.5, 0.25, 0.25]
    assert [float(pair.p_rope), float(pair.p_sig_pos)] == [0.75, 0.25] and float(pair.p_rope_random) == 1
    assert float(pair.observed_diff) == pytest.approx(0.2) and pair.paired and pair.lhs_name == "m/a"
    pairs = compare_all_pairs(FixedSamples(), "acc")
    assert pairs.lhs_name == ["m/a"] * 3 + ["n/a"] * 2 + ["m/b"] and pairs.paired == [True] * 3 + [False] * 3
    assert pairs.diff_dist.shape == (len(FixedSamples().column("acc", None, "m/a")), 6)
    ranks = get_listwise_comparison_result(FixedSamples(), "acc")
    assert ranks.experiment_names == ["m/b", "n/b", "m/a", "n/a"] and ranks.paired
    assert ranks.p_rank_given_experiment[2].tolist() == [0, 0, 0.625, 0.375]
    groups = get_listwise_comparison_result(FixedSamples(), "acc", groups=True)
    assert groups.experiment_names == ["m/aggregated", "n/aggregated"]
    folds = get_fold_comparison(FixedSamples(), "acc", group_a="m", group_b="n")  # 0.3 - 0.1 and 0.7 - 0.7
    assert float(folds.difference) == pytest.approx(0.1)


def test_reports_of_fixed_samples_match_by_hand():
    rows = report_metric_summaries(FixedSamples(), "acc", columns=["Observed", "Median", "HDI"], table_fmt="records")
    assert [(row["Group"], row["Experiment"]) for row in rows] == [("m", "a"), ("n", "a"), ("m", "b"), ("n", "b")]
    assert [row["Observed"] for row in rows] == pytest.approx([0.3, 0.1, 0.7, 0.7])
    assert rows[0]["Median"] == pytest.approx(0.25) and "50.0% HDI" in rows[0]
    rows = report_listwise_comparison(FixedSamples(), "acc", table_fmt="records")
    assert rows[2] == {"Group": "m", "Experiment": "a", "Rank 1": 0, "Rank 2": 0, "Rank 3": 0.625, "Rank 4": 0.375}
    rows = report_aggregated_metric_summaries(FixedSamples(), "acc", table_fmt="records")
    assert [(row["Group"], row["I2"]) for row in rows] == [("m", 0.25), ("n", 0.25)]
    assert [row["Median"] for row in rows] == pytest.approx([0.65, 0.65])


def test_figures_of_fixed_samples_match_by_hand():
    pytest.importorskip("matplotlib")
    figure = plot_metric_summaries(FixedSamples(), "acc", method="hist")
    assert [ax.get_ylabel() for ax in figure.axes] == ["m/a", "n/a", "m/b", "n/b"]
    observed = [line.get_xdata()[0] for ax in figure.axes for line in ax.lines if line.get_label() == "observed"]
    assert observed == pytest.approx([0.3, 0.1, 0.7, 0.7]) and figure.axes[-1].get_xlabel() == "Accuracy"
    forest = plot_forest_plot(FixedSamples(), "acc", precision=2)
    names = [label.get_text() for label in forest.axes[0].get_yticklabels()]
    assert [ax.get_title("left") for ax in forest.axes[:2]] == ["m", "n"] and names == [
        "a",
        "b",
        "Aggregate (I² = 25%)",
    ]


def test_compare_all_pairs_blocks_equal_single_pass(monkeypatch):
    full = compare_all_pairs(FixedSamples(), "acc", min_sig_diff=0.15)
    monkeypatch.setattr(pairwise, "AT_ONCE", 8)  # two pairs of four samples
    parts = compare_all_pairs(FixedSamples(), "acc", min_sig_diff=0.15)
    for field in fields(full):
        left, right = getattr(full, field.name), getattr(parts, field.name)
        for x, y in zip(*(x if isinstance(x, tuple) else (x,) for x in (left, right)), strict=True):
            if isinstance(x, torch.Tensor):
                assert torch.equal(x.nan_to_num(-9), y.nan_to_num(-9)) and len(x) == 6, field.name
    assert torch.equal(parts.diff_dist, full.diff_dist)
    assert torch.equal(parts.diff_dist_summary.median, parts.median)
