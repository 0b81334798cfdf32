"""Behavior of nan and the infinities in all floating arguments: the result is nan, an error, or ignores them."""

import math

import pytest
import torch
from cases import posterior as posterior_cases
from cases import statistics

from tensormetrics import posterior, uncertainty
from tensormetrics.posterior import ConfusionPosterior, Study, get_metric
from tensormetrics.posterior.extend import get_experiment_aggregator
from tensormetrics.posterior.functional import PairedItems
from tensormetrics.posterior.sampling.rng import RNG
from tensormetrics.uncertainty.statistics import density, pooling, truncated

FUNCTIONS = posterior_cases.FUNCTIONS | statistics.FUNCTIONS
BAD = [math.nan, math.inf, -math.inf]
U = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
SAMPLES = 0.5 + 0.1 * torch.rand(60, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
ORDERED = {"hdi": [0, 1], "compare_samples": [0, 3, 4]}  # results of the order of samples alone
LEFT_OUT = ["estimate_i2", *ORDERED]


@pytest.mark.filterwarnings("ignore:samples")
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", LEFT_OUT)
def test_samples_that_are_not_finite_are_left_out_or_ordered(name, bad, generator):
    samples, *others = (x.double() for x in FUNCTIONS[name].inputs(generator, ()))
    axis = samples.ndim - (2 if name == "estimate_i2" else 1)
    corrupted = samples.clone()
    corrupted.movedim(axis, 0)[3] = bad

    def call(x):
        return [result.double() for result in FUNCTIONS[name].call(x, *others)]

    results = call(corrupted)
    if name in ORDERED and bad == bad:
        far = call(torch.where(corrupted.isinf(), math.copysign(1e6, bad), corrupted))
        for k in ORDERED[name]:  # the median, the highest density interval, the p-value and P(d > 0)
            torch.testing.assert_close(results[k], far[k])
        return
    expected = call(samples.index_select(axis, torch.tensor([k for k in range(samples.shape[axis]) if k != 3])))
    torch.testing.assert_close(results, expected, rtol=1e-9, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("name", sorted({cls.aliases[0] for cls in posterior.extend.METRIC_REGISTRY.values()}))
@pytest.mark.parametrize("bad", [*BAD, 1e308])
def test_metrics_of_nonfinite_counts_are_nan(name, bad):
    matrix = torch.tensor([[5.0, 2, 1], [0, 7, 1], [0, 0, 0]], dtype=torch.float64)
    for i, j in (0, 0), (1, 2), (2, 0):
        corrupted = matrix.clone()
        corrupted[i, j] = bad
        corrupted[0, 1] = abs(bad) if abs(bad) == 1e308 else 2  # the sum is not finite
        for zero_division in None, 1:
            assert get_metric(name, zero_division)(corrupted).isnan().all()
        if not get_metric(name).is_multiclass:
            for average in "macro+skip_nan=True", "weighted", "micro", "max+skip_nan=True", "geometric":
                assert get_metric(f"{name}@{average}")(corrupted).isnan().all(), average


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("aggregation", ["fe", "re", "correlated", "beta", "gamma", "hist"])
def test_aggregators_ignore_nonfinite_samples(aggregation, bad):
    corrupted = SAMPLES.clone()
    corrupted[7] = bad
    aggregate = get_experiment_aggregator(aggregation, RNG(0))(torch.cat([corrupted, SAMPLES[:1]])[:60], (0.0, 1.0))
    reference_aggregate = get_experiment_aggregator(aggregation, RNG(0)).aggregate
    reordered = torch.cat([SAMPLES[:7], SAMPLES[8:], SAMPLES[8:9] * math.nan])
    torch.testing.assert_close(aggregate, reference_aggregate(reordered, (0.0, 1.0)))
    assert aggregate.isfinite().all()


MATRIX = torch.tensor([[5.0, 2], [1, 7]], dtype=torch.float64)


def corrupted_matrix(bad):
    matrix = MATRIX.clone()
    matrix[1, 0] = bad
    return matrix


def study(**experiment):
    result = Study(0, metrics={"acc": {"aggregation": "fe"}})
    for name in "ab":
        result.add_experiment(f"g/{name}", **{"confusion_matrix": MATRIX, **experiment})
    return result


# Public functions, and functions that read their arguments anyway.
REFUSALS = {
    "validate_confusion_matrix": lambda x: posterior.functional.validate_confusion_matrix(corrupted_matrix(x)),
    "dirichlet_prior": lambda x: posterior.functional.dirichlet_prior([x, 1], (2,)),
    "sample_dirichlet": lambda x: posterior.functional.sample_dirichlet(torch.tensor([1, x]), 2),
    "sample_log_gamma": lambda x: posterior.functional.sample_log_gamma(torch.tensor([1, x]), 2),
    "sample_sums": lambda x: posterior.functional.sample_sums(corrupted_matrix(x), 2),
    "sample_sums of the input": lambda x: posterior.functional.sample_sums(corrupted_matrix(x), 2, method="input"),
    "sample_sums under a prior": lambda x: posterior.functional.sample_sums(MATRIX, 2, prevalence_prior=x),
    "sample_confusion_matrices": lambda x: posterior.functional.sample_confusion_matrices(corrupted_matrix(x), 2),
    "sample_metrics": lambda x: posterior.functional.sample_metrics(corrupted_matrix(x), "acc", 2),
    "sample_paired_matrices": lambda x: posterior.functional.sample_paired_matrices(
        PairedItems("a", torch.tensor([0, 3])), 2, 2, confusion_prior=x
    ),
    "ConfusionPosterior": lambda x: ConfusionPosterior(2, confusion_prior=x),
    "ConfusionPosterior of a probability": lambda x: ConfusionPosterior(2, confidence=x),
    "Experiment": lambda x: posterior.Experiment("a", corrupted_matrix(x)),
    "Study": lambda x: study(confusion_matrix=corrupted_matrix(x)),
    "Study under a prior": lambda x: study(confusion_prior=x),
    "Study of a probability": lambda x: Study(0, confidence=x),
    "hdi": lambda x: uncertainty.functional.hdi(SAMPLES, x),
    "compare_samples": lambda x: uncertainty.compare_samples(SAMPLES, SAMPLES, confidence=x),
    "compare_samples and its rope": lambda x: uncertainty.compare_samples(SAMPLES, SAMPLES, rope=-abs(x)),
    "compare_folds": lambda x: uncertainty.compare_folds(U, U, x),
    "compare_data_sets": lambda x: uncertainty.compare_data_sets(torch.tensor([[x, 0.5], [0.4, 0.6]]), SAMPLES[:2, :2]),
    "items_needed": lambda x: posterior.items_needed(MATRIX, "acc", x),
    "items_needed of a matrix": lambda x: posterior.items_needed(corrupted_matrix(x), "acc", 0.1),
    "kde": lambda x: density.kde(SAMPLES, bw_adjust=x),
    "kde and its cut": lambda x: density.kde(SAMPLES, cut=x),
    "interpret_i2": lambda x: posterior.functional.interpret_i2(x),
    "pool_correlated": lambda x: pooling.pool_correlated(SAMPLES, U, (0.0, 1.0), rho=x),
    "pool_histogram": lambda x: pooling.pool_histogram(SAMPLES, U, (0.0, 1.0), pseudo_count_weight=x),
    "pool_beta": lambda x: pooling.pool_beta(SAMPLES, U, (0.0, x)),
    "get_metric": lambda x: get_metric(f"fbeta+beta={x}" if x == x else "fbeta+beta=nan"),
    "RNG": lambda x: RNG(0).standard_gamma(x, 2),
    "RNG and its choice": lambda x: RNG(0).choice([1, 2], 2, p=[0.5, x]),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", REFUSALS)
def test_functions_nonfinite_argument_raises(name, bad):
    with pytest.raises(ValueError):
        REFUSALS[name](bad)


# Functions without a row: the result is nan.
PASSED_ON = {
    "sums_from_matrices": lambda x: torch.stack(posterior.functional.sums_from_matrices(corrupted_matrix(x))[:4]),
    "sums_from_matrices of weights": lambda x: (
        posterior.functional.sums_from_matrices(MATRIX, corrupted_matrix(x)[None]).weighted
    ),
    "sample_sums of weights": lambda x: (
        posterior.functional.sample_sums(
            torch.tensor([[5, 2], [0, 7]]), 2, confusion_prior=0, weights=corrupted_matrix(x)[None]
        ).weighted
    ),
    "sample_metrics of the input": lambda x: posterior.functional.sample_metrics(
        corrupted_matrix(x), "f1", 1, method="input"
    )[0],
    "truncated_normal_icdf": lambda x: truncated.truncated_normal_icdf(U, U[0], U[0], abs(x), 1.0),
    "truncated_t_icdf": lambda x: truncated.truncated_t_icdf(U, 3.0, U[0], U[0], 0.0, -abs(x)),
    "truncated_t_icdf of degrees": lambda x: truncated.truncated_t_icdf(U, x, U[0], U[0], 0.0, 1.0),
    "truncated_gamma_icdf": lambda x: truncated.truncated_gamma_icdf(U, U[0], U[0], torch.tensor(abs(x)), 1.0),
    "RNG": lambda x: RNG(0).uniform(2, high=x) * 0,
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", PASSED_ON)
def test_functions_nonfinite_argument_gives_no_finite_value(name, bad):
    values = PASSED_ON[name](bad)
    assert not values.isfinite().any()


def test_nan_samples_give_undefined_i2():
    corrupted = SAMPLES.clone()
    corrupted[:, 1] = math.nan
    with pytest.warns(UserWarning, match="are nan or infinite"):
        assert posterior.functional.estimate_i2(corrupted).i2.isnan()
