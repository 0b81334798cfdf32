"""Summaries of posterior samples: location, scale, shape and intervals."""

from typing import NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.numbers.quantiles import sorted_quantiles
from ...uncertainty.statistics.moments import sum_of
from ...uncertainty.statistics.samples import (
    check_probability,
    finite_part,
    histogram_mode,
    narrowest_interval,
    quantile_errors,
    sort_samples,
    sorted_median,
)


class PosteriorSummary(NamedTuple):
    """Summary of samples; see `summarize`. MCSE are Monte Carlo standard errors."""

    median: Tensor
    mean: Tensor
    sd: Tensor
    mode: Tensor
    hdi: tuple[Tensor, Tensor]  # highest density interval
    eti: tuple[Tensor, Tensor]  # equal-tailed interval
    metric_uncertainty: Tensor  # width of the highest density interval
    skew: Tensor
    kurtosis: Tensor
    mcse_mean: Tensor
    mcse_median: Tensor
    mcse_eti: tuple[Tensor, Tensor]
    nan_fraction: Tensor
    confidence: float

    @property
    def headers(self) -> list[str]:
        return list(self.as_dict())

    def as_dict(self) -> dict[str, Tensor | tuple[Tensor, Tensor]]:
        """Return the columns that tables show by default; "NaN", undefined samples, only where there are some."""
        columns: dict[str, Tensor | tuple[Tensor, Tensor]] = {
            "Median": self.median,
            "Mode": self.mode,
            f"{self.confidence:.1%} HDI": self.hdi,
            "MU": self.metric_uncertainty,
            "Skew": self.skew,
            "Kurt": self.kurtosis,
        }
        return columns | ({"NaN": self.nan_fraction} if (self.nan_fraction != 0).any() else {})


@checks.names_arguments
@takes_arrays
def summarize(samples: Tensor, confidence: float = 0.95, dim: int = 0) -> PosteriorSummary:
    """Summarize samples in float64, from one sort.

    Shapes: samples: (..., S, ...) -> each (..., ...), without axis `dim`.

    nan samples are left out of everything; mean, sd (ddof 1), mode, skew and kurtosis (of the population, kurtosis in
    excess of the normal's 3) use the finite samples. `hdi` as in `hdi`; `eti` runs between the quantiles (1 -+ p) / 2,
    interpolated linearly. The mode is the center of the fullest of equally wide bins, or an infinity that more than
    half of the samples equal. Without samples every field is nan. ValueError: confidence not in (0, 1].

    >>> summary = summarize(torch.linspace(0, 1, 101), 0.9)
    >>> summary.median, summary.hdi[0]
    (tensor(0.5000, dtype=torch.float64), tensor(0., dtype=torch.float64))
    """
    check_probability("confidence", confidence)
    x, n = sort_samples(samples, dim)
    low, high = narrowest_interval(x, n, confidence)
    quantiles = x.new_tensor([0.5, (1 - confidence) / 2, (1 + confidence) / 2])
    errors = quantile_errors(x, n, quantiles)

    finite = finite_part(x, n)
    num_finite = finite.num_finite[..., 0].double()
    by_sample = x.movedim(-1, 0)
    mean = sum_of(by_sample, lambda part, _: (part,))[1] / num_finite
    is_constant = finite.minimum == finite.maximum
    mean = torch.where(is_constant, finite.minimum, mean[..., None])[..., 0]  # exact where all are equal

    def powers(part: Tensor, spare: Tensor) -> tuple[Tensor, ...]:
        deviation = part.sub_(mean[..., None])
        square = torch.square(deviation, out=spare)
        return square, square * deviation, square.square()

    eti_low, eti_high = sorted_quantiles(x, torch.zeros_like(n), n, quantiles[1:]).unbind(-1)
    _, squares, cubes, fourths = sum_of(by_sample, powers)
    m2, m3, m4 = squares / num_finite, cubes / num_finite, fourths / num_finite
    sd = (squares / (num_finite - 1).clamp(min=0)).sqrt()
    return PosteriorSummary(
        median=sorted_median(x, n),
        mean=mean,
        sd=sd,
        mode=histogram_mode(x, n, finite),
        hdi=(low, high),
        eti=(eti_low, eti_high),
        metric_uncertainty=torch.where(low == high, 0, high - low),
        skew=m3 / m2**1.5,
        kurtosis=m4 / m2**2 - 3,
        mcse_mean=sd / num_finite.sqrt(),
        mcse_median=errors[..., 0],
        mcse_eti=(errors[..., 1], errors[..., 2]),
        nan_fraction=1 - n[..., 0].double() / samples.shape[dim]
        if samples.shape[dim]
        else x.new_full(x.shape[:-1], torch.nan),
        confidence=confidence,
    )
