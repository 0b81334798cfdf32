"""Summaries and comparisons of samples under the names of prob_conf_mat, and the printing of reports.

The results are made by calling their classes, and compute what they are asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ...core.arguments import checks
from ...core.results.text_tables import TEXTS, import_pandas, rendered
from ...posterior.metrics.quantity import Quantity
from ...uncertainty.statistics import samples

Z = 1.959963984540054  # the normal quantile of 0.975


class PosteriorSummary:
    """Summary of samples (S,) without those that are NaN; skew and kurtosis are those of the finite ones."""

    def __init__(self, posterior_samples: Any, ci_probability: float) -> None:
        samples.check_probability("ci_probability", ci_probability)
        self.ci_probability = ci_probability
        ordered, count = samples.sort_samples(checks.as_tensor(posterior_samples), 0)
        self.median, low, high = samples.estimate_sorted(ordered, count, ci_probability)
        self.mode = samples.histogram_mode(ordered, count, samples.finite_part(ordered, count))
        self.hdi, self.metric_uncertainty = (low, high), high - low
        finite = ordered[ordered.isfinite()]
        m2, m3, m4 = ((finite - finite.mean()).pow(power).mean() for power in (2, 3, 4))
        self.skew, self.kurtosis = m3 / m2**1.5, m4 / m2**2 - 3

    headers = property(lambda self: [*self.as_dict()])

    def as_dict(self) -> dict[str, Any]:
        columns = {"Median": self.median, "Mode": self.mode, f"{self.ci_probability:.1%} HDI": self.hdi}
        return {**columns, "MU": self.metric_uncertainty, "Skew": self.skew, "Kurt": self.kurtosis}


@dataclass(eq=False)
class PairwiseComparisonResult:
    """The difference left - right of a metric, by its samples (S,).

    ROPE is the region of practical equivalence [-min_sig_diff, min_sig_diff], by default a tenth of the standard
    deviation; bi_sig is the fraction of samples outside it, uni_sig the fraction outside it in the `direction`.
    `p_rope_random` is the fraction if both guessed, and `bf_rope` the ratio of the odds.
    """

    metric: Quantity | str
    diff_dist: Any
    ci_probability: float
    min_sig_diff: Any = None
    lhs_name: str = "left"
    rhs_name: str = "right"
    random_diff_dist: Any = None
    observed_difference: Any = None

    def __post_init__(self) -> None:
        if self.min_sig_diff is not None:
            checks.check_number("min_sig_diff", self.min_sig_diff, "None or a number >= 0", lambda x: x >= 0)
        diff = checks.as_tensor(self.diff_dist).double()
        self.diff_dist = diff = diff[~diff.isnan()]
        if self.min_sig_diff is None:
            self.min_sig_diff = 0.1 * diff[diff.isfinite()].std(correction=0)
        self.observed_diff, rope = self.observed_difference, diff.new_tensor(float(self.min_sig_diff))
        regions = torch.stack([diff < -rope, diff.abs() <= rope, diff > rope, diff > 0, diff < 0])
        self.p_sig_neg, self.p_rope, self.p_sig_pos, above, below = regions.sum(1).double().div(len(diff))
        self.min_sig_diff, self.direction = rope, ["none", "positive", "negative"][int((above - below).sign())]
        self.p_direction, self.p_bi_sig = torch.maximum(above, below), self.p_sig_neg + self.p_sig_pos
        self.p_uni_sig = self.p_sig_neg if above < below else self.p_sig_pos
        self.p_direction_score_interval_width = self._width(self.p_direction)
        self.p_bi_sig_score_interval_width = self._width(self.p_bi_sig)
        self.p_uni_sig_score_interval_width = self._width(self.p_uni_sig)
        self.p_rope_random: Tensor | None = None
        self.bf_rope: Tensor | None = None
        if self.random_diff_dist is not None:
            random = checks.as_tensor(self.random_diff_dist).double()
            self.p_rope_random = (random[~random.isnan()].abs() <= rope).double().mean()
            odds, random_odds = (share / (1 - share) for share in (self.p_rope, self.p_rope_random))
            self.bf_rope = torch.where(rope > 0, odds / random_odds, torch.nan)

    @cached_property
    def diff_dist_summary(self) -> PosteriorSummary:
        return PosteriorSummary(self.diff_dist, self.ci_probability)

    def _width(self, share: Tensor) -> Tensor:
        """Return half the width of Wilson's 95 % interval of a share of the samples."""
        n = len(self.diff_dist)
        return Z * (share * (1 - share) / n + Z**2 / (4 * n**2)).sqrt() / (1 + Z**2 / n)

    def template_sentence(self, precision: int = 4) -> str:
        """Describe the comparison in sentences."""
        left, right, summary, share = self.lhs_name, self.rhs_name, self.diff_dist_summary, f".{max(precision - 2, 0)}%"
        sign = {"positive": ">", "negative": "<"}.get(self.direction, "=")
        numbers = [float(x) for x in (summary.median, *summary.hdi, self.min_sig_diff)]
        median, low, high, limit = (f"{x:.{precision}f}" for x in numbers)
        observed = "" if self.observed_diff is None else f" (observed {float(self.observed_diff):.{precision}f})"
        odds = "" if self.bf_rope is None else f", the odds {self.bf_rope:.{precision}f} times those of random guessers"
        name = self.metric if isinstance(self.metric, str) else self.metric.name
        return (
            f"{name} of {left} minus that of {right}: median {median}{observed}, {summary.ci_probability:.1%} HDI "
            f"[{low}, {high}].\nP({left} {sign} {right}) = {self.p_direction:{share}}.\n"
            f"P(|difference| <= {limit}) = {self.p_rope:{share}}{odds}; P(difference > {limit}) = "
            f"{self.p_sig_pos:{share}}, P(difference < -{limit}) = {self.p_sig_neg:{share}}."
        )


class ListwiseComparisonResult:
    """Experiments ordered by their mean reciprocal rank, the likely best first, given their samples (S,) by name.

    Tied ones share their ranks, and NaN ranks last.
    """

    def __init__(self, experiment_scores_dict: Mapping[str, Any], metric: Quantity) -> None:
        self.metric = metric
        columns = [checks.as_tensor(scores).double() for scores in experiment_scores_dict.values()]
        sign = -1 if metric.higher_is_better is False else 1
        values = (sign * torch.stack(columns, -1)).nan_to_num(-torch.inf, torch.inf, -torch.inf)  # (S, E)
        num_better = (values[:, None] > values[..., None]).sum(-1)
        tied = (values[:, None] == values[..., None]).sum(-1)
        ranks = torch.arange(values.shape[1], device=values.device)
        shares = [((num_better <= r) & (r < num_better + tied)).double().div(tied).mean(0) for r in ranks]
        reciprocal = torch.stack(shares, -1) @ (1 / (ranks + 1).double())
        order = reciprocal.argsort(descending=True, stable=True)
        self.experiment_names = [[*experiment_scores_dict][e] for e in order.tolist()]
        self.p_rank_given_experiment = torch.stack(shares, -1)[order]  # (E, E), rows are experiments and sum to 1

    p_experiment_given_rank = property(lambda self: self.p_rank_given_experiment.T)  # (E, E), rows are ranks


def report(rows: list[dict[str, Any]], table_fmt: str, precision: int) -> Any:
    """Print a report: "records", "pd" or "pandas", a format of `Table`, or one of the package tabulate."""
    rows = tree_map(lambda cell: cell.item() if isinstance(cell, Tensor) else cell, rows)
    if table_fmt == "records":
        return rows
    if table_fmt in ("pd", "pandas"):
        return import_pandas().DataFrame(rows)
    headers, cells = [*rows[0]] if rows else [], [[*row.values()] for row in rows]
    if table_fmt in TEXTS:
        return rendered(table_fmt, headers, cells, precision)
    from tabulate import tabulate

    return tabulate(cells, headers, table_fmt, floatfmt=f".{precision}f")
