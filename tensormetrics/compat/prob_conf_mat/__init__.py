"""Names and arguments of prob_conf_mat 0.4.0, in one flat module; programs change their import lines only.

Metrics, averagings and aggregators that are written for that package derive from the classes here. Samples are tensors,
which NumPy's functions accept.
"""

import secrets
from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import posterior
from ...core.arguments import checks
from ...posterior import functional
from ...posterior.metrics import parse, registry
from ...posterior.metrics.quantity import Quantity as MetricLike
from ...posterior.metrics.quantity import compute_order
from ...posterior.sampling import rng as streams
from ...uncertainty.statistics.density import kde
from ...uncertainty.statistics.heterogeneity import HeterogeneityResult
from ...uncertainty.statistics.heterogeneity import heterogeneity_dl as heterogeneity_dl
from ...uncertainty.statistics.heterogeneity import heterogeneity_pm as heterogeneity_pm
from ...uncertainty.statistics.samples import hdi
from .plot_options import pairs
from .results import *  # noqa: F403
from .results import ListwiseComparisonResult, PairwiseComparisonResult, PosteriorSummary
from .study import *  # noqa: F403

Metric, summarize_posterior = registry.ConfusionMetric, PosteriorSummary
pairwise_compare, listwise_compare = PairwiseComparisonResult, ListwiseComparisonResult
OTHER_NAMES = pairs(  # of classes, by aliases that both have
    "DiagMass diag_mass Prevalence prevalence ModelBias model_bias F1 f1 FBeta fbeta P4 p4 FBetaGain fbeta_gain "
    "MacroAverage macro WeightedAverage weighted SelectPositiveClass binary HarmonicMean harmonic "
    "GeometricMean geometric Minimum min Maximum max SingletonAggregator singleton BetaAggregator beta "
    "GammaAggregator gamma FEGaussianAggregator fe REGaussianAggregator re HistogramAggregator hist"
)
REGISTRIES = registry.METRIC_REGISTRY, registry.AVERAGING_REGISTRY, registry.AGGREGATION_REGISTRY
NAMES = {alias: cls for registry in reversed(REGISTRIES) for alias, cls in registry.items()}
NAMES = {cls.__name__: cls for cls in NAMES.values()} | {name: NAMES[alias] for name, alias in OTHER_NAMES.items()}
PLACES = posterior, functional, posterior.extend
NAMES |= {name: getattr(place, name) for place in PLACES for name in place.__all__}


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return NAMES[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})


class SamplingMethod(str, Enum):
    """Names of sampling methods."""

    POSTERIOR = "posterior"
    PRIOR = "prior"
    RANDOM = "random"
    INPUT = "input"

    __str__ = str.__str__  # also in f-strings, which name the random streams


class RNG(streams.RNG):
    """A stream of random numbers that `seed` and `position` determine, with the methods of NumPy's generators."""

    def __init__(self, seed: int | None, position: tuple[int, ...] = (), **options: Any) -> None:
        seed = secrets.randbits(63) if seed is None else seed
        super().__init__(seed, **{"name": "/".join(map(str, position)), **options})
        self.spawned = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while a copy is being made
            raise AttributeError(name)
        return getattr(self.numpy(), name)

    def choice(self, *args: Any, **options: Any) -> Any:
        return self.numpy().choice(*args, **options)

    def spawn(self, n_children: int) -> list[streams.RNG]:
        """Return streams that differ from each other and from those of earlier calls."""
        numbers = range(self.spawned, self.spawned + n_children)
        self.spawned = numbers.stop
        return [RNG(self.seed, name=f"{self.name}/{i}", device=self.device) for i in numbers]


class ExperimentAggregator(registry.ExperimentAggregator):
    """Base of methods that pool experiments, `posterior.extend.ExperimentAggregator`; its `rng` is an `RNG` of here."""

    def __setattr__(self, name: str, value: Any) -> None:
        is_other = name == "rng" and not isinstance(value, RNG)
        own: Any = RNG(value.seed, name=value.name, device=value.device) if is_other else value
        super().__setattr__(name, own)


class MetricCollection(parse.ConfusionMetricCollection):
    """Metrics in the order of insertion; see `ConfusionMetricCollection`."""

    def __init__(self, metrics: str | MetricLike | Iterable | None = ()) -> None:
        super().__init__(() if metrics is None else metrics)

    def add(self, metric: str | MetricLike | Iterable) -> None:  # type: ignore[override]
        super().add(metric)

    def get_insert_order(self) -> tuple[MetricLike, ...]:
        return tuple(self)

    def get_compute_order(self) -> "MetricCollection":
        return MetricCollection(compute_order(self))


def hdi_estimator(samples: Any, prob: float) -> tuple[Tensor, Tensor]:
    """Compute the highest density interval of samples (S,); see `uncertainty.functional.hdi`."""
    return hdi(samples, prob)


def histogram_mode_estimator(samples: Any) -> Tensor:
    """Compute the mode of samples (S,); see `summarize_posterior`."""
    return summarize_posterior(samples, 1).mode


class KDEResult(NamedTuple):
    """Density on a grid."""

    x_vals: Tensor  # (G,)
    y_vals: Tensor  # (G,)
    bounds: tuple[float, float]


def compute_kde(
    samples: Any,
    *,
    bw_adjust: float = 1.0,
    cut: float = 3.0,
    clip: tuple[float, float] | None = None,
    grid_samples: int = 200,
) -> KDEResult:
    """Compute the density of samples (S,)."""
    x, y, _ = kde(samples, bw_adjust=bw_adjust, cut=cut, clip=clip, grid_samples=grid_samples)
    return KDEResult(x, y, (float(x[0]), float(x[-1])))


def dirichlet_sample(rng: streams.RNG, alphas: Any, num_samples: int) -> Tensor:
    """Draw Dirichlet(alphas) vectors; see `posterior.functional.sample_dirichlet`."""
    return functional.sample_dirichlet(alphas, num_samples, dtype=torch.float64, seed=rng.torch().initial_seed())


def estimate_i2(individual_samples: Any) -> HeterogeneityResult:
    """Estimate I2 of samples (S, M); see `posterior.functional.estimate_i2`."""
    return functional.estimate_i2(individual_samples)


def interpret_i2(i2_score: float) -> str:
    """Return the interpretation of I2 as a text; see `posterior.functional.interpret_i2`."""
    return functional.interpret_i2(i2_score)


def pred_cond_to_confusion_matrix(pred_cond: Any, *, pred_first: bool = True, num_classes: int | None = None) -> Tensor:
    """Invert `confusion_matrix_to_pred_cond`; C is the largest label + 1, at least 2, if `num_classes` is not given.

    Shapes: pred_cond: (N, 2) -> (C, C) int64.

    >>> pred_cond_to_confusion_matrix([[0, 0], [1, 0], [1, 1]])
    tensor([[1, 1],
            [0, 1]])
    """
    pairs = checks.as_tensor(pred_cond)
    checks.shape("pred_cond", pairs, "N", 2)
    checks.integral("pred_cond", pairs)
    C = max(2, int(pairs.max()) + 1) if len(pairs) else 2
    pred, true = pairs.cpu().unbind(-1)[:: 1 if pred_first else -1]
    return functional.compute_confusion_matrix(true, pred, num_classes=C if num_classes is None else num_classes)


def confusion_matrix_to_pred_cond(confusion_matrix: Any, *, pred_first: bool = True) -> Tensor:
    """Return a pair (prediction, condition) for each count, or (condition, prediction) with `pred_first=False`.

    Shapes: confusion_matrix: (C, C) -> (N, 2).

    >>> confusion_matrix_to_pred_cond([[2, 1], [0, 1]])
    tensor([[0, 0],
            [0, 0],
            [1, 0],
            [1, 1]])
    """
    matrix = functional.validate_confusion_matrix(confusion_matrix, allow_empty_rows=True)
    counts = matrix.long()
    if (counts != matrix).any():
        raise ValueError("confusion_matrix: got fractional counts, which are no pairs; round them first")
    C = len(counts)
    cell = torch.repeat_interleave(torch.arange(C * C, device=counts.device), counts.flatten())
    pairs = torch.stack([cell // C, cell % C], -1)
    return pairs.flip(-1) if pred_first else pairs
