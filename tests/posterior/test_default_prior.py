"""The default priors: one item in total, half of it right. The accuracy then has Jeffreys' law."""

import pytest
import torch
from scipy import stats

from tensormetrics.posterior import (
    ConfusionPosterior,
    Experiment,
    Study,
    sample_confusion_matrices,
    sample_metrics,
    sample_sums,
)
from tensormetrics.uncertainty.statistics.samples import estimate


def table(right, wrong, C):
    """Build (C, C) counts with these numbers of right and wrong answers, distributed unevenly."""
    counts = torch.zeros(C, C, dtype=torch.int64)
    for k in range(right):
        counts[k * k % C, k * k % C] += 1
    for k in range(wrong):
        counts[3 * k % C, (3 * k + 1 + k % (C - 1)) % C] += 1
    assert counts.diagonal().sum() == right and counts.sum() == right + wrong
    return counts


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("C", [2, 10, 100])
@pytest.mark.parametrize(("right", "wrong"), [(596, 4), (0, 7), (60, 0), (12, 8)])
def test_default_prior_accuracy_has_jeffreys_law(right, wrong, C, dtype, device):
    (samples,) = sample_metrics(table(right, wrong, C).to(device), "acc", 4000, dtype=dtype)
    law = stats.beta(right + 0.5, wrong + 0.5)
    assert stats.kstest(samples[:, 0, 0].double().cpu().numpy(), law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("prior", ["balanced", "hierarchical"])
def test_prior_entry_points_give_equal_samples(prior, device):
    counts, priors = table(50, 10, 4).to(device), {"prevalence_prior": "perks", "confusion_prior": prior}
    (expected,) = sample_metrics(counts, "mcc", 300, names=["g/e"], **priors)
    priors = {} if prior == "balanced" else priors  # it is the default
    study = Study(0, 300, metrics={"mcc": {}}, device=device)
    study.add_experiment("g/e", counts, **priors)  # without a warning
    (values,) = Experiment("g/e", counts, **priors, device=device).samples("mcc", "posterior", 300, seed=0)
    assert torch.equal(values, expected[:, 0])
    assert torch.equal(study.samples("mcc", "g/e"), expected[:, 0])
    assert study.to_dict()["experiments"]["g"]["e"]["confusion_prior"] == prior
    metric = ConfusionPosterior(4, "mcc", replicates=300, name="g/e", **priors).to(device)
    cells = torch.arange(16, device=device).repeat_interleave(counts.flatten())
    metric.update(cells % 4, cells // 4)
    assert metric.interval()["mcc"].details["median"] == estimate(expected[:, 0, 0]).value
    sums = sample_sums(counts, 9, dtype=torch.float64, **priors)
    matrices = sample_confusion_matrices(counts, 9, dtype=torch.float64, **priors)
    torch.testing.assert_close(matrices.diagonal(dim1=-2, dim2=-1), sums.tp)
