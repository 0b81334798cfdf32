"""Interval, p-value and probability of a difference from one set of evidence, so that they never contradict."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_unflatten

from ..numbers.student import t_sf
from ..results.estimates import Comparison
from .errors import UncertaintyWarning
from .intervals import DrawSets
from .resampling import Values
from .swaps import ExactTest

ALTERNATIVES = "two-sided", "greater", "less"


class Question(NamedTuple):
    """Options of a comparison."""

    confidence: float
    alternative: str = "two-sided"
    rope: float | None = None
    direction: Callable[[str], bool | None] = lambda name: True  # of a name, False where less is better


class Evidence(NamedTuple):
    """Draws and tests of V differences."""

    difference: Tensor  # (V,)
    draws: DrawSets
    range: tuple[Tensor, Tensor]  # (V,) or () each, the smallest and the largest value that a difference can have
    test: ExactTest | None
    standard_error: Tensor | None = None  # (V,)
    one_unit: bool = False  # there is a single unit (an item or a group), so that the variance is unknown
    all_equal: bool = False  # both models have equal values on every unit


def statements(values: Values, evidence: Evidence, question: Question, counts: dict[str, Any], message: str) -> Any:
    """Return a `Comparison` for each value, in the structure of `values`; warn with `message` unless it is empty.

    `counts` are fields of `Comparison`, among them "groups", the number of units.
    """
    difference, draws = evidence.difference, evidence.draws
    # Two distributions of bootstrap draws, (R, V) each, see `DrawSets`; the more cautious statement of both counts.
    draw_sets = [draws.first, draws.second.where(draws.has_second, draws.first)]
    low, high = _interval(evidence, question)
    p_value = _p_value(evidence, draw_sets, question.alternative)
    p_better = _p_better(evidence, draw_sets, _signs(values, question.direction).to(difference))
    low, high = torch.fmin(low, difference), torch.fmax(high, difference)  # contain the observed difference
    low, high = _consistent(low, high, evidence, p_value, question.confidence)
    p_rope = torch.full_like(difference, torch.nan)
    if question.rope is not None:
        fractions = [
            (draw.abs() <= question.rope).double().sum(0) / draw.isnan().logical_not().sum(0) for draw in draw_sets
        ]
        p_rope = torch.minimum(*fractions)
    if message:
        warnings.warn(message, UncertaintyWarning, stacklevel=4)
    columns = dict(zip(Comparison.tensors, [difference, low, high, p_value, p_better, p_rope], strict=True))
    if evidence.standard_error is not None:
        columns["se"] = evidence.standard_error
        columns["sd"] = evidence.standard_error * counts["groups"] ** 0.5
        if question.rope is not None:
            signs = _signs(values, question.direction).to(difference)
            columns |= _margin_tests(signs * difference, evidence, question.rope, counts["groups"])
    columns = {name: column.where(difference.isfinite(), torch.nan) for name, column in columns.items()}
    columns["difference"] = difference
    fields: dict[str, Any] = {**counts, "confidence": question.confidence, "rope": question.rope}
    fields["alternative"] = question.alternative

    def comparison(*tensors: Tensor) -> Comparison:
        return Comparison(**{**dict(zip(columns, tensors, strict=True)), **fields})

    return values.restored([*columns.values()], comparison)


def _margin_tests(better: Tensor, evidence: Evidence, rope: float, num_units: int) -> dict[str, Tensor]:
    # better: (V,), the difference in the direction of the metric  ->  (V,) each
    """Return p-values of Student's t tests against the margin `rope`.

    Their alternatives are: the first model is worse by less than the margin (`p_not_worse`), and the difference lies
    within the margin on both sides (`p_equivalent`).
    """
    error = cast(Tensor, evidence.standard_error)
    tails = []
    for margin in (better + rope, rope - better):
        tail = t_sf(margin / error, max(num_units - 1, 1))
        tails.append(torch.where(error > 0, tail, (margin <= 0).double()))
    unknown = torch.ones_like(better)  # for one unit, which has no variance
    p_not_worse, p_not_better = (unknown if evidence.one_unit else tail for tail in tails)
    return {"p_not_worse": p_not_worse, "p_equivalent": torch.maximum(p_not_worse, p_not_better)}


def swap_count_warning(count: int, unit: str, alternative: str) -> str:
    """Return a warning if `count` units are too few for any swaps to reach a p-value of .05."""
    smallest, formula = (
        (2.0 ** (1 - count), f"2^(1-{count})") if alternative == "two-sided" else (2.0**-count, f"2^-{count}")
    )
    if not 0.05 < smallest < 1:
        return ""
    return (
        f"{count} {unit}s: no p-value below {formula} = {smallest:.4g} exists, so that a 95 % interval always holds 0"
    )


def _interval(evidence: Evidence, question: Question) -> tuple[Tensor, Tensor]:
    # ->  (V,) each
    """Return the smallest interval that contains those of both draw sets; one-sided, it ends where the range does."""
    lowest, highest = (end.expand_as(evidence.difference) for end in evidence.range)
    if evidence.one_unit:
        return lowest, highest
    if question.alternative == "two-sided":
        return evidence.draws.interval(question.confidence)
    low, high = evidence.draws.interval(2 * question.confidence - 1)  # whose tails are 1 - confidence each
    return (low, highest) if question.alternative == "greater" else (lowest, high)


def _p_value(evidence: Evidence, draw_sets: list[Tensor], alternative: str) -> Tensor:
    # ->  (V,)
    """Return the largest p-value of the draw sets and the exact test; two-sided: twice the smaller one-sided."""
    difference = evidence.difference
    if evidence.one_unit or evidence.all_equal:
        return torch.ones_like(difference)
    greater, less = evidence.test or (torch.full_like(difference, torch.nan),) * 2
    for draws in draw_sets:
        count = draws.isnan().logical_not().sum(0)
        greater = torch.fmax(greater, (1 + (draws <= 0).sum(0).double()) / (1 + count))
        less = torch.fmax(less, (1 + (draws >= 0).sum(0).double()) / (1 + count))
    # A difference <= 0 is no evidence for "greater", nor one >= 0 for "less".
    greater = greater.where(difference > 0, greater.clamp(min=0.5))
    less = less.where(difference < 0, less.clamp(min=0.5))
    p_values = {"greater": greater, "less": less, "two-sided": 2 * torch.minimum(greater, less)}
    return p_values[alternative].clamp(max=1)


def _p_better(evidence: Evidence, draw_sets: list[Tensor], direction: Tensor) -> Tensor:
    # direction: (V,)  ->  (V,)
    """Return the probability that the first model is better, no more certain than the exact test.

    Of both draw sets the value nearer to 1/2 counts; it is 1/2 where they disagree on the sign.
    """
    half = torch.full_like(direction, 0.5)
    if evidence.one_unit or evidence.all_equal:
        return half
    fractions = []
    for draws in draw_sets:
        oriented = direction * draws
        above, equal = (oriented > 0).sum(0).double(), (oriented == 0).sum(0).double()
        fractions.append((above + equal / 2) / oriented.isnan().logical_not().sum(0))
    first, second = fractions
    nearer = torch.where((first - 0.5).abs() <= (second - 0.5).abs(), first, second)
    p_better = nearer.where((first - 0.5) * (second - 0.5) > 0, half)
    if evidence.test is None:
        return p_better
    mid_p = evidence.test.mid_p.nan_to_num(0)
    return p_better.clamp(mid_p / 2, 1 - mid_p / 2)


def _consistent(
    low: Tensor, high: Tensor, evidence: Evidence, p_value: Tensor, confidence: float
) -> tuple[Tensor, Tensor]:
    # low, high, p_value: (V,)  ->  (V,) each
    """Adjust the interval to the p-value, so that it excludes 0 exactly where p_value <= 1 - confidence.

    Where it does, an end beyond 0 becomes the number next to 0; elsewhere the interval is extended to 0.
    """
    tiny = torch.finfo(low.dtype).tiny
    is_significant, is_above = p_value <= 1 - confidence, evidence.difference > 0
    low = torch.where(is_significant & is_above, low.clamp(min=tiny), low)
    high = torch.where(is_significant & ~is_above, high.clamp(max=-tiny), high)
    return torch.where(is_significant, low, low.clamp(max=0)), torch.where(is_significant, high, high.clamp(min=0))


def _signs(values: Values, direction: Callable[[str], bool | None]) -> Tensor:
    # ->  (V,), -1 where less is better, else 1
    leaves = tree_unflatten([str(i) for i in range(len(values.leaves))], values.spec)
    names = list(leaves) if isinstance(leaves, dict) else [""] * len(values.leaves)
    return torch.cat([
        torch.full((leaf.numel(),), -1.0 if direction(name) is False else 1.0, dtype=torch.float64, device="cpu")
        for name, leaf in zip(names, values.leaves, strict=True)
    ])  # fmt: skip
