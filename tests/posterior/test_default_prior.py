"""The default priors: one item in total, half of it right. The accuracy then has Jeffreys' law."""

import pytest
import torch
from scipy import stats
from test_hierarchical import simulate_counts

from tensormetrics.posterior import ConfusionPosterior, Experiment, Study
from tensormetrics.posterior.functional import sample_confusion_matrices, sample_metrics, sample_sums
from tensormetrics.uncertainty.functional import hdi
from tensormetrics.uncertainty.statistics.samples import estimate

TRUTHS = [0.6, 0.9, 0.97]
SETS = 400  # of test items
ITEMS = {2: 200, 10: 200, 100: 2000}  # by the number of classes


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
@pytest.mark.parametrize(("right", "wrong"), [(596, 4), (0, 7), (12, 8)])
def test_default_prior_accuracy_has_jeffreys_law(right, wrong, C, dtype, device):
    (samples,) = sample_metrics(table(right, wrong, C).to(device), "acc", 4000, dtype=dtype)
    law = stats.beta(right + 0.5, wrong + 0.5)
    assert stats.kstest(samples[:, 0, 0].double().cpu().numpy(), law.cdf).pvalue > 1e-3


def test_default_prior_entry_points_give_equal_samples(device):
    counts = table(50, 10, 4).to(device)
    (expected,) = sample_metrics(counts, "mcc", 300, names=["g/e"])
    balanced = {"prevalence_prior": "perks", "confusion_prior": "balanced"}
    (explicit,) = sample_metrics(counts, "mcc", 300, names=["g/e"], **balanced)
    assert torch.equal(explicit, expected)
    study = Study(0, 300, metrics={"mcc": {}}, device=device)
    study.add_experiment("g/e", counts)  # without a warning
    (values,) = Experiment("g/e", counts, device=device).samples("mcc", "posterior", 300, seed=0)
    assert torch.equal(values, expected[:, 0])
    assert torch.equal(study.samples("mcc", "g/e"), expected[:, 0])
    assert study.to_dict()["experiments"]["g"]["e"]["confusion_prior"] == "balanced"
    metric = ConfusionPosterior(4, "mcc", replicates=300, name="g/e").to(device)
    cells = torch.arange(16, device=device).repeat_interleave(counts.flatten())
    metric.update(cells % 4, cells // 4)
    assert metric.interval()["mcc"].details["median"] == estimate(expected[:, 0, 0]).value
    sums = sample_sums(counts, 9, dtype=torch.float64)
    matrices = sample_confusion_matrices(counts, 9, dtype=torch.float64)
    torch.testing.assert_close(matrices.diagonal(dim1=-2, dim2=-1), sums.tp)


def test_default_prior_perfect_score_keeps_uncertainty():
    metric = ConfusionPosterior(10)
    metric.update(torch.arange(60) % 10, torch.arange(60) % 10)
    low, high = (float(metric.compute()[name]) for name in ("acc/low", "acc/high"))
    assert high == pytest.approx(1, abs=1e-3)
    assert low == pytest.approx(float(stats.beta(60.5, 0.5).ppf(0.05)), abs=2e-3)  # of a density that rises to 1


@pytest.mark.slow
@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("C", [2, 10, 100])
def test_default_prior_intervals_cover_accuracy(C, truth, generator):
    """Recalls differ by class around `truth`, and wrong classes are unequally frequent."""
    _, counts = simulate_counts(C, ITEMS[C] // C, truth, SETS, generator)
    covered = 0
    for first, part in zip(range(0, SETS, 50), counts.split(50), strict=True):
        names = [str(first + k) for k in range(50)]
        (samples,) = sample_metrics(part, "acc", 2000, names=names)
        low, high = hdi(samples[..., 0])
        covered += int(((low <= truth) & (truth <= high)).sum())
    assert 0.90 <= covered / SETS <= 0.98
