"""Two models compared over the folds of a cross-validation, which share training data."""

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.numbers.student import t_cdf, t_quantile
from ...core.results.estimates import Comparison, check_rope
from .log_concave import tabulate
from .pooling import correlated_variance
from .samples import check_probability
from .truncated import log_t_density


@takes_arrays
def compare_folds(
    a: Tensor,
    b: Tensor,
    rho: float | None = None,
    *,
    rope: float | None = None,
    confidence: float = 0.95,
    higher_is_better: bool = True,
) -> Comparison:
    """Compare two models over the folds of a cross-validation.

    The difference has the posterior of Benavoli et al., a t distribution around the mean difference; its p-value is
    that of the corrected resampled t test. If the variance is 0, t is infinite, or NaN for equal values.

    Args:
        a: Scores of a model, one for each fold.
        b: Scores of another one on the same folds.
        rho: Correlation of folds, in [0, 1): test / (training + test) items of a fold. None: 1 / n.
        rope: Differences up to it do not matter in practice, in units of the scores; None: no such region.
        confidence: Mass of the interval, in (0, 1].
        higher_is_better: Whether `p_better` means higher scores.

    Shape:
        - a, b: ``(n, ...)``
        - Output: ``(...)``, float64

    Returns:
        The mean difference a - b; `details` has "df", "rho", "sd" and "se" of the difference, and "t".

    Raises:
        ValueError: If shapes differ, there are fewer than 2 folds, or an option is out of range.

    Example:
        >>> a, b = torch.tensor([0.90, 0.92, 0.91, 0.93]), torch.tensor([0.88, 0.91, 0.90, 0.90])  # by fold
        >>> result = compare_folds(a, b, rope=0.01)
        >>> print(f"{result:.4f}, P(equivalent) = {result.p_rope:.2f}")
        +0.0175 [-0.0058, +0.0408], p = 0.096, P(equivalent) = 0.17

    References:
        Benavoli et al. 2017, jmlr.org/papers/v18/16-305.html
        Nadeau & Bengio 2003, doi:10.1023/A:1024068626366
    """
    check_probability("confidence", confidence)
    checks.tensor("a", a)
    checks.tensor("b", b)
    checks.same_device(a=a, b=b)
    if a.shape != b.shape or a.ndim == 0 or len(a) < 2:
        raise ValueError(f"a, b: got shapes {tuple(a.shape)} and {tuple(b.shape)}, wanted equal ones of n >= 2 folds")
    check_rope(rope)
    differences = a.double() - b.double()
    n = len(differences)
    mean, se = differences.mean(0), correlated_variance(differences, rho).sqrt()
    rho = 1 / n if rho is None else rho
    t = mean / se

    better = mean if higher_is_better else -mean
    is_certain = se == 0
    certainly_better = (better > 0).double() + (better == 0).double() / 2
    ends = [] if rope is None else [(rope - x) / se for x in (-mean, mean)]
    tail, *tails = t_tail(torch.stack([t.abs(), *ends]), n - 1).unbind()  # of one table
    p_rope = torch.full_like(mean, torch.nan)
    if rope is not None:
        below, above = (
            torch.where(is_certain, (x > rope).double(), end) for x, end in zip((-mean, mean), tails, strict=True)
        )
        p_rope = (1 - below - above).clamp(min=0)
    half_width = se * t_quantile((1 + confidence) / 2, n - 1)
    return Comparison(
        difference=mean,
        low=mean - half_width,
        high=mean + half_width,
        p_value=2 * tail,
        p_better=torch.where(is_certain, certainly_better, torch.where(better > 0, 1 - tail, tail)),
        p_rope=p_rope,
        confidence=confidence,
        rope=rope,
        test="corrected t",
        higher_is_better=higher_is_better,
        details={"df": n - 1, "rho": rho, "sd": se / (1 / n + rho / (1 - rho)) ** 0.5, "se": se, "t": t},
    )


def t_tail(t: Tensor, df: float) -> Tensor:  # (...) -> (...)
    """Compute P(T > t) of Student's distribution."""
    y = (t.double() / df**0.5).asinh()
    log_density = log_t_density(df)
    low = torch.nn.functional.pad(y.nan_to_num(0).flatten(), (0, 1), value=-torch.inf)  # the total comes last
    mass = tabulate(log_density, torch.zeros_like(low), low, torch.full_like(low, torch.inf)).mass[:, -1]
    part, total = mass[:-1].view_as(y), mass[-1]
    peak = torch.where(y > 0, log_density(y[..., None])[..., 0], 0)  # the table of the tail is relative to its peak
    return torch.where(y.isnan(), torch.nan, torch.where(y == torch.inf, 0, part * peak.exp() / total))


@takes_arrays
def five_by_two_p_value(differences: Tensor) -> Tensor:
    """Compute the p-value of the 5x2cv paired t test: five times, halves of the items train and test in turn.

    Shapes: differences: (..., 5, 2) -> (...) float64.

    `differences` are score of a minus score of b on both halves of each split. t is the first of them, divided by the
    root of the mean variance within the splits, with 5 degrees of freedom; the p-value is two-sided. It is 0 where the
    halves of every split agree, but NaN if the first difference is 0 too or one is not finite. ValueError for other
    shapes and dtypes. Dietterich 1998, doi:10.1162/089976698300017197.

    >>> differences = torch.tensor([[0.02, 0.03], [0.01, 0.03], [0.03, 0.02], [0.02, 0.02], [0.04, 0.03]])
    >>> round(float(five_by_two_p_value(differences)), 3)
    0.062
    """
    checks.floating("differences", differences)
    checks.shape("differences", differences, "...", 5, 2)
    values = differences.double()
    apart = values - values.mean(-1, keepdim=True)  # NaN where a difference is infinite
    t = values[..., 0, 0] / (2 * apart.square().mean((-2, -1))).sqrt()
    return 2 * t_cdf(-t.abs(), 5).clamp(min=0)
