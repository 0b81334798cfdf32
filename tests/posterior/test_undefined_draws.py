"""Results that rest on fewer draws than all say so: draws of 0 / 0 are left out of medians and intervals."""

from contextlib import nullcontext

import pytest
import torch

from tensormetrics.posterior import ConfMatIOWarning, ConfusionPosterior, Study, summarize
from tensormetrics.uncertainty import UncertaintyWarning, compare_samples

COUNTS = torch.tensor([[8, 2, 0], [1, 9, 0], [0, 0, 0]])  # the last class is neither true nor predicted
PRIORS = {"prevalence_prior": 1e-3, "confusion_prior": 1e-3}


@pytest.fixture
def study():
    study = Study(seed=0, metrics=["ppv", "acc"])
    for name in ("a/0", "a/1"):
        with pytest.warns(ConfMatIOWarning, match="class 2 is never predicted"):
            study.add_experiment(name, COUNTS, **PRIORS)
    return study


def fraction_of(study, name="a/0"):
    return float(study.column("ppv", 2, name).isnan().double().mean())


def test_estimate_of_confusion_posterior_names_fraction_of_undefined_draws():
    metric = ConfusionPosterior(3, ["ppv", "acc"], **PRIORS)
    cells = torch.arange(9).repeat_interleave(COUNTS.flatten())
    metric.update(cells % 3, cells // 3)
    estimates = metric.interval()
    fractions = estimates["ppv"].details["nan_fraction"]
    assert fractions.shape == (3,) and 0.2 < fractions[2] < 1 and (fractions[:2] == 0).all()
    assert estimates["acc"].details["nan_fraction"] == 0
    assert "undefined in up to" in repr(estimates["ppv"]) and "undefined" not in repr(estimates["acc"])


def test_reports_show_column_of_undefined_draws_where_there_are_some(study):
    study.add_metric("ppv", "singleton")
    study.add_metric("acc", "singleton")
    del study["a"].experiments["1"]
    for report in study.report_metric_summaries, study.report_aggregated_metric_summaries:
        with nullcontext() if report == study.report_metric_summaries else pytest.warns(UncertaintyWarning):
            (row,) = report("ppv", 2, table_fmt="records")
        assert row["NaN"] == pytest.approx(fraction_of(study))
        assert "NaN" not in report("acc", table_fmt="records")[0]
    assert "NaN" not in study.report_metric_summaries("ppv", 2, columns=["Median"], table_fmt="records")[0]
    assert "NaN" not in study.report_random_metric_summaries("ppv", 2, table_fmt="records")[0]


def test_summary_lists_undefined_draws_where_there_are_some():
    samples = torch.tensor([[0.1, 0.2], [torch.nan, 0.3], [0.4, 0.5]])
    assert summarize(samples).as_dict()["NaN"].tolist() == pytest.approx([1 / 3, 0])
    assert "NaN" not in summarize(samples[:, 1]).headers


def test_comparison_reports_show_column_of_undefined_draws(study):
    (pair,) = study.report_pairwise_comparisons("ppv", 2, table_fmt="records")
    both = study.column("ppv", 2, "a/0") - study.column("ppv", 2, "a/1")
    assert pair["NaN"] == pytest.approx(float(both.isnan().double().mean())) and pair["NaN"] > 0
    assert all(row["NaN"] > 0 for row in study.report_pairwise_comparison_to_random("ppv", 2, table_fmt="records"))
    assert "NaN" not in study.report_pairwise_comparisons("acc", table_fmt="records")[0]
    assert "NaN" not in study.report_pairwise_comparison_to_random("acc", table_fmt="records")[0]


def test_tables_of_study_show_column_of_undefined_draws(study):
    table = study.table()
    assert table["a/0", "ppv/2"].details["nan_fraction"] == pytest.approx(fraction_of(study))
    assert table["a/0", "ppv/2 NaN"] == pytest.approx(fraction_of(study)) and "acc NaN" not in table.columns
    assert float(study.compare("ppv", 2)["a/0 - a/1", "NaN"]) > 0
    assert "NaN" not in study.compare("acc").columns


def test_comparison_of_samples_names_fraction_of_undefined_draws():
    a, b = torch.tensor([[1.0, torch.nan, 2.0, 3.0], [torch.nan, 1.0, 1.0, 1.0]])
    assert compare_samples(a, b).details["nan_fraction"] == 0.5
