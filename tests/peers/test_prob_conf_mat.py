"""Agreement with prob_conf_mat 0.4.0, where it is right."""

import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from tensormetrics import posterior

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pcm = pytest.importorskip("prob_conf_mat")
    from prob_conf_mat.experiment_aggregation import get_experiment_aggregator
    from prob_conf_mat.experiment_aggregation.heterogeneity import heterogeneity_dl, heterogeneity_pm
    from prob_conf_mat.stats import summarize_posterior
    from prob_conf_mat.utils import RNG

pytestmark = pytest.mark.filterwarnings("ignore")
MATRICES = {"a": [[40, 3, 2], [5, 30, 6], [1, 4, 50]], "b": [[35, 8, 2], [9, 22, 10], [1, 14, 40]]}
METRICS = ["acc", "mcc", "kappa", "ba", "f1@macro", "f1", "ppv", "log_dor"]


@pytest.fixture(scope="module")
def studies():
    found = []
    for package in pcm, posterior:
        study = package.Study(seed=0, num_samples=20_000, ci_probability=0.95)
        for metric in METRICS:
            study.add_metric(metric, aggregation="fe")
        for name, matrix in MATRICES.items():
            study.add_experiment(f"g/{name}", np.array(matrix), prevalence_prior="ones", confusion_prior="ones")
        found.append(study)
    return found


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["g/a", "g/aggregated"])
def test_samples_have_the_same_distribution(metric, name, studies):
    theirs, ours = (study.get_metric_samples(metric, name, "posterior").values for study in studies)
    for c in range(ours.shape[1]):
        assert stats.ks_2samp(np.asarray(theirs).reshape(len(ours), -1)[:, c], ours[:, c].numpy()).pvalue > 1e-4


@pytest.mark.parametrize("metric", METRICS)
def test_observed_values(metric, studies):
    theirs, ours = (study.get_metric_samples(metric, "g/b", "input").values for study in studies)
    np.testing.assert_allclose(ours.numpy().ravel(), np.asarray(theirs).ravel(), rtol=1e-9)


def test_summaries(studies):
    samples = studies[1].get_metric_samples("mcc", "g/a").values[:, 0].double()
    theirs, ours = summarize_posterior(samples.numpy(), 0.95), posterior.summarize(samples)
    np.testing.assert_allclose(ours.median, theirs.median)
    np.testing.assert_allclose(ours.hdi, theirs.hdi, rtol=1e-12)
    np.testing.assert_allclose([ours.skew, ours.kurtosis], [theirs.skew, theirs.kurtosis], rtol=1e-9)


def test_comparisons(studies):
    pair = {"experiment_a": "g/a", "experiment_b": "g/b", "min_sig_diff": 0.05}
    theirs, ours = (study.get_pairwise_comparison("acc", **pair) for study in studies)
    for field in "p_direction", "p_rope", "p_sig_neg", "p_sig_pos", "p_bi_sig":
        assert float(getattr(ours, field)) == pytest.approx(float(getattr(theirs, field)), abs=0.02), field
    assert ours.direction == theirs.direction
    assert float(ours.observed_diff) == pytest.approx(float(theirs.observed_diff))
    rows = [study.report_expected_reward("acc", rewards=[3, 1], table_fmt="records") for study in studies]
    assert rows[1][0]["E[Reward]"] == pytest.approx(3, abs=0.1)


def test_heterogeneity(generator):
    means, variances = torch.rand(2, 6, generator=generator, dtype=torch.float64)
    for scale in 0.01, 1.0:
        v = scale * variances
        ours = posterior.heterogeneity_dl(means, v), posterior.heterogeneity_pm(means, v)
        theirs = heterogeneity_dl(means.numpy(), v.numpy()), heterogeneity_pm(means.numpy(), v.numpy())
        np.testing.assert_allclose([float(x) for x in ours], theirs, atol=1e-4)


@pytest.mark.parametrize("aggregation", ["fe", "re", "beta", "gamma", "hist"])
def test_pooling(aggregation, generator):
    samples = torch.distributions.Beta(60, 20).sample((20_000, 3)) + torch.tensor([-0.02, 0, 0.02])
    samples = samples.clamp(0, 1).double()
    theirs = get_experiment_aggregator(aggregation, rng=RNG(0)).aggregate(samples.numpy(), bounds=(0.0, 1.0))
    ours = posterior.get_experiment_aggregator(aggregation)(samples, (0.0, 1.0))
    assert ours.mean().item() == pytest.approx(theirs.mean(), abs=2e-3)
    assert ours.std().item() == pytest.approx(theirs.std(), rel=0.05)
