"""Two models compared over the folds of a cross-validation, which share training data."""

from typing import NamedTuple

import torch
from torch import Tensor

from ... import _checks
from .log_concave import quantile, tabulate
from .pooling import correlated_variance
from .samples import check_probability
from .student import t_cdf
from .truncated import log_t_density


class FoldComparison(NamedTuple):
    """Two models over the same folds: the posterior of their mean difference, and the corrected resampled t test."""

    mean_difference: Tensor
    sd: Tensor
    df: int
    rho: float
    scale: Tensor
    t_statistic: Tensor
    p_value: Tensor  # two-sided
    p_left: Tensor  # the difference is below -min_sig_diff
    p_rope: Tensor
    p_right: Tensor
    interval: tuple[Tensor, Tensor]  # equal-tailed


def compare_folds(
    a: Tensor,
    b: Tensor,
    rho: float | None = None,
    min_sig_diff: float = 0.0,
    ci_probability: float = 0.95,
) -> FoldComparison:
    """The posterior of the mean difference a - b, and the corrected resampled t test.

    Shapes: a: (n, ...); b: (n, ...) -> (...).

    `rho` = test / (training + test) items of a fold, None: 1 / n. Without any spread the statistic is infinite, or nan
    for equal values. ValueError: n < 2. References: Benavoli et al. 2017, jmlr.org/papers/v18/16-305.html; Nadeau &
    Bengio 2003, doi:10.1023/A:1024068626366.

    >>> a, b = torch.tensor([0.90, 0.92, 0.91, 0.93]), torch.tensor([0.88, 0.91, 0.90, 0.90])  # by fold
    >>> found = compare_folds(a, b, min_sig_diff=0.01)
    >>> print(f"{found.mean_difference:.4f}, p = {found.p_value:.3f}, P(equivalent) = {found.p_rope:.2f}")
    0.0175, p = 0.096, P(equivalent) = 0.17
    """
    check_probability("ci_probability", ci_probability)
    _checks.tensor("a", a)
    _checks.tensor("b", b)
    _checks.same_device(a=a, b=b)
    if a.shape != b.shape or a.ndim == 0 or len(a) < 2:
        raise ValueError(f"a, b: got shapes {tuple(a.shape)} and {tuple(b.shape)}, wanted equal ones of n >= 2 folds")
    _checks.number("min_sig_diff", min_sig_diff, "a number >= 0", lambda x: x >= 0)
    d = a.double() - b.double()
    n = len(d)
    mean, scale = d.mean(0), correlated_variance(d, rho).sqrt()
    rho = 1 / n if rho is None else rho
    statistic = mean / scale
    left, right = ((-min_sig_diff - mean) / scale), ((min_sig_diff - mean) / scale)
    certain = scale == 0
    p_left = torch.where(certain, (mean < -min_sig_diff).double(), t_tail(-left, n - 1))
    p_right = torch.where(certain, (mean > min_sig_diff).double(), t_tail(right, n - 1))
    reach = scale * t_quantile((1 + ci_probability) / 2, n - 1)
    return FoldComparison(
        mean_difference=mean,
        sd=scale / (1 / n + rho / (1 - rho)) ** 0.5,
        df=n - 1,
        rho=rho,
        scale=scale,
        t_statistic=statistic,
        p_value=2 * t_tail(statistic.abs(), n - 1),
        p_left=p_left,
        p_rope=(1 - p_left - p_right).clamp(min=0),
        p_right=p_right,
        interval=(mean - reach, mean + reach),
    )


def t_tail(t: Tensor, df: float) -> Tensor:  # (...) -> (...)
    """P(T > t) of Student's distribution."""
    y = (t.double() / df**0.5).asinh()
    wide = torch.full_like(y, torch.inf)
    log_density = log_t_density(df)
    mass = [tabulate(log_density, torch.zeros_like(y), low, wide) for low in (y.nan_to_num(0), -wide)]
    part, whole = (table.mass[..., -1] for table in mass)
    peak = torch.where(y > 0, log_density(y[..., None])[..., 0], 0)  # the table of the tail is relative to its peak
    return torch.where(y.isnan(), torch.nan, torch.where(y == torch.inf, 0, part * peak.exp() / whole))


def t_quantile(q: float, df: float) -> Tensor:  # ()
    """The value that Student's T exceeds with probability 1 - q."""
    zero = torch.zeros((), dtype=torch.float64, device="cpu")
    table = tabulate(log_t_density(df), zero, zero - torch.inf, zero + torch.inf)
    return df**0.5 * quantile(table, torch.full((1,), q, dtype=torch.float64, device="cpu"))[0].sinh()


def five_by_two_p_value(differences: Tensor) -> Tensor:
    """The two-sided 5x2cv paired t test: five times, the items are split in halves that train and test in turn.

    Shapes: differences: (..., 5, 2) -> (...) float64.

    `differences` are score of a minus score of b on both halves of each split. t is the first of them, over the root of
    the mean variance within the splits, with 5 degrees of freedom. 0 where the halves of every split agree, but NaN if
    the first difference is 0 too or one is not finite. ValueError for other shapes and dtypes. Dietterich 1998,
    doi:10.1162/089976698300017197.

    >>> differences = torch.tensor([[0.02, 0.03], [0.01, 0.03], [0.03, 0.02], [0.02, 0.02], [0.04, 0.03]])
    >>> round(float(five_by_two_p_value(differences)), 3)
    0.062
    """
    _checks.floating("differences", differences)
    _checks.shape("differences", differences, "...", 5, 2)
    values = differences.double()
    apart = values - values.mean(-1, keepdim=True)  # NaN where a difference is infinite
    t = values[..., 0, 0] / (2 * apart.square().mean((-2, -1))).sqrt()
    return 2 * t_cdf(-t.abs(), 5).clamp(min=0)
