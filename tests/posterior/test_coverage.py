"""Intervals of 95 % contain the truth in 95 % of all data sets."""

import pytest
import torch

from tensormetrics.posterior import get_metric
from tensormetrics.posterior.functional import sample_confusion_matrices, sample_metrics
from tensormetrics.uncertainty.statistics.samples import equal_tailed, estimate

METRICS = ["acc", "f1@macro", "mcc"]
SETS, ITEMS, SAMPLES = 2000, 400, 4000
TRUTH = torch.tensor([[0.40, 0.06, 0.04], [0.05, 0.22, 0.03], [0.02, 0.03, 0.15]], dtype=torch.float64)
UNIFORM = {"prevalence_prior": 1, "confusion_prior": 1}


@pytest.mark.slow
@pytest.mark.parametrize("are_drawn", [False, True], ids=["one_truth", "truths_of_the_prior"])
def test_intervals_cover_truth_at_nominal_rate(are_drawn, generator, device):
    truths, priors = TRUTH.expand(SETS, 3, 3), {"prevalence_prior": "perks", "confusion_prior": "perks"}
    if are_drawn:  # truths sampled from the prior itself are covered at exactly the nominal rate
        priors = UNIFORM
        truths = sample_confusion_matrices(torch.zeros(3, 3), SETS, method="prior", seed=1, **UNIFORM)[:, 0]
    cells = torch.multinomial(truths.flatten(1).double(), ITEMS, replacement=True, generator=generator)
    counts = torch.zeros(SETS, 9, dtype=torch.float64).scatter_add_(1, cells, torch.ones(SETS, ITEMS).double())
    counts = counts.view(SETS, 3, 3).to(device)
    samples_by_metric = sample_metrics(counts, METRICS, SAMPLES, **priors)
    tolerance = 4 * (0.95 * 0.05 / SETS) ** 0.5
    for name, samples in zip(METRICS, samples_by_metric, strict=True):
        truth = get_metric(name)(truths.to(device))[:, 0]
        for _, low, high in estimate(samples[..., 0]), equal_tailed(samples[..., 0]):
            covered = ((low <= truth) & (truth <= high)).double().mean()
            assert abs(covered - 0.95) < tolerance, name
