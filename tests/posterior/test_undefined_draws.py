"""Results that rest on fewer draws than all say so: draws of 0 / 0 are left out of medians and intervals."""

import pytest
import torch

from tensormetrics.posterior import ConfusionPosterior, Study
from tensormetrics.posterior.extend import ConfMatIOWarning
from tensormetrics.uncertainty import compare_samples

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
    assert fractions.shape == (3,) and 0.1 < fractions[2] < 1 and (fractions[:2] == 0).all()
    assert estimates["acc"].details["nan_fraction"] == 0
    assert "undefined in up to" in repr(estimates["ppv"]) and "undefined" not in repr(estimates["acc"])


def test_tables_of_study_show_column_of_undefined_draws(study):
    table = study.table()
    assert table["a/0", "ppv/2"].details["nan_fraction"] == pytest.approx(fraction_of(study))
    assert table["a/0", "ppv/2 NaN"] == pytest.approx(fraction_of(study)) and "acc NaN" not in table.columns
    assert float(study.compare("ppv", 2)["a/0 - a/1", "NaN"]) > 0
    assert "NaN" not in study.compare("acc").columns


def test_comparison_of_samples_names_fraction_of_undefined_draws():
    a, b = torch.tensor([[1.0, torch.nan, 2.0, 3.0], [torch.nan, 1.0, 1.0, 1.0]])
    assert compare_samples(a, b).details["nan_fraction"] == 0.5
