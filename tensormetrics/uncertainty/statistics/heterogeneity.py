"""How much experiments differ beyond what their own uncertainty explains.

Experiments lie on the first axis: means, variances (M, ...) -> (...). Means and variances that are not finite give nan.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from .moments import finite_moments

INTERPRETATIONS = (  # upper limit of I2, degree of heterogeneity
    (0.3, "insignificant"),
    (0.4, "borderline moderate"),
    (0.5, "moderate"),
    (0.6, "borderline substantial"),
    (0.75, "borderline considerable"),
    (torch.inf, "considerable"),
)


class HeterogeneityResult(NamedTuple):
    """I2 = between / (between + within); nan for one experiment, or where both variances are 0."""

    i2: Tensor  # (...)
    within_experiment_variance: Tensor
    between_experiment_variance: Tensor
    i2_interpretation: str | list[str]  # a list for one value per class

    def template_sentence(self, precision: int = 4) -> str:
        """Return a sentence with the four numbers, for a single metric value."""
        return (
            f"Between the experiments the variance is {self.between_experiment_variance:.{precision}f}, within them "
            f"it is {self.within_experiment_variance:.{precision}f}, so I2 = {self.i2:.{precision}f}: "
            f"{self.i2_interpretation}."
        )


@takes_arrays
def heterogeneity_dl(means: Tensor, variances: Tensor) -> Tensor:
    """Estimate the variance between experiments, tau^2 >= 0, by the method of moments; 0 for one experiment.

    Shapes: means, variances: (M, ...) -> (...).

    Among several experiments a variance of 0, which has no finite weight, gives nan.
    Reference: DerSimonian & Laird 1986, doi:10.1016/0197-2456(86)90046-2.
    """
    _check(means, variances)
    w = 1 / variances
    scale = w.sum(0) - w.square().sum(0) / w.sum(0)
    excess = weighted_squares(means, w) - (len(means) - 1)
    tau2 = torch.where(scale > 0, (excess / scale).clamp(min=0), 0)
    if len(means) > 1:
        tau2 = tau2.masked_fill(scale.isnan(), torch.nan)
    return _where_finite(means, variances, tau2)


@takes_arrays
def heterogeneity_pm(means: Tensor, variances: Tensor, *, use_viechtbauer_correction: bool = False) -> Tensor:
    """Find the variance between experiments, tau^2 >= 0, for which the weighted squares have their expected value.

    Shapes: means, variances: (M, ...) -> (...).

    The expected value is M - 1, the mean of their chi-square distribution, or its median with Viechtbauer's correction;
    tau^2 is 0 where the squares are smaller without it. The bisection runs on the host, to which a GPU sends the
    estimates. References: Paule & Mandel 1982, doi:10.6028/jres.087.022; Viechtbauer 2021.
    """
    _check(means, variances)
    device = means.device
    if device.type != "cpu":  # each of many small steps would be a kernel launch
        means, variances = torch.stack([means, variances]).cpu()
    degrees = len(means) - 1
    target = _chi_square_median(means, degrees) if use_viechtbauer_correction and degrees else degrees
    low = torch.zeros_like(means.mean(0))
    high = (means - means.mean(0)).square().sum(0) / (0.45 * max(degrees, 1))  # no weight exceeds 1 / tau^2
    positive = weighted_squares(means, 1 / variances) > target
    zero_variance = (variances == 0).any(0) & (high > 0)
    for _ in range(100):
        center = (low + high) / 2
        above = weighted_squares(means, 1 / (variances + center)) > target
        low, high = torch.where(above, center, low), torch.where(above, high, center)
    tau2 = _where_finite(means, variances, torch.where(positive | zero_variance, high, 0))
    return tau2.to(device, non_blocking=True)


@takes_arrays
def estimate_i2(samples: Tensor) -> HeterogeneityResult:
    """Estimate I2, the fraction of the variance between experiments in the total, by Paule and Mandel's method.

    Shapes: samples: (S, M, ...) -> fields (...).

    Samples that are not finite are left out. A GPU computes the moments of the samples; `heterogeneity_pm` runs on the
    host.

    >>> generator = torch.Generator().manual_seed(0)
    >>> samples = torch.tensor([0.80, 0.84, 0.90]) + 0.02 * torch.randn(2000, 3, generator=generator)
    >>> round(float(estimate_i2(samples).i2), 2)
    0.84
    """
    checks.floating("samples", samples)
    if samples.ndim < 2:
        raise ValueError(f"samples: got shape {tuple(samples.shape)}, wanted (S, M, ...) of M experiments")
    means, variances = finite_moments(samples)
    within = variances.mean(0)
    single = len(means) == 1
    between = torch.full_like(within, torch.nan) if single else heterogeneity_pm(means, variances)
    i2 = between / (between + within)
    undefined = "not applicable" if single else "unknown"
    texts = [undefined if value != value else interpret_i2(value) for value in i2.flatten().tolist()]
    return HeterogeneityResult(i2, within, between, texts if i2.ndim else texts[0])


def interpret_i2(i2: float) -> str:
    """Return the interpretation of I2 as a text. ValueError outside [0, 1].

    >>> interpret_i2(0.8)
    'considerable heterogeneity'
    """
    checks.check_number("i2", i2, "a number in [0, 1]", lambda x: 0 <= x <= 1)
    return next(text for limit, text in INTERPRETATIONS if i2 < limit) + " heterogeneity"


def _check(means: Tensor, variances: Tensor) -> None:  # (M, ...), (M, ...)
    for name, values in (("means", means), ("variances", variances)):
        checks.floating(name, values)
        if values.ndim == 0:
            raise ValueError(f"{name}: got shape (), wanted (M, ...) of M experiments")
    checks.check_consistent_length(means=means, variances=variances)


def weighted_squares(means: Tensor, w: Tensor) -> Tensor:  # (M, ...) -> (...)
    """Compute the weighted sum of squared distances from the weighted mean."""
    return (w * (means - (w * means).sum(0) / w.sum(0)).square()).sum(0)


def _where_finite(means: Tensor, variances: Tensor, estimate: Tensor) -> Tensor:  # (M, ...), (M, ...), (...) -> (...)
    return torch.where((means.isfinite() & variances.isfinite()).all(0), estimate, torch.nan)


def _chi_square_median(like: Tensor, degrees: int) -> Tensor:  # ()
    shape = like.new_tensor(degrees / 2)
    low, high = torch.zeros_like(shape), shape
    for _ in range(60):
        center = (low + high) / 2
        below = torch.special.gammainc(shape, center) < 0.5
        low, high = torch.where(below, center, low), torch.where(below, high, center)
    return 2 * high
