"""Summaries, comparisons and reports under the names of prob_conf_mat, against values that were made by hand."""

import html

import numpy as np
import pytest
import torch
from known_statistics import KNOWN, X, Y, close
from raising import raises

from tensormetrics.compat import prob_conf_mat as pcm
from tensormetrics.core.results.text_tables import escaped_latex
from tensormetrics.posterior.sampling.rng import RNG

ACC = pcm.get_metric("acc")
FORMATS = ["github", "pipe", "html", "latex", "csv", "plain", "rst"]
REPORTS = {
    "report_metric_summaries": {},
    "report_random_metric_summaries": {},
    "report_aggregated_metric_summaries": {},
    "report_pairwise_comparison_to_random": {},
    "report_listwise_comparison": {},
    "report_expected_reward": {"rewards": [10, 3]},
}


@pytest.fixture(scope="module")
def study():
    metrics = {"acc": {"aggregation": "fe"}, "f1": {"aggregation": "beta"}, "fnr": {"aggregation": "re"}}
    study = pcm.Study(0, metrics=metrics)
    generator = torch.Generator().manual_seed(0)
    for group, right in ("mlp", 40), ("svm", 60):
        for fold in "ab":
            matrix = torch.randint(1, 9, (3, 3), generator=generator) + right * torch.eye(3, dtype=torch.int64)
            study.add_experiment(f"{group}/{fold}", matrix, prevalence_prior=1, confusion_prior=1)
    return study


def test_summary_golden_values_match(device):
    sequence = torch.arange(1, 201, dtype=torch.float64).mul(0.6180339887498949).frac() ** 2
    summary = pcm.summarize_posterior(torch.cat([sequence, torch.full((3,), torch.nan)]).to(device), 0.95)
    expected = KNOWN["summary"]["x,0.95"]
    for name in "median", "mode", "skew", "kurtosis":
        assert float(getattr(summary, name)) == pytest.approx(expected[name], rel=1e-9), name
    assert [float(end) for end in summary.hdi] == pytest.approx(expected["hdi"], rel=1e-9)
    assert summary.headers == ["Median", "Mode", "95.0% HDI", "MU", "Skew", "Kurt"]


@pytest.mark.parametrize("case", [0, 1])
def test_pairwise_golden_values_match(case, device):
    options = ({}, {"min_sig_diff": 0.05, "random_diff_dist": Y - 0.4})[case]
    expected = [*KNOWN["pairwise"].values()][case]
    moved = {k: getattr(v, "to", lambda d, v=v: v)(device) for k, v in options.items()}
    comparison = pcm.pairwise_compare(ACC, (X - Y).to(device), 0.95, **moved)
    assert comparison.direction == expected["direction"]
    for name in expected.keys() - {"direction", "p_tie"}:
        found = comparison.diff_dist_summary.median if name == "median" else getattr(comparison, name)
        close(found, expected[name])


def test_pairwise_regions_include_their_ends_and_ties_have_no_direction():
    comparison = pcm.pairwise_compare(ACC, torch.tensor([-0.5, -0.25, 0.25, 0.5, 0.75]), 0.95, 0.5)
    close([comparison.p_sig_neg, comparison.p_rope, comparison.p_sig_pos], [0, 0.8, 0.2])
    same = pcm.pairwise_compare(ACC, 0 * X, 0.95, random_diff_dist=X, lhs_name="cnn")
    assert same.direction == "none" and same.bf_rope.isnan() and same.p_rope == 1
    for value in -0.1, np.nan, "0.1":
        with raises(ValueError, f"min_sig_diff: got {value!r}, wanted None or a number >= 0"):
            pcm.pairwise_compare(ACC, X, 0.95, value)
    with raises(ValueError, "ci_probability: got 0, wanted a number in (0, 1]"):
        pcm.summarize_posterior(X, 0)


def test_sentence_describes_comparison():
    better = pcm.pairwise_compare(ACC, X + 1, 0.95, 0.05, "left", "mlp/b", X - 0.5, 1.0)
    assert better.template_sentence() == (
        "acc of left minus that of mlp/b: median 1.2551 (observed 1.0000), 95.0% HDI [1.0000, 1.9107].\n"
        "P(left > mlp/b) = 100.00%.\n"
        "P(|difference| <= 0.0500) = 0.00%, the odds 0.0000 times those of random guessers; "
        "P(difference > 0.0500) = 100.00%, P(difference < -0.0500) = 0.00%."
    )


def test_listwise_golden_values_match(device):
    ((_, expected),) = KNOWN["listwise"].items()
    ranking = pcm.listwise_compare({"a": X.to(device), "b": Y.to(device), "c": X.flip(0).to(device)}, ACC)
    assert ranking.experiment_names == expected["names"]
    close(ranking.p_rank_given_experiment, expected["p_rank_given_experiment"])


@pytest.mark.parametrize("name", ["acc", "fnr"])
def test_listwise_ties_share_ranks_and_nan_is_last(name):
    a, b, c = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, torch.nan]])
    ranking = pcm.listwise_compare({"a": a, "b": b, "c": c}, pcm.get_metric(name))
    shares = dict(zip(ranking.experiment_names, ranking.p_rank_given_experiment.tolist(), strict=True))
    if name == "acc":
        assert shares == {"a": [0.75, 0.25, 0], "b": [0.25, 0.75, 0], "c": [0, 0, 1]}
    else:  # lower is better
        assert shares == {"b": [0.5, 0.25, 0.25], "c": [0.5, 0, 0.5], "a": [0, 0.75, 0.25]}


def test_reports_contain_values_of_samples(study):
    rows = study.report_metric_summaries("f1", 1, table_fmt="records")
    assert [(row["Group"], row["Experiment"]) for row in rows] == [
        (group, fold) for group in ("mlp", "svm") for fold in "ab"
    ]
    summary = pcm.summarize_posterior(study.column("f1", 1, "svm/a"), 0.95)
    assert rows[2]["Observed"] == study.column("f1", 1, "svm/a", "input")[0]
    assert rows[2]["95.0% HDI"] == tuple(map(float, summary.hdi)) and rows[2]["Mode"] == summary.mode
    assert abs(study.report_random_metric_summaries("acc", table_fmt="records")[0]["Median"] - 1 / 3) < 0.02
    pooled = study.report_aggregated_metric_summaries("f1", 2, table_fmt="records")[1]
    result = study.get_metric_samples("f1", "svm/aggregated")
    assert pooled["I2"] == result.heterogeneity_results.i2[2] and result.num_classes == 3
    assert pooled["Skew"] == pcm.summarize_posterior(result.values[:, 2], 0.95).skew
    row = study.report_pairwise_comparison_to_random("acc", min_sig_diff=0.1, table_fmt="records")[3]
    posterior, random = (study.column("acc", None, "svm/b", method) for method in ("posterior", "random"))
    assert row["P(> random)"] == float((posterior > random).double().mean()) and row["ROPE"] == (-0.1, 0.1)
    ranks = study.report_listwise_comparison("acc", table_fmt="records")
    rewards = study.report_expected_reward("acc", rewards=[10, 3], table_fmt="records")
    assert rewards[0]["E[Reward]"] == pytest.approx(10 * ranks[0]["Rank 1"] + 3 * ranks[0]["Rank 2"])
    assert sum(row["E[Reward]"] for row in rewards) == pytest.approx(13)
    text = study.report_pairwise_comparison("acc", experiment_a="mlp/a", experiment_b="svm/aggregated")
    assert text.startswith("acc of mlp/a minus that of svm/aggregated: median -") and "observed" not in text
    with raises(ValueError, "experiment_a, experiment_b: got 'mlp/a' twice, wanted two experiments"):
        study.get_pairwise_comparison("acc", experiment_a="mlp/a", experiment_b="mlp/a")


@pytest.mark.parametrize("report", REPORTS)
def test_reports_formats_contain_all_headers(report, study):
    call = getattr(study, report)
    headers = list(call("f1", 0, table_fmt="records", **REPORTS[report])[0])
    for table_fmt in FORMATS:
        escaped = {"html": html.escape, "latex": escaped_latex}.get(table_fmt, str)
        text = call("f1", 0, table_fmt=table_fmt, **REPORTS[report])
        assert all(escaped(header) in text for header in headers)
    assert list(call("f1", 0, table_fmt="pandas", **REPORTS[report]).columns) == headers


def test_groups_sample_and_pool_like_a_study(study):
    metric, group = pcm.get_metric("acc"), pcm.ExperimentGroup("mlp", RNG(0))
    for name, experiment in study["mlp"].items():
        group.add_experiment(name, experiment.confusion_matrix, 1, 1)
    aggregator = pcm.get_experiment_aggregator("fe")
    both = group.sample_metrics(["acc", "f1"], "posterior", 10_000, {metric: aggregator})
    assert torch.equal(both.aggregation_result[metric].values, study.samples("acc", "mlp/aggregated"))
    single = both.individual_experiment_results[metric]
    assert torch.equal(single[1].values, study.samples("acc", "mlp/b")) and group.num_experiments == 2
    roots = group["a"].sample_posterior(50)
    cells = roots[next(root for root in roots if root.name == "norm_confusion_matrix")].values
    assert cells.shape == (50, 3, 3) and len(group["a"].sample_input()) == len(roots)
    assert (study.num_experiments, study.num_experiment_groups, study.all_experiments()[0]) == (4, 2, "mlp/a")


def test_forest_rows_are_experiments_and_aggregates(study):
    pytest.importorskip("matplotlib")
    (ax,) = study.plot_forest_plot("acc", agg_offset=0, precision=3).axes
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["mlp/a", "mlp/b", "mlp/aggregated", "svm/a", "svm/b", "svm/aggregated"]
    low, high = pcm.hdi_estimator(study.column("acc", None, "mlp/a"), 0.95)
    assert ax.texts[0].get_text().endswith(f" [{low:.3f}, {high:.3f}]") and len(ax.texts) == 6
