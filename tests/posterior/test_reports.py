# ruff: noqa: E501 (messages are not split)
import html
import math

import pytest
import torch
from raising import raises

from tensormetrics.core.results.text_tables import escaped_latex
from tensormetrics.posterior import (
    ConfigWarning,
    PosteriorWarning,
    Study,
    UnknownNameError,
    summarize,
)
from tensormetrics.posterior.comparison.pairwise import pairwise_compare
from tensormetrics.uncertainty import compare_folds

PRIORS = {"prevalence_prior": 1, "confusion_prior": 1}
FORMATS = ["github", "pipe", "html", "latex", "csv", "plain", "rst"]
REPORTS = {
    "report_metric_summaries": {},
    "report_random_metric_summaries": {},
    "report_aggregated_metric_summaries": {},
    "report_pairwise_comparisons": {},
    "report_pairwise_comparison_to_random": {},
    "report_listwise_comparison": {},
    "report_expected_reward": {"rewards": [10, 3]},
}


@pytest.fixture(scope="module")
def study():
    study = Study(
        0, metrics={"acc": {"aggregation": "fe"}, "f1": {"aggregation": "beta"}, "fnr": {"aggregation": "re"}}
    )
    generator = torch.Generator().manual_seed(0)
    for group, right in ("mlp", 40), ("svm", 60):
        for fold in "ab":
            matrix = torch.randint(1, 9, (3, 3), generator=generator) + right * torch.eye(3, dtype=torch.int64)
            study.add_experiment(f"{group}/{fold}", matrix, **PRIORS)
    return study


def test_metric_summaries_rows_equal_samples(study):
    rows = study.report_metric_summaries("f1", 1, table_fmt="records")
    assert [(row["Group"], row["Experiment"]) for row in rows] == [
        ("mlp", "a"),
        ("mlp", "b"),
        ("svm", "a"),
        ("svm", "b"),
    ]
    samples = study.get_metric_samples("f1", "svm/a").values[:, 1]
    summary, row = summarize(samples), rows[2]
    assert row["Observed"] == study.get_metric_samples("f1", "svm/a", "input").values[0, 1]
    assert row["95.0% HDI"] == tuple(map(float, summary.hdi)) and row["Mode"] == summary.mode
    assert row["Skew"] == pytest.approx(float(summary.skew), rel=1e-9)
    columns = ["NaN", "Observed", "MCSE", "ETI", "Mean", "SD"]
    row = study.report_metric_summaries("f1", 1, table_fmt="records", columns=columns)[2]
    assert list(row) == ["Group", "Experiment", "NaN", "Observed", "MCSE", "95.0% ETI", "Mean", "SD"]
    assert row["SD"] == pytest.approx(float(summary.sd)) and row["MCSE"] == pytest.approx(float(summary.mcse_mean))
    assert row["NaN"] == 0
    with pytest.raises(
        ValueError, match="^columns: got 'Average', wanted some of Observed, Median, Mean, SD, Mode, HDI,"
    ):
        study.report_metric_summaries("f1", 1, columns=["Average"])
    random = study.report_random_metric_summaries("acc", table_fmt="records")
    assert "Observed" not in random[0] and abs(random[0]["Median"] - 1 / 3) < 0.02


def test_aggregated_summaries_rows_equal_samples(study):
    row = study.report_aggregated_metric_summaries("f1", 2, table_fmt="records")[1]
    result = study.get_metric_samples("f1", "svm/aggregated")
    summary = summarize(result.values[:, 2])
    assert row["Group"] == "svm" and row["Skew"] == summary.skew and row["Kurtosis"] == summary.kurtosis
    assert row["I2"] == result.heterogeneity_results.i2[2] and "Kurt" not in row
    assert row["Var. Within"] == result.heterogeneity_results.within_experiment_variance[2]
    text = study.report_aggregated_metric_summaries("f1", 2, precision=3)
    assert f"{row['I2']:.1%}" in text.splitlines()[-1]


def test_pairwise_report_rows_equal_comparisons(study):
    pairs = study.compare_all_pairs("fnr", 0, min_sig_diff=0.03)
    rows = study.report_pairwise_comparisons("fnr", 0, min_sig_diff=0.03, table_fmt="records")
    assert len(rows) == 6 and rows[5]["Experiment A"] == "svm/a" and rows[5]["Experiment B"] == "svm/b"
    for p, (a, b) in enumerate(zip(pairs.lhs_name, pairs.rhs_name, strict=True)):
        single = study.get_pairwise_comparison("fnr", 0, experiment_a=a, experiment_b=b, min_sig_diff=0.03)
        for name in "median", "p_rope", "p_uni_sig", "bf_rope", "observed_diff", "p_rope_random":
            torch.testing.assert_close(getattr(pairs, name)[p], getattr(single, name), equal_nan=True, msg=name)
        assert rows[p]["Median Δ"] == single.median and rows[p]["Favours"] == single.favours
        assert (rows[p]["P(A > B)"], rows[p]["P(B > A)"]) == (single.p_greater, single.p_less)
        lower = a if single.median < 0 else b  # fewer misses are better
        assert single.favours == lower
    text = study.report_pairwise_comparison("acc", experiment_a="mlp/a", experiment_b="svm/aggregated")
    assert text.startswith("acc of mlp/a minus that of svm/aggregated: median -")
    assert "observed" not in text and "(default: a tenth" in text
    with pytest.warns(ConfigWarning, match="^table_fmt: got 'html', but one comparison is a text; report_pairwise_"):
        study.report_pairwise_comparison("acc", experiment_a="mlp/a", experiment_b="mlp/b", table_fmt="html")


def test_comparison_to_random(study):
    row = study.report_pairwise_comparison_to_random("acc", min_sig_diff=0.1, table_fmt="records")[3]
    posterior, random = (study.get_metric_samples("acc", "svm/b", m).values[:, 0] for m in ("posterior", "random"))
    expected = pairwise_compare(posterior - random, 0.95, 0.1)
    assert row["Median Δ"] == expected.median and row["ROPE"] == (-0.1, 0.1) and row["p_sig"] == expected.p_bi_sig
    assert row["P(> random)"] == float((posterior > random).double().mean())
    assert study.get_pairwise_random_comparison("acc", experiment="svm/b").bf_rope is None


def test_listwise_report_rows_are_ordered_by_rank(study):
    rows = study.report_listwise_comparison("acc", table_fmt="records")
    assert all(sum(row[f"Rank {r}"] for r in (1, 2, 3, 4)) == pytest.approx(1) for row in rows)
    best = max(study.list_experiments(), key=lambda name: study.get_metric_samples("acc", name).values.mean())
    assert f"{rows[0]['Group']}/{rows[0]['Experiment']}" == best
    worst = study.get_listwise_comparison_result("fnr", 0).experiment_names[-1]
    assert worst == max(
        study.list_experiments(), key=lambda name: study.get_metric_samples("fnr", name).values[:, 0].mean()
    )
    groups = study.get_listwise_comparison_result("acc", groups=True)
    assert groups.experiment_names == ["svm/aggregated", "mlp/aggregated"]
    rewards = study.report_expected_reward("acc", rewards=[10, 3], table_fmt="records")
    assert rewards[0]["E[Reward]"] == pytest.approx(10 * rows[0]["Rank 1"] + 3 * rows[0]["Rank 2"])
    assert sum(row["E[Reward]"] for row in rewards) == pytest.approx(13)
    text = study.report_listwise_comparison("acc", table_fmt="csv", precision=1)
    assert ",," in text or text.endswith(",")  # nearly impossible ranks are blank


def test_fold_report_row_equals_compare_folds(study):
    row = study.report_fold_comparison("acc", group_a="mlp", group_b="svm", min_sig_diff=0.01, table_fmt="records")[0]
    observed = [
        torch.cat([study.get_metric_samples("acc", f"{group}/{fold}", "input").values[:, 0] for fold in "ab"])
        for group in ("mlp", "svm")
    ]
    expected = compare_folds(*observed, rope=0.01)
    assert row["Mean Δ"] == expected.difference and row["p"] == expected.p_value and row["rho"] == 0.5
    assert row["95.0% interval"] == (float(expected.low), float(expected.high)) and row["p_ROPE"] == expected.p_rope
    assert row["p_better"] == expected.p_better and row["SD"] == expected.details["sd"]
    worse = study.report_fold_comparison("fnr", 0, group_a="mlp", group_b="svm", table_fmt="records")[0]
    assert worse["Mean Δ"] != 0 and (worse["p_better"] > 0.5) == (worse["Mean Δ"] < 0)  # fewer misses are better
    unequal = Study(0, metrics={"acc": {}})
    for name in "m/a", "m/b", "n/a", "n/c":
        unequal.add_experiment(name, [[1, 2], [3, 4]], **PRIORS)
    names = "got experiments ['a', 'b'] and ['a', 'c'], wanted the same two or more names in both"
    with raises(ValueError, f"group_a, group_b: {names}"):
        unequal.get_fold_comparison("acc", group_a="m", group_b="n")


@pytest.mark.parametrize("report", REPORTS)
def test_reports_formats_contain_all_headers(report, study):
    call = getattr(study, report)
    headers = list(call("f1", 0, table_fmt="records", **REPORTS[report])[0])
    for table_fmt in FORMATS:
        text = call("f1", 0, table_fmt=table_fmt, **REPORTS[report])
        assert isinstance(text, str)
        escaped = {"html": html.escape, "latex": escaped_latex}
        assert all(escaped.get(table_fmt, str)(header) in text for header in headers)
    assert list(call("f1", 0, table_fmt="pandas", **REPORTS[report]).columns) == headers


@pytest.mark.parametrize("report", REPORTS)
def test_reports_empty_study_gives_empty_table(report):
    empty = Study(0, metrics={"acc": {}})
    with pytest.warns(PosteriorWarning, match="^the study has no experiments, so the report is empty$"):
        assert getattr(empty, report)("acc", table_fmt="records", **REPORTS[report]) == []
    with pytest.warns(PosteriorWarning):
        assert "| " in getattr(empty, report)("acc", **REPORTS[report])


def test_summaries_never_predicted_class_is_nan():
    study = Study(0, metrics={"ppv": {"aggregation": "fe"}})
    with pytest.warns(UserWarning, match="never predicted"):
        study.add_experiment("a", [[8, 0], [5, 0]], 0, 0)
    row = study.report_metric_summaries("ppv", 1, table_fmt="records", columns=["Median", "Mode", "HDI", "NaN"])[0]
    assert math.isnan(row["Median"]) and math.isnan(row["Mode"]) and math.isnan(row["95.0% HDI"][0]) and row["NaN"] == 1


CALLS = [
    (lambda s: s.report_metric_summaries("f1"), "class_label: got None for metric 'f1', wanted 0 to 2 for experiment 'mlp/a'"),
    (lambda s: s.report_metric_summaries("f1", 3), "class_label: got 3 for metric 'f1', wanted 0 to 2 for experiment 'mlp/a'"),
    (lambda s: s.get_pairwise_comparison("acc", experiment_a="h", experiment_b="h/h"), "experiment_a, experiment_b: got 'h/h' twice, wanted two experiments"),
    (lambda s: s.get_fold_comparison("acc", group_a="mlp", group_b="mlp3"), "there is no group 'mlp3' in the study; the closest are 'mlp', 'svm'"),
    (lambda s: Study(0, metrics={"acc": {}}).compare_all_pairs("acc"), "the study has 0 experiments, a comparison needs at least 2"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_reports_invalid_arguments_raise(call, message, study):
    with raises(ValueError, message):
        call(study)
    with pytest.raises(UnknownNameError, match="^there is no metric 'kappa' in the study"):
        study.report_metric_summaries("kappa")


def test_unneeded_class_label_warns_once(study):
    with pytest.warns(ConfigWarning) as caught:
        assert study.class_index("acc", 2, ["mlp/a"]) == 0
        study.report_metric_summaries("acc", 2)
        study.report_pairwise_comparisons("acc", 2)
    assert [str(w.message) for w in caught] == ["metric 'acc' has one value for all classes; class_label 2 is ignored"]
    assert study.class_index("acc", 0, ["mlp/a"]) == 0 == study.class_index("acc", None, [])
