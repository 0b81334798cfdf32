"""Is one experiment better than another: the posterior of the difference of a metric."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.results.estimates import Comparison
from ...uncertainty.statistics.sample_comparison import comparison_of_draws
from ...uncertainty.statistics.samples import check_probability, estimate_sorted, searchable, sort_samples
from ..summaries.summary import PosteriorSummary, summarize

Z = 1.959963984540054  # the normal quantile of 0.975
AT_ONCE = 2**21  # differences of several pairs


@dataclass(frozen=True, eq=False)
class Differences:
    """Differences of columns, computed on demand: P pairs of E columns would take P / E times their memory."""

    values: Tensor  # (S, E)
    left: Tensor  # (P,) int64, or () for one pair
    right: Tensor

    def __call__(self) -> Tensor:  # (S, P) or (S,)
        return self.values[:, self.left] - self.values[:, self.right]

    def split(self) -> Iterable["Differences"]:
        step = max(AT_ONCE // max(len(self.values), 1), 1)
        for left, right in zip(self.left.split(step), self.right.split(step), strict=True):
            yield Differences(self.values, left, right)


@dataclass(frozen=True, eq=False)
class SampledDifference:
    """Samples of a difference that are already computed."""

    diff: Tensor

    def __call__(self) -> Tensor:
        return self.diff


@dataclass(frozen=True, kw_only=True, eq=False)
class PairwiseComparisonResult:
    """The difference d = left - right. Tensors () for one comparison; (P,), and lists of str, for P of them.

    `p_greater` is P(left > right), `p_less` P(left < right), `p_tie` P(left = right): fractions of the samples, whether
    higher values are better or not. `p_direction` is the larger of `p_greater` and `p_less`, hence at least 1/2 without
    ties.
    ROPE is the region of practical equivalence [-min_sig_diff, min_sig_diff]; bi_sig is the fraction of samples outside
    it, uni_sig the fraction outside it in the `direction`. Widths are half the width of Wilson's 95 % interval of the
    fraction, due to the number of samples. `p_rope_random` is the fraction if both guessed, and `bf_rope` the ratio of
    the odds.
    """

    lhs_name: str | list[str]
    rhs_name: str | list[str]
    metric: str
    higher_is_better: bool | None
    ci_probability: float
    observed_diff: Tensor | None
    differences: Differences | SampledDifference
    median: Tensor
    interval: tuple[Tensor, Tensor]  # highest density
    p_greater: Tensor
    p_less: Tensor
    p_direction: Tensor
    p_tie: Tensor
    min_sig_diff: Tensor
    default_rope: bool
    p_sig_neg: Tensor
    p_rope: Tensor
    p_sig_pos: Tensor
    p_bi_sig: Tensor
    p_uni_sig: Tensor
    p_direction_score_interval_width: Tensor
    p_bi_sig_score_interval_width: Tensor
    p_uni_sig_score_interval_width: Tensor
    p_rope_random: Tensor | None
    bf_rope: Tensor | None
    paired: bool | list[bool]  # were the samples drawn for the same items?
    nan_fraction: Tensor  # of the samples, which everything else leaves out

    @property
    def diff_dist(self) -> Tensor:  # (S,) or (S, P)
        """The samples of the difference, float64; those of all pairs are computed at each call."""
        return self.differences().double()

    @cached_property
    def diff_dist_summary(self) -> PosteriorSummary:
        return summarize(self.diff_dist, self.ci_probability)

    @property
    def comparison(self) -> Comparison:
        """The result of `compare_samples` for the same samples, with a region of equivalence if one was given."""
        rope = None if self.default_rope else float(self.min_sig_diff.flatten()[0])
        observed, higher_is_better = self.observed_diff, self.higher_is_better is not False
        return comparison_of_draws(self.diff_dist, observed, self.ci_probability, rope, higher_is_better)

    @property
    def direction(self) -> str | list[str]:
        return _labels(self.median, lambda m: "positive" if m > 0 else "negative" if m < 0 else "none")

    @property
    def favours(self) -> str | Sequence[str | None] | None:
        """The name of the better one; None where the median is 0 or the metric has no better direction."""
        sign = {True: 1, False: -1, None: 0}[self.higher_is_better] * self.median
        if self.median.ndim == 0:
            return self.lhs_name if sign > 0 else self.rhs_name if sign < 0 else None
        names = zip(sign.tolist(), self.lhs_name, self.rhs_name, strict=True)
        return [left if s > 0 else right if s < 0 else None for s, left, right in names]

    @property
    def pair(self) -> tuple[str, str]:
        """The names of both experiments. ValueError for several comparisons."""
        if self.median.ndim == 0 and isinstance(self.lhs_name, str) and isinstance(self.rhs_name, str):
            return self.lhs_name, self.rhs_name
        raise ValueError(f"got {self.median.numel()} comparisons, wanted one; write get_pairwise_comparison(...)")

    def template_sentence(self, precision: int = 4) -> str:
        """Describe one comparison in sentences."""

        def decimal(x: Tensor | float) -> str:
            return f"{float(x):.{precision}f}"

        def percent(p: Tensor) -> str:
            return f"{float(p):.{max(precision - 2, 0)}%}"

        left, right = map(short, self.pair)
        low, high = self.interval
        observed = "" if self.observed_diff is None else f" (observed {decimal(self.observed_diff)})"
        tie = f", P({left} = {right}) = {percent(self.p_tie)}" if self.p_tie > 0 else ""
        lines = [
            f"{self.metric} of {left} minus that of {right}: median {decimal(self.median)}{observed}, "
            f"{self.ci_probability:.1%} HDI [{decimal(low)}, {decimal(high)}].",
            f"P({left} > {right}) = {percent(self.p_greater)}, P({left} < {right}) = {percent(self.p_less)}{tie}.",
        ]
        if self.min_sig_diff > 0:  # a region without width is left out
            limit = decimal(self.min_sig_diff)
            source = " (default: a tenth of the standard deviation)" if self.default_rope else ""
            lines.append(
                f"P(|difference| <= {limit}) = {percent(self.p_rope)}{source}, P(difference > {limit}) = "
                f"{percent(self.p_sig_pos)}, P(difference < -{limit}) = {percent(self.p_sig_neg)}."
            )
            if self.bf_rope is not None and not self.bf_rope.isnan():
                odds = decimal(self.bf_rope)
                lines.append(f"The odds of a difference that small are {odds} times those of two random guessers.")
        if self.paired:
            lines.append("Both were evaluated on the same items.")
        return "\n".join(lines)


def pairwise_compare(
    diff: Tensor,
    ci_probability: float = 0.95,
    min_sig_diff: float | None = None,
    random_diff: Tensor | None = None,
    observed_difference: Tensor | float | None = None,
    lhs_name: str | list[str] = "left",
    rhs_name: str | list[str] = "right",
    metric: str = "metric",
    *,
    higher_is_better: bool | None = True,
    paired: bool | list[bool] = False,
) -> PairwiseComparisonResult:
    """Summarize samples of a difference; see `PairwiseComparisonResult`.

    Shapes: diff: (S,) or (S, P); random_diff: (S',) or (S', P).

    `min_sig_diff` is the smallest difference of practical importance, in units of the metric; None: a tenth of the
    standard deviation of `diff`, which shrinks as the data grow. `random_diff` are differences of two random guessers.
    Samples that are nan are left out. ValueError: `min_sig_diff` < 0.

    >>> from tensormetrics.posterior.comparison.pairwise import pairwise_compare
    >>> generator = torch.Generator().manual_seed(0)
    >>> diff = 0.03 + 0.02 * torch.randn(2000, generator=generator)  # samples of a difference
    >>> result = pairwise_compare(diff, min_sig_diff=0.01)
    >>> print(f"{result.median:.3f}, P(left > right) = {result.p_greater:.2f}, P(equivalent) = {result.p_rope:.2f}")
    0.030, P(left > right) = 0.93, P(equivalent) = 0.14
    """
    checks.floating("diff", diff)
    check_probability("ci_probability", ci_probability)
    if min_sig_diff is not None:
        checks.check_number("min_sig_diff", min_sig_diff, "None or a number >= 0", lambda x: x >= 0)
    if random_diff is not None:
        checks.floating("random_diff", random_diff)
    ordered, num_defined = sort_samples(diff, 0)  # (..., S) and (..., 1)
    median, low, high = estimate_sorted(ordered, num_defined, ci_probability)
    diff = diff.double()
    rope = _default_rope(diff) if min_sig_diff is None else torch.full_like(median, min_sig_diff)
    n = num_defined[..., 0].double()
    (below, tie, above), (sig_neg, in_rope, sig_pos) = _probabilities(ordered, num_defined, rope)
    p_direction, bi_sig = torch.maximum(above, below), sig_neg + sig_pos
    uni_sig = torch.where(median > 0, sig_pos, torch.where(median < 0, sig_neg, torch.maximum(sig_neg, sig_pos)))
    random_rope, ratio = (None, None) if random_diff is None else _against_random(in_rope, rope, random_diff)
    observed = None
    if observed_difference is not None:
        observed = torch.as_tensor(observed_difference, dtype=diff.dtype, device=diff.device)
    return PairwiseComparisonResult(
        lhs_name=lhs_name,
        rhs_name=rhs_name,
        metric=metric,
        higher_is_better=higher_is_better,
        ci_probability=ci_probability,
        observed_diff=observed,
        differences=SampledDifference(diff),
        median=median,
        interval=(low, high),
        p_greater=above,
        p_less=below,
        p_direction=p_direction,
        p_tie=tie,
        min_sig_diff=rope,
        default_rope=min_sig_diff is None,
        p_sig_neg=sig_neg,
        p_rope=in_rope,
        p_sig_pos=sig_pos,
        p_bi_sig=bi_sig,
        p_uni_sig=uni_sig,
        p_direction_score_interval_width=_score_interval_width(p_direction, n),
        p_bi_sig_score_interval_width=_score_interval_width(bi_sig, n),
        p_uni_sig_score_interval_width=_score_interval_width(uni_sig, n),
        p_rope_random=random_rope,
        bf_rope=ratio,
        paired=paired,
        nan_fraction=1 - n / len(diff),
    )


def compare_pairs(
    pairs: Differences,
    ci_probability: float,
    min_sig_diff: float | None,
    random: Tensor,  # (S', E)
    observed: Tensor,  # (E,)
    names: tuple[list[str], list[str]],  # P each
    metric: str,
    *,
    higher_is_better: bool | None,
    paired: list[bool],
) -> PairwiseComparisonResult:
    """Call `pairwise_compare` for all pairs, a bounded number of them at a time."""
    joined: dict[str, Any] = {}  # made once: small tensors that stay would keep the memory around them
    done = 0
    for part in pairs.split():
        random_diff, observed_diff = replace(part, values=random)(), replace(part, values=observed[None])()[0]
        comparison = pairwise_compare(
            part(),
            ci_probability,
            min_sig_diff,
            random_diff,
            observed_diff,
            metric=metric,
            higher_is_better=higher_is_better,
        )
        values = {field.name: getattr(comparison, field.name) for field in fields(comparison)}
        values["low"], values["high"] = comparison.interval
        for name, value in values.items():
            if isinstance(value, Tensor):
                column = joined.setdefault(name, value.new_empty(len(pairs.left))) if done == 0 else joined[name]
                column[done : done + len(value)] = value
        done += len(part.left)
        comparison = replace(comparison, differences=pairs)
    interval = joined.pop("low"), joined.pop("high")
    left, right = names
    return replace(comparison, **joined, lhs_name=left, rhs_name=right, paired=paired, interval=interval)


def _default_rope(diff: Tensor) -> Tensor:  # (S, ...) -> (...): a tenth of the standard deviation
    finite = torch.where(diff.isfinite(), diff, torch.nan)
    return 0.1 * (finite - finite.nanmean(0)).square().nanmean(0).sqrt()


def _probabilities(ordered: Tensor, num_defined: Tensor, rope: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    # ordered: (..., S)  num_defined: (..., 1)  rope: (...)  ->  three and three of (...)
    """Return the fractions below, at and above 0; and below, in and above the region, nan where it is nan."""
    edges = torch.stack([-rope, torch.zeros_like(rope), rope], -1)
    samples = searchable(ordered, num_defined)
    less, upto = (torch.searchsorted(samples, edges, right=right).clamp(max=num_defined) for right in (False, True))
    n = num_defined[..., 0].double()
    divisor = torch.where(rope.isnan(), torch.nan, n)
    zero = less[..., 1] / n, (upto[..., 1] - less[..., 1]) / n, (n - upto[..., 1]) / n
    return zero, (less[..., 0] / divisor, (upto[..., 2] - less[..., 0]) / divisor, (n - upto[..., 2]) / divisor)


def _against_random(in_rope: Tensor, rope: Tensor, random_diff: Tensor) -> tuple[Tensor, Tensor]:
    # in_rope, rope: (...)  random_diff: (S', ...)  ->  (...) and (...)
    """Return the fraction of two random classifiers' differences in the region, and the ratio of the odds."""
    defined = random_diff.isnan().logical_not().sum(0).double()
    random_rope = (random_diff.double().abs() <= rope).sum(0) / defined
    odds = [p / (1 - p) for p in (in_rope, random_rope)]
    return random_rope, torch.where(rope > 0, odds[0] / odds[1], torch.nan)


def _score_interval_width(p: Tensor, n: Tensor) -> Tensor:
    # p, n: (...)  ->  (...)
    """Return half the width of Wilson's 95 % interval of a share `p` among `n` (doi:10.2307/2276774)."""
    return Z * (p * (1 - p) / n + Z**2 / (4 * n**2)).sqrt() / (1 + Z**2 / n)


def short(experiment: str) -> str:
    """Return the name without the group if both are the same."""
    group, _, name = experiment.partition("/")
    return name if group == name else experiment


def _labels(x: Tensor, label: Callable[[float], str]) -> str | list[str]:
    labels = [label(value) for value in x.flatten().tolist()]
    return labels if x.ndim else labels[0]
