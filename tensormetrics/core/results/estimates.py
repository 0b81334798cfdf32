"""Result types of all domains: `Estimate`, a number with its interval, and `Comparison`, a difference of two."""

from __future__ import annotations

import dataclasses
import math
from numbers import Real
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from ..arguments import checks
from .conclusions import Assurance, assurance_of, verdict_of
from .formatting import value_rows
from .result import Result

OPPOSITE = {"two-sided": "two-sided", "greater": "less", "less": "greater"}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Estimate(Result):
    """A score and an interval that holds the true one in about `confidence` of data sets like this.

    Equal to another with the same numbers; `round(estimate, 2)` rounds all three, `json.dumps` takes `to_dict()`.

    Args:
        value: The observed score.
        low: Lower ends, at most `value`.
        high: Upper ends, at least `value`.
        confidence: Mass of the interval, in (0, 1).
        items: Items that were scored; None if unknown.
        groups: Number of independent units of the items, equal to `items` without groups; estimated for metrics that
            keep sums of more than 1,000 units (`details` then has "groups_estimated"); None if unknown.
        effective_groups: Number of groups of equal size with the same information (Kish 1965); None if unknown.
        method: Method of the interval, such as "bayesian bootstrap" or "posterior (hdi)".
        name: Name of the metric.
        labels: Names along the last dimension of `value`.
        details: Further results of single methods by name, such as "median".

    Shape:
        - value, low, high: ``(...)`` each, float64

    Example:
        >>> estimate = Estimate(torch.tensor(0.084), torch.tensor(0.061), torch.tensor(0.109))
        >>> value, low, high = estimate
        >>> print(estimate, float(estimate.high) > 0.1)
        0.084 [0.061, 0.109] True
    """

    tensors: ClassVar[tuple[str, ...]] = ("value", "low", "high")

    value: Tensor
    low: Tensor
    high: Tensor
    _: dataclasses.KW_ONLY
    confidence: float | None = None
    items: int | None = None
    groups: int | None = None
    effective_groups: float | None = None
    method: str | None = None
    name: str | None = None
    labels: tuple[str, ...] | None = None
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __neg__(self) -> Estimate:
        return self * -1

    def __mul__(self, factor: float) -> Estimate:
        if isinstance(factor, bool) or not isinstance(factor, Real):
            return NotImplemented
        value, low, high = (factor * end for end in self)
        return dataclasses.replace(self, value=value, low=torch.minimum(low, high), high=torch.maximum(low, high))

    __rmul__ = __mul__


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """The difference a - b of two scores of the same items: interval, `p_better` and `p_value` are one statement.

    The interval excludes 0 exactly where `p_value` <= 1 - `confidence`, and `p_better` > .975 never comes with a
    two-sided `p_value` above .1. In `compare`, `p_value` is the larger of the swap test's and the draws'.
    `100 * comparison` compares scores in percent; `-comparison` compares negated scores, of which less is better where
    more was.

    Args:
        difference: a - b.
        low: Lower ends of the interval of the difference.
        high: Upper ends.
        p_value: Two-sided, where U pairs that differ cannot fall below 2^(1-U), or that of the alternative.
        p_better: Probability that a is better, ties half, in the metric's direction; NaN with `anytime`.
        p_rope: Probability that the difference lies within the region of practical equivalence; NaN without `rope`.
        confidence: Mass of the interval, in (0, 1).
        alternative: ``"two-sided"``, ``"greater"`` (a is above b) or ``"less"``; of `p_value` and the interval, whose
            other end is that of the range.
        items: Items that were scored; None if unknown.
        groups: Number of independent units of the items, see `Estimate`; None if unknown.
        effective_groups: Number of groups of equal size with the same information; None if unknown.
        discordant: Groups (or items) on which a and b differ; None if unknown.
        test: Where `p_value` comes from: "paired swaps" (exact for differences of one size, as McNemar's test, and for
            few units), "exact binomial", "random signs", "corrected t", "hierarchical t" or "anytime"; "bootstrap" or
            "draws" without a separate test.
        p_corrected: p-values corrected over all comparisons of a call, as the interval is; None for a single one.
        p_not_worse: p-values of non-inferiority, that a is not worse than b by `rope` or more; None without `rope`.
            The larger one of a t test and of draws with an imagined item on which a is worst and b best.
        p_equivalent: p-values of equivalence, that the difference is smaller than `rope` on both sides (two one-sided
            tests, whose confidence interval is that of 1 - 2 p: at .05 that of 90 %); None without `rope`.
        se: Standard errors of the difference; None if unknown.
        sd: Standard deviations of the difference per group (or item), from which `plan` starts; None if unknown.
        a: Score of a with its interval; None if unknown.
        b: Score of b with its interval; None if unknown.
        higher_is_better: Direction of the metric.
        rope: Half the width of the region of practical equivalence; None without one.
        name: Name of the metric.
        labels: Names along the last dimension.
        details: Further results of single methods by name.

    Shape:
        - all tensors: ``(...)`` each, float64

    Example:
        >>> ends = torch.tensor(0.042), torch.tensor(0.056)
        >>> comparison = Comparison(torch.tensor(0.049), *ends, *map(torch.tensor, (0.001, 0.999, torch.nan)))
        >>> print(comparison, comparison.verdict, sep="; ")
        +0.049 [+0.042, +0.056], p = 0.001; better
    """

    tensors: ClassVar[tuple[str, ...]] = ("difference", "low", "high", "p_value", "p_better", "p_rope")
    optional: ClassVar[tuple[str, ...]] = ("p_corrected", "p_not_worse", "p_equivalent", "se", "sd", "a", "b")

    difference: Tensor
    low: Tensor
    high: Tensor
    p_value: Tensor
    p_better: Tensor
    p_rope: Tensor
    _: dataclasses.KW_ONLY
    confidence: float | None = None
    alternative: str = "two-sided"
    items: int | None = None
    groups: int | None = None
    effective_groups: float | None = None
    discordant: int | None = None
    test: str | None = None
    # Whether these are None depends on the call that made them: `Any` saves a check of it.
    p_corrected: Tensor | Any = None
    p_not_worse: Tensor | Any = None
    p_equivalent: Tensor | Any = None
    se: Tensor | Any = None
    sd: Tensor | Any = None
    a: Estimate | Any = None
    b: Estimate | Any = None
    higher_is_better: bool = True
    rope: float | None = None
    name: str | None = None
    labels: tuple[str, ...] | None = None
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def verdict(self) -> Any:
        """Return the conclusion of the interval as a text, or nested lists of texts for several values.

        "better" or "worse" if the interval excludes 0, with a `rope` also "better by more than rope", "worse by more
        than rope", "equivalent" (within it), "not worse" and "not better", else "undecided". "not worse" and
        "equivalent" also need their p-values at most 1 - `confidence`, and are stricter: a p-value of .05 belongs to
        the interval of 90 %.
        """
        names = ("low", "high") if self.higher_is_better else ("high", "low")
        rows = value_rows(self, names)
        sign, level = 1 if self.higher_is_better else -1, 1 - (self.confidence or 0.95)
        p_values = [[0.0, 0.0]] * len(rows)
        if self.p_not_worse is not None and self.p_equivalent is not None:
            p_values = value_rows(self, ("p_not_worse", "p_equivalent"))
        verdicts = [
            verdict_of(sign * low, sign * high, self.rope, p_not_worse, p_equivalent, level)
            for (low, high), (p_not_worse, p_equivalent) in zip(rows, p_values, strict=True)
        ]
        return np.array(verdicts, dtype=object).reshape(self.low.shape).tolist()

    @property
    def _decisive_p(self) -> Tensor:
        return self.p_value if self.p_corrected is None else self.p_corrected

    @property
    def _is_significant(self) -> bool:
        return float(self._decisive_p) <= 1 - (self.confidence or 0.95)

    def _cells(self, precision: int = 3) -> dict[str, Any]:
        fields = ("p_rope", "p_not_worse", "p_equivalent") if self.rope is not None else ()
        numbers = {"p": self.p_value, "corrected p": self.p_corrected, "p_better": self.p_better}
        numbers |= {name: getattr(self, name) for name in fields}
        undefined = float(torch.as_tensor(self.details.get("nan_fraction", 0)).max())
        return {
            **super()._cells(precision),
            **{name: float(number) for name, number in numbers.items() if number is not None},
            "verdict": self.verdict,
            **({"NaN": undefined} if undefined else {}),
        }

    def __neg__(self) -> Comparison:
        return self * -1

    def __mul__(self, factor: float) -> Comparison:
        if isinstance(factor, bool) or not isinstance(factor, Real):
            return NotImplemented
        checks.check_number("factor", factor, "a finite number other than 0", lambda x: x != 0 and math.isfinite(x))
        ends = (self.low, self.high) if factor > 0 else (self.high, self.low)
        fields = {"difference": self.difference, "a": self.a, "b": self.b} | dict(
            zip(("low", "high"), ends, strict=True)
        )
        spreads = {"se": self.se, "sd": self.sd, "rope": self.rope}
        scaled = {name: None if field is None else factor * field for name, field in fields.items()}
        scaled |= {name: None if field is None else abs(factor) * field for name, field in spreads.items()}
        if factor < 0:
            scaled |= {"higher_is_better": not self.higher_is_better, "alternative": OPPOSITE[self.alternative]}
        return dataclasses.replace(self, **cast(Any, scaled))

    __rmul__ = __mul__

    def assurance(self, more: int) -> Assurance:
        """Return how likely `more` items like those of the data make the interval exclude 0; for 0, whether it does.

        The predictive law of the larger sample, in which today's difference is not the true one (Spiegelhalter,
        Freedman & Blackburn 1986, doi:10.1016/0197-2456(86)90003-6).

        Args:
            more: Number of items that are added.

        Shape:
            - Output: ``(...)`` each, float64

        Returns:
            The chances that a turns out better and worse than b.

        Raises:
            ValueError: If the number is negative, or standard error, items or confidence of the comparison are unknown.
        """
        more = checks.check_int("more", more, 0)
        if self.se is None or self.items is None or self.confidence is None:
            raise ValueError(
                "assurance: got a comparison without se, items and confidence, wanted one of compare(a, b)"
            )
        below = (1 + self.confidence) / 2 if self.alternative == "two-sided" else self.confidence
        z = float(torch.special.ndtri(torch.tensor(below, dtype=torch.float64, device="cpu")))
        chances = assurance_of(self.difference, self.low, self.high, more / self.items, z)
        return chances if self.higher_is_better else Assurance(*reversed(chances))


def check_confidence(confidence: float) -> float:
    """Return a number in (0, 1) as a float, or raise a ValueError."""
    checks.check_number("confidence", confidence, "a number between 0 and 1", lambda x: 0 < x < 1)
    return float(confidence)


def check_rope(rope: float | None) -> None:
    if rope is not None:
        checks.check_number("rope", rope, "None or a number >= 0", lambda x: x >= 0)
