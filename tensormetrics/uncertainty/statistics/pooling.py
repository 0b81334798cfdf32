"""One distribution from the samples of several experiments.

samples (S, M, ...) of M experiments and uniform variates u (S', ...) -> variates (S', ...) of the pooled distribution,
float64, within `bounds` (low, high). Samples that are not finite are left out.
"""

import math

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.numbers.exact_sums import cumulative_mass
from .heterogeneity import heterogeneity_dl, heterogeneity_pm, weighted_squares
from .moments import deviations, finite_moments, logs_of_products_, sum_of
from .samples import finite_part, histogram_bins, searchable, sort_samples
from .truncated import beta_icdf, truncated_gamma_icdf, truncated_normal_icdf, truncated_t_icdf

Bounds = tuple[float, float]
EDGE = 1e-9  # smallest distance of a fitted sample from the bounds
ROUNDING = 1e-14  # of the geometric means of a million samples
MAX_BINS = 2**20
ADVICE = "use 'fe', 're' or 'hist'"


def pool_singleton(samples: Tensor) -> Tensor:  # (S, 1, ...) -> (S, ...)
    """Return the samples of the only experiment."""
    if samples.shape[1] != 1:
        raise ValueError(f"samples: got {samples.shape[1]} experiments, 'singleton' takes one; {ADVICE}")
    return samples[:, 0]


def pool_fixed_effects(samples: Tensor, u: Tensor, bounds: Bounds) -> Tensor:
    """Pool experiments that estimate one value and differ by chance alone. Weights are the inverse variances."""
    mean, variance = _inverse_variance(*finite_moments(samples))
    return truncated_normal_icdf(u, mean, variance.sqrt(), *bounds)


def pool_random_effects(
    samples: Tensor,
    u: Tensor,
    bounds: Bounds,
    *,
    paule_mandel_heterogeneity: bool = True,
    hksj_sampling_distribution: bool = False,
) -> Tensor:
    """Pool experiments whose true values differ with a variance tau^2, to estimate the mean of the true values.

    tau^2 is Paule and Mandel's estimate, otherwise DerSimonian and Laird's. The mean is normal, or, by Hartung, Knapp,
    Sidik and Jonkman, t with M - 1 degrees and never narrower. Reference: doi:10.1186/1471-2288-14-25.
    """
    means, variances = finite_moments(samples)
    estimate = heterogeneity_pm if paule_mandel_heterogeneity else heterogeneity_dl
    certain = (variances == 0).any(0)
    tau2 = torch.where(certain, 0, estimate(means, variances))
    mean, variance = _inverse_variance(means, variances + tau2)
    if not hksj_sampling_distribution:
        return truncated_normal_icdf(u, mean, variance.sqrt(), *bounds)
    degrees = _degrees(samples, "hksj_sampling_distribution=True")
    factor = hksj_factor(means, variances + tau2)
    return truncated_t_icdf(u, degrees, mean, variance.sqrt() * torch.where(certain, 1, factor), *bounds)


def pool_correlated(samples: Tensor, u: Tensor, bounds: Bounds, *, rho: float | None = None) -> Tensor:
    """Pool the folds of a cross-validation, which share training data: t with M - 1 degrees, corrected by `rho`.

    `rho` is the fraction of the data that a fold tests, None: 1 / M. Reference: Nadeau & Bengio 2003,
    doi:10.1023/A:1024068626366.
    """
    degrees = _degrees(samples, "'correlated'")
    means = finite_moments(samples)[0]
    scale2 = correlated_variance(means, rho)
    return truncated_t_icdf(u, degrees, means.mean(0), scale2.sqrt(), *bounds)


def correlated_variance(values: Tensor, rho: float | None = None) -> Tensor:  # (M, ...) -> (...)
    """Compute the squared standard error of the mean of M values from overlapping training sets."""
    M = len(values)
    rho = 1 / M if rho is None else rho
    checks.check_number("rho", rho, "None or a number in [0, 1)", lambda x: 0 <= x < 1)
    distance = values - values[0]  # exactly 0 for equal values
    return (1 / M + rho / (1 - rho)) * (distance - distance.mean(0)).square().sum(0) / (M - 1)


def pool_beta(samples: Tensor, u: Tensor, bounds: Bounds, *, estimation_method: str = "mle") -> Tensor:
    """Pool by the conflation (normalized product of the densities) of beta distributions on the bounds.

    Parameters by maximum likelihood (`estimation_method="mle"`) or by moments ("mm" or "mome"). A GPU sums the samples
    and computes the variates; Newton's method for the parameters runs on the host.
    """
    a, b = fit_beta(samples, bounds, estimation_method=estimation_method)
    M = len(a)
    a, b = a.sum(0) - (M - 1), b.sum(0) - (M - 1)
    if not ((a > 0) & (b > 0) & (a + b < torch.inf)).all():
        raise ValueError(f"samples: the product of their beta densities has no finite mass; {ADVICE}")
    low, high = bounds
    return low + (high - low) * beta_icdf(u, *_to(u, a, b))


def fit_beta(samples: Tensor, bounds: Bounds, *, estimation_method: str = "mle") -> tuple[Tensor, Tensor]:
    # samples: (S, ...)  ->  a and b: (...), on the host
    """Fit the parameters of beta distributions by maximum likelihood ("mle") or by moments ("mm" or "mome")."""
    checks.check_choice("estimation_method", estimation_method, ("mle", "mm", "mome"))
    low, high = bounds
    if not math.isfinite(high - low):
        raise ValueError(f"bounds: got {bounds}, 'beta' wants finite ones; {ADVICE}")

    if estimation_method != "mle":
        count, mean, squares = torch.stack(deviations(samples)).cpu()
        mean, variance = (mean - low) / (high - low), squares / count / (high - low) ** 2
        strength = mean * (1 - mean) / variance - 1
        return mean * strength, (1 - mean) * strength

    def logarithms(x: Tensor, spare: Tensor) -> tuple[Tensor, ...]:
        total = x.sum(-1, keepdim=True)  # not finite where a sample is not
        y = x.sub_(low).mul_(1 / (high - low)).clamp_(EDGE, 1 - EDGE)
        return total, logs_of_products_(torch.sub(1, y, out=spare)), logs_of_products_(y)

    count, _, *logs = torch.stack(sum_of(samples, logarithms)).cpu()
    log_1_y, log_y = (log / count for log in logs)
    gap = 1 - log_y.exp() - log_1_y.exp()
    gap = torch.where(gap > ROUNDING, gap, torch.nan)  # equal samples have no density
    a, b = 0.5 + log_y.exp() / (2 * gap), 0.5 + log_1_y.exp() / (2 * gap)  # as if digamma(x) were ln(x - 1/2)
    for _ in range(40):  # Newton's method on the concave log-likelihood; no step more than halves a parameter
        slope_a = (a + b).digamma() - a.digamma() + log_y
        slope_b = (a + b).digamma() - b.digamma() + log_1_y
        both = torch.polygamma(1, a + b)
        bend_a, bend_b = both - torch.polygamma(1, a), both - torch.polygamma(1, b)
        determinant = bend_a * bend_b - both * both
        step_a = (bend_b * slope_a - both * slope_b) / determinant
        step_b = (bend_a * slope_b - both * slope_a) / determinant
        a, b = torch.maximum(a - step_a, a / 2), torch.maximum(b - step_b, b / 2)
    return a, b


def pool_gamma(samples: Tensor, u: Tensor, bounds: Bounds, *, shifted: bool = False) -> Tensor:
    """Pool by the conflation of gamma distributions above the lower bound, or the smallest sample with `shifted`.

    A GPU sums the samples and computes the variates; Newton's method for the parameters runs on the host.
    """
    low, high = bounds
    if not shifted and low < 0:
        raise ValueError(f"bounds: got {bounds}, 'gamma' wants a lower one >= 0; write shifted=True, or {ADVICE}")
    if shifted and not len(samples):
        raise ValueError(f"samples: got none, shifted=True wants at least one to start at; {ADVICE}")
    loc = torch.where(samples.isfinite(), samples.detach(), torch.inf).amin((0, 1)).double() - EDGE if shifted else low
    shape, scale = fit_gamma(samples, loc)
    shape, scale = shape.sum(0) - (len(shape) - 1), 1 / (1 / scale).sum(0)
    if not (shape > 0).all():
        raise ValueError(f"samples: the product of their gamma densities has no finite mass; {ADVICE}")
    shape, scale = _to(u, shape, scale)
    return (loc + truncated_gamma_icdf(u, shape, scale, 0.0, high - loc)).clamp(*bounds)


def fit_gamma(samples: Tensor, loc: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
    # samples: (S, ...)  ->  shape and scale: (...), on the host
    """Fit the parameters of gamma distributions above `loc` by maximum likelihood.

    Reference: Minka 2002, "Estimating a Gamma distribution".
    """
    loc = loc[..., None] if isinstance(loc, Tensor) else loc

    def terms(x: Tensor, spare: Tensor) -> tuple[Tensor, ...]:
        check = x.sum(-1, keepdim=True)  # not finite where a sample is not
        y = x.sub_(loc).clamp_(min=EDGE)
        return check, y, logs_of_products_(spare.copy_(y))

    count, _, total, log_x = torch.stack(sum_of(samples, terms)).cpu()
    mean = total / count
    gap = mean.log() - log_x / count  # ln shape - digamma(shape)
    shape = (3 - gap + ((gap - 3).square() + 24 * gap).sqrt()) / (12 * gap)
    for _ in range(20):
        slope = shape.square() * (1 / shape - torch.polygamma(1, shape))
        shape = 1 / (1 / shape + (shape.log() - shape.digamma() - gap) / slope)
    return shape, mean / shape


def pool_histogram(samples: Tensor, u: Tensor, bounds: Bounds, *, pseudo_count_weight: float = 0.1) -> Tensor:
    """Pool by the normalized product of the experiments' histograms, each smoothed by pseudo-counts over all bins.

    The pseudo-counts of an experiment add up to `pseudo_count_weight` times its number of samples.
    """
    checks.check_number("pseudo_count_weight", pseudo_count_weight, "a finite number > 0", lambda x: 0 < x < math.inf)
    x, n = sort_samples(samples, 0)  # (M, ..., S)
    finite = finite_part(x, n)
    minimum, maximum = finite.minimum, finite.maximum
    width = (maximum - minimum) / histogram_bins(x, finite)
    width = torch.where(maximum > minimum, width, torch.inf).amin(0)  # (..., 1)
    minimum, maximum = minimum.amin(0), maximum.amax(0)
    width = torch.where(width.isinf(), maximum - minimum, width)
    start, stop = (minimum - width).clamp(min=bounds[0]), (maximum + 2 * width).clamp(max=bounds[1])
    bins = ((stop - start) / width).ceil().nan_to_num(1).clamp(1, MAX_BINS)
    width = (stop - start) / bins

    bin = torch.arange(int(bins.max()) if bins.numel() else 1, device=u.device)
    edges = (start + bin * width).expand(*x.shape[:-1], -1).contiguous()
    before = torch.searchsorted(searchable(x, n), edges)
    before = torch.nn.functional.pad(torch.where(bin < bins, before, x.shape[-1]), (0, 1), value=x.shape[-1])
    counts = before.clamp(finite.first, finite.first + finite.num_finite).diff(dim=-1)  # (M, ..., K)
    pseudo = pseudo_count_weight * finite.num_finite / bins
    log_proportions = ((counts + pseudo) / ((1 + pseudo_count_weight) * finite.num_finite)).log().sum(0)
    proportions = torch.where(bin < bins, log_proportions, -torch.inf).softmax(-1)  # (..., K)
    below = torch.nn.functional.pad(cumulative_mass(proportions), (1, 0))
    target = u.movedim(0, -1).contiguous()
    index = torch.minimum(torch.searchsorted(below[..., 1:].contiguous(), target, right=True), bins.long() - 1)
    part = ((target - below.gather(-1, index)) / proportions.gather(-1, index)).clamp(0, 1)
    quantiles = torch.where(target.isfinite(), start + width * (index + part), torch.nan)
    return quantiles.movedim(-1, 0).clamp(*bounds)


def _to(like: Tensor, *parameters: Tensor) -> list[Tensor]:
    return [parameter.to(like.device, non_blocking=True) for parameter in parameters]


def hksj_factor(means: Tensor, variances: Tensor) -> Tensor:  # (M, ...) -> (...)
    """Return the factor, at least 1, by which the standard error of the mean grows; `variances` include tau^2."""
    return (weighted_squares(means, 1 / variances) / (len(means) - 1)).sqrt().clamp(min=1)


def _inverse_variance(means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:  # (M, ...) -> (...), (...)
    """Return the weighted mean and its variance. Experiments of variance 0 outweigh the others, and must agree."""
    certain = variances == 0
    minimum = torch.where(certain, means, torch.inf).amin(0)
    conflict = certain & (means > minimum)
    if conflict.any():
        e = int(conflict.nonzero()[0, 0])
        raise ValueError(
            f"samples: experiment {e} has variance 0, and so has another one of a different mean; "
            "give their matrices a positive prior"
        )
    w = 1 / variances
    mean, variance = (w * means).sum(0) / w.sum(0), 1 / w.sum(0)
    return torch.where(certain.any(0), minimum, mean), variance


def _degrees(samples: Tensor, who: str) -> float:
    M = samples.shape[1]
    if M < 2:
        raise ValueError(f"samples: got 1 experiment, {who} wants at least 2; use 'singleton'")
    return float(M - 1)
