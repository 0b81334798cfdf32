"""The methods that pool the experiments of a group, by name; see `pool` for what they compute."""

from typing import Any

import torch
from torch import Tensor

from ... import _checks
from ...uncertainty.statistics import pooling
from ..metrics.registry import ExperimentAggregator
from ..sampling.arrays import plain
from ..sampling.rng import RNG

Bounds = tuple[float, float]


class Singleton(ExperimentAggregator):
    full_name, aliases, takes_classes = "Singleton", ["singleton", "identity"], True

    def aggregate(self, experiment_samples: Any, bounds: Bounds) -> Tensor:
        return pooling.pool_singleton(_samples(experiment_samples))


class FixedEffects(ExperimentAggregator):
    full_name, takes_classes = "Fixed-effects Gaussian conflation", True
    aliases = ["fe", "fixed_effect", "fe_gaussian", "gaussian", "normal", "fe_normal"]

    def aggregate(self, experiment_samples: Any, bounds: Bounds) -> Tensor:
        samples = _samples(experiment_samples)
        return pooling.pool_fixed_effects(samples, _uniform(self.rng, samples), bounds)


class RandomEffects(ExperimentAggregator):
    full_name, aliases, takes_classes = (
        "Random-effects model",
        ["re", "random_effect", "re_gaussian", "re_normal"],
        True,
    )

    def __init__(
        self, rng: RNG, paule_mandel_heterogeneity: bool = True, hksj_sampling_distribution: bool = False
    ) -> None:
        super().__init__(rng=rng)
        self.options = {
            "paule_mandel_heterogeneity": paule_mandel_heterogeneity,
            "hksj_sampling_distribution": hksj_sampling_distribution,
        }

    def aggregate(self, experiment_samples: Any, bounds: Bounds) -> Tensor:
        samples = _samples(experiment_samples)
        u = _uniform(self.rng, samples)
        return pooling.pool_random_effects(samples, u, bounds, **self.options)


class BetaConflation(ExperimentAggregator):
    full_name, aliases, takes_classes = "Beta conflation", ["beta", "beta_conflation"], True

    def __init__(self, rng: RNG, estimation_method: str = "mle") -> None:
        super().__init__(rng=rng)
        self.estimation_method = estimation_method

    def aggregate(self, experiment_samples: Any, bounds: Bounds) -> Tensor:
        samples = _samples(experiment_samples)
        u = _uniform(self.rng, samples)
        return pooling.pool_beta(samples, u, bounds, estimation_method=self.estimation_method)


class GammaConflation(ExperimentAggregator):
    full_name, aliases, takes_classes = "Gamma conflation", ["gamma", "gamma_conflation"], True

    def __init__(self, rng: RNG, shifted: bool = False) -> None:
        super().__init__(rng=rng)
        self.shifted = shifted

    def aggregate(self, experiment_samples: Any, bounds: Bounds) -> Tensor:
        samples = _samples(experiment_samples)
        u = _uniform(self.rng, samples)
        return pooling.pool_gamma(samples, u, bounds, shifted=self.shifted)


class HistogramConflation(ExperimentAggregator):
    full_name, aliases, takes_classes = "Histogram conflation", ["hist", "histogram"], True

    def __init__(self, rng: RNG, pseudo_count_weight: float = 0.1) -> None:
        super().__init__(rng=rng)
        self.pseudo_count_weight = pseudo_count_weight

    def aggregate(self, experiment_samples: Any, bounds: Bounds) -> Tensor:
        samples = _samples(experiment_samples)
        u = _uniform(self.rng, samples)
        return pooling.pool_histogram(samples, u, bounds, pseudo_count_weight=self.pseudo_count_weight)


class Correlated(ExperimentAggregator):
    full_name, aliases, takes_classes = "Correlated folds", ["correlated", "cv", "nadeau_bengio"], True

    def __init__(self, rng: RNG, rho: float | None = None) -> None:
        super().__init__(rng=rng)
        self.rho = rho

    def aggregate(self, experiment_samples: Any, bounds: Bounds) -> Tensor:
        samples = _samples(experiment_samples)
        u = _uniform(self.rng, samples)
        return pooling.pool_correlated(samples, u, bounds, rho=self.rho)


def _samples(given: Any) -> Tensor:  # (S, M) or (S, M, classes)
    """A tensor of a tensor or an array."""
    samples = plain(given)
    _checks.floating("experiment_samples", samples)
    if samples.ndim not in (2, 3):
        raise ValueError(f"experiment_samples: got shape {tuple(samples.shape)}, wanted (S, M) or (S, M, classes)")
    return samples


def _uniform(rng: RNG, samples: Tensor) -> Tensor:
    # samples: (S, M)  ->  (S,); (S, M, classes)  ->  (S, classes), each class from a stream of its own
    S, _, *classes = samples.shape
    if not classes:
        return rng.random(S).to(samples.device)
    streams = [stream.random(S) for stream in rng.spawn(*classes)]
    return torch.stack(streams, -1).to(samples.device) if streams else samples.new_empty(S, 0, dtype=torch.float64)
