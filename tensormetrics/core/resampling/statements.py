"""Interval, p-value and probability of a difference from one set of evidence, so that they never contradict."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_unflatten

from ..arguments.callers import level_of_caller
from ..numbers.student import t_sf
from ..results.estimates import Comparison
from .errors import UncertaintyWarning
from .families import MEMBER, FamilyMember, consistent
from .intervals import DrawSets
from .resampling import FlatValues
from .swaps import ExactTest

ALTERNATIVES = "two-sided", "greater", "less"


class Question(NamedTuple):
    """Options of a comparison."""

    confidence: float
    alternative: str = "two-sided"
    rope: float | None = None
    direction: Callable[[str], bool | None] = lambda name: True  # of a name, False where less is better
    of_family: bool = False  # the comparison is one of several, to be corrected by `families.corrected`


class Evidence(NamedTuple):
    """Draws and tests of V differences."""

    difference: Tensor  # (V,)
    draws: DrawSets
    range: tuple[Tensor, Tensor]  # (V,) or () each, the smallest and the largest value that a difference can have
    test: ExactTest | None
    standard_error: Tensor | None = None  # (V,)
    margin_draws: tuple[Tensor, Tensor] | None = None  # (R, V) each, see `intervals.margin_draws`
    least_p: float = 0.0  # of one side, of signs of the units
    one_unit: bool = False  # there is a single unit (an item or a group), so that the variance is unknown
    all_equal: bool = False  # both models have equal values on every unit
    df: int | None = None  # of the standard error, by default one less than the number of units


def statements(values: FlatValues, evidence: Evidence, question: Question, counts: dict[str, Any], message: str) -> Any:
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
    low, high = consistent(low, high, difference, p_value, question.confidence)
    p_rope = torch.full_like(difference, torch.nan)
    if question.rope is not None:
        fractions = [
            (draw.abs() <= question.rope).double().sum(0) / draw.isnan().logical_not().sum(0) for draw in draw_sets
        ]
        p_rope = torch.minimum(*fractions)
    if message:
        warnings.warn(message, UncertaintyWarning, stacklevel=level_of_caller())
    columns = dict(zip(Comparison.tensors, [difference, low, high, p_value, p_better, p_rope], strict=True))
    if evidence.standard_error is not None:
        columns["se"] = evidence.standard_error
        columns["sd"] = evidence.standard_error * counts["groups"] ** 0.5
        if question.rope is not None:
            signs = _signs(values, question.direction).to(difference)
            df = counts["groups"] - 1 if evidence.df is None else evidence.df
            columns |= _margin_tests(signs, evidence, question.rope, max(df, 1))
    columns = {name: column.where(difference.isfinite(), torch.nan) for name, column in columns.items()}
    columns["difference"] = difference
    fields: dict[str, Any] = {**counts, "confidence": question.confidence, "rope": question.rope}
    fields["alternative"] = question.alternative
    member = None
    if question.of_family and evidence.standard_error is not None:
        lowest, highest = (end.expand_as(difference) for end in evidence.range)
        member = FamilyMember((draws.first - difference) / evidence.standard_error, lowest, highest, draws.scales)

    def comparison(index: Tensor, *tensors: Tensor) -> Comparison:
        details = {} if member is None else {MEMBER: member.take(index.long())}
        return Comparison(**{**dict(zip(columns, tensors, strict=True)), **fields, "details": details})

    index = torch.arange(difference.numel(), device=difference.device)
    return values.restored([index, *columns.values()], comparison)


def _margin_tests(signs: Tensor, evidence: Evidence, rope: float, df: int) -> dict[str, Tensor]:
    # signs: (V,), the direction of the metric  ->  (V,) each
    """Return p-values against the margin `rope`: the larger of Student's t test's and that of draws.

    Their alternatives are: the first model is worse by less than the margin (`p_not_worse`), and the difference lies
    within the margin on both sides (`p_equivalent`). The draws have one imagined item at the far end of the range, so
    that n items without a difference have about (1 - rope)^n; without a spread and a range nothing is known.
    """
    difference, error = evidence.difference, cast(Tensor, evidence.standard_error)
    no_draws = difference.new_empty(0, len(difference))
    tails = []
    for sign, draws in zip((1, -1), evidence.margin_draws or (no_draws, no_draws), strict=True):
        tail = t_sf((sign * difference + rope) / error, df).masked_fill(error == 0, 0)
        count, hits = draws.isnan().logical_not().sum(0), (sign * draws <= -rope).sum(0).double()
        share = torch.where(count > 0, (1 + hits) / (1 + count), (error == 0).double())
        tails.append(torch.ones_like(tail) if evidence.one_unit else torch.maximum(tail, share))
    above, below = tails
    return {"p_not_worse": above.where(signs > 0, below), "p_equivalent": torch.maximum(above, below)}


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
    is_two_sided = question.alternative == "two-sided"  # else tails are 1 - confidence each
    low, high = evidence.draws.interval(question.confidence if is_two_sided else 2 * question.confidence - 1)
    low, high = torch.maximum(low, lowest), torch.minimum(high, highest)
    return lowest if question.alternative == "less" else low, highest if question.alternative == "greater" else high


def _p_value(evidence: Evidence, draw_sets: list[Tensor], alternative: str) -> Tensor:
    # ->  (V,)
    """Return the largest p-value of the draw sets and the test; two-sided: twice the smaller one-sided."""
    difference = evidence.difference
    if evidence.one_unit or evidence.all_equal:
        return torch.ones_like(difference)
    nan = torch.full_like(difference, torch.nan)
    greater, less, is_exact = evidence.test or (nan, nan, torch.zeros_like(nan, dtype=torch.bool))
    for draws in draw_sets:
        count = draws.isnan().logical_not().sum(0)
        beyond = [(draws <= 0).sum(0).double(), (draws >= 0).sum(0).double()]
        # Draws that all agree say no more than that p is below their resolution, which an exact p-value knows better.
        of_greater, of_less = (torch.where(is_exact & (hits == 0), nan, (1 + hits) / (1 + count)) for hits in beyond)
        greater, less = torch.fmax(greater, of_greater), torch.fmax(less, of_less)
    # A difference <= 0 is no evidence for "greater", nor one >= 0 for "less".
    greater = greater.where(difference > 0, greater.clamp(min=0.5))
    less = less.where(difference < 0, less.clamp(min=0.5))
    greater, less = greater.clamp(min=evidence.least_p), less.clamp(min=evidence.least_p)
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


def _signs(values: FlatValues, direction: Callable[[str], bool | None]) -> Tensor:
    # ->  (V,), -1 where less is better, else 1
    leaves = tree_unflatten([str(i) for i in range(len(values.leaves))], values.spec)
    names = list(leaves) if isinstance(leaves, dict) else [""] * len(values.leaves)
    return torch.cat([
        torch.full((leaf.numel(),), -1.0 if direction(name) is False else 1.0, dtype=torch.float64, device="cpu")
        for name, leaf in zip(names, values.leaves, strict=True)
    ])  # fmt: skip
