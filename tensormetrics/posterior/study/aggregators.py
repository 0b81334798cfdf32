"""The methods that pool the experiments of a group, by name; see `pool` for what they compute."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.arguments import checks
from ...uncertainty.statistics import pooling
from ..metrics.registry import ExperimentAggregator
from ..sampling.arrays import without_subclass
from ..sampling.rng import RNG


class _Pooled:
    """An aggregator that calls `function`, whose options are attributes."""

    takes_classes = True
    function: Callable[..., Tensor]  # of samples, and where it draws of u and bounds
    defaults: Mapping[str, Any]
    rng: RNG

    def __init__(self, rng: RNG, **options: Any) -> None:
        if unknown := options.keys() - self.defaults.keys():
            valid = ", ".join(self.defaults) or "none"
            raise TypeError(f"{type(self).__name__} has no option {min(unknown)!r}; it has {valid}")
        super().__init__(rng=rng)  # type: ignore[call-arg]  # of ExperimentAggregator, which is the next base
        vars(self).update({**self.defaults, **options})

    @property
    def options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.defaults}

    @classmethod
    def option_names(cls) -> list[str]:
        return [*cls.defaults]

    def aggregate(self, experiment_samples: Any, bounds: tuple[float, float]) -> Tensor:
        samples = without_subclass(experiment_samples)
        checks.floating("experiment_samples", samples)
        if samples.ndim not in (2, 3):
            raise ValueError(f"experiment_samples: got shape {tuple(samples.shape)}, wanted (S, M) or (S, M, classes)")
        draws = () if self.function is pooling.pool_singleton else (_uniform(self.rng, samples), bounds)
        return self.function(samples, *draws, **self.options)


def _aggregator(name: str, full_name: str, function: Callable[..., Tensor], *aliases: str) -> type:
    """Return the aggregator that pools by `function`; defining it registers it under its aliases."""
    parameters = inspect.signature(function).parameters.values()
    row = {
        "full_name": full_name,
        "aliases": [*aliases],
        "function": staticmethod(function),
        "defaults": {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY},
    }
    return type(name, (_Pooled, ExperimentAggregator), row)


Singleton = _aggregator("Singleton", "Singleton", pooling.pool_singleton, "singleton", "identity")
FixedEffects = _aggregator(
    "FixedEffects",
    "Fixed-effects Gaussian conflation",
    pooling.pool_fixed_effects,
    "fe",
    "fixed_effect",
    "fe_gaussian",
    "gaussian",
    "normal",
    "fe_normal",
)
RandomEffects = _aggregator(
    "RandomEffects",
    "Random-effects model",
    pooling.pool_random_effects,
    "re",
    "random_effect",
    "re_gaussian",
    "re_normal",
)
BetaConflation = _aggregator("BetaConflation", "Beta conflation", pooling.pool_beta, "beta", "beta_conflation")
GammaConflation = _aggregator("GammaConflation", "Gamma conflation", pooling.pool_gamma, "gamma", "gamma_conflation")
HistogramConflation = _aggregator(
    "HistogramConflation", "Histogram conflation", pooling.pool_histogram, "hist", "histogram"
)
Correlated = _aggregator("Correlated", "Correlated folds", pooling.pool_correlated, "correlated", "cv", "nadeau_bengio")


def pool(
    samples: Sequence[Tensor],  # (S, C) or (S, 1) of each experiment
    aggregator: ExperimentAggregator,
    bounds: tuple[float, float],
    seed: int,
    name: str,
) -> Tensor:
    """Pool the samples of the experiments of a group; draws are addressed by seed, name and class."""
    together = torch.stack([values.mT for values in samples]).movedim(-1, 0)  # as they lie in memory
    root = RNG(seed, name, device=together.device)
    if aggregator.takes_classes:
        aggregator.rng = root
        return aggregator(together, bounds)
    columns = []
    for c, rng in enumerate(root.spawn(together.shape[-1])):
        aggregator.rng = rng
        columns.append(aggregator(together[..., c], bounds))
    return torch.stack(columns, -1)


def _uniform(rng: RNG, samples: Tensor) -> Tensor:
    # samples: (S, M)  ->  (S,); (S, M, classes)  ->  (S, classes), each class from a separate stream
    S, _, *classes = samples.shape
    if not classes:
        return rng.random(S).to(samples.device)
    streams = [stream.random(S) for stream in rng.spawn(*classes)]
    return torch.stack(streams, -1).to(samples.device) if streams else samples.new_empty(S, 0, dtype=torch.float64)
