"""Comparisons of two metrics on the same items or on independent ones, or of one metric with a reference."""

import math
from typing import Any, cast

import torch
from torch import Tensor

from .draws import Jackknife
from .intervals import (
    DrawSets,
    Operand,
    counts_of,
    draw_sets,
    independent,
    jackknife_of,
    margin_draws,
    ranges_of,
    read_operands,
    unit_count_warning,
)
from .resampling import FlatValues, Joined, Resampled, values_of
from .statements import Evidence, Question, statements, swap_count_warning
from .swaps import TOLERANCE, ExactTest, binomial_test, either, swap_test
from .units import Units

SHAPES_DIFFER = "a, b: their results differ in shape; wanted equal options and the same classes"


def comparisons(a: Resampled | Joined, b: Resampled | Joined, question: Question) -> Any:
    """Return a `Comparison` for each value of a and b, whose replicates have the same weights."""
    if isinstance(a, Joined) or isinstance(b, Joined):
        if not (isinstance(a, Joined) and isinstance(b, Joined) and len(a.parts) == len(b.parts)):
            raise ValueError(SHAPES_DIFFER)
        return a.join([comparisons(x, y, question) for x, y in zip(a.parts, b.parts, strict=True)])
    _check_same_items(a, b)
    has_same_sums = a.half is None and torch.equal(a.weighted, b.weighted)  # whose cells may be others
    if a.paired is not None and b.paired is not None:  # pseudo-items of single models would not cancel
        a, b = a.paired(), b.paired()
    values, others = _values_of_both(a, b)
    operands = [Operand(a, values), Operand(b, others, -1.0)]
    difference, jackknife = read_operands(operands, lambda operand: operand.resampled.observed), jackknife_of(operands)
    differs = None  # of units, unknown where these are cells or values of a model
    if a.units is not None and b.units is not None and a.half is not None and b.half is not None:
        differs = (a.units.rows != b.units.rows).flatten(1).any(1)
    draws = draw_sets(operands, difference, jackknife)
    evidence = Evidence(
        difference,
        draws,
        ranges_of(operands),
        None if a.half is None or b.half is None else _swap_test(operands, a.half, b.half),
        _standard_error(operands, jackknife, draws),
        one_unit=jackknife is not None and jackknife.num_units == 1,
        margin_draws=None if question.rope is None else margin_draws(operands, difference, jackknife),
        all_equal=(has_same_sums and not bool(difference.any())) or (differs is not None and not bool(differs.any())),
    )
    counts = counts_of(a, jackknife) | {"discordant": None if differs is None else int(differs.sum())}
    by_position = ", paired by position" if a.pairing else ""
    counts["test"] = ("bootstrap" if evidence.test is None else "paired swaps") + by_position
    return statements(values, evidence, question, counts, _pairs_warning(jackknife, question.alternative, evidence))


def independent_comparisons(a: Resampled | Joined, b: Resampled | Joined, question: Question) -> Any:
    """Return a `Comparison` for each value of a and b, which share no items."""
    if isinstance(a, Joined) or isinstance(b, Joined):
        if not (isinstance(a, Joined) and isinstance(b, Joined) and len(a.parts) == len(b.parts)):
            raise ValueError(SHAPES_DIFFER)
        return a.join([independent_comparisons(x, y, question) for x, y in zip(a.parts, b.parts, strict=True)])
    values, others = _values_of_both(a, b)
    (first, counts, message), (second, other_counts, other_message) = (
        _of_one(Operand(a, values), question),
        _of_one(Operand(b, others), question),
    )
    n, m = counts["groups"], other_counts["groups"]
    (low, high), (other_low, other_high) = first.range, second.range
    margins = None
    if first.margin_draws is not None and second.margin_draws is not None:
        at_low, at_high = second.margin_draws
        margins = independent(first.margin_draws[0], at_high), independent(first.margin_draws[1], at_low)
    errors = cast(Tensor, first.standard_error), cast(Tensor, second.standard_error)
    evidence = Evidence(
        first.difference - second.difference,
        first.draws.minus_draws(second.draws),
        (low - other_high, high - other_low),
        None,
        (errors[0].square() + errors[1].square()).sqrt(),
        margins,
        least_p=math.exp(math.lgamma(1 + n) + math.lgamma(1 + m) - math.lgamma(1 + n + m)),  # of exchanged units
        one_unit=first.one_unit or second.one_unit,
        df=min(n, m) - 1,
    )
    counts = {name: count + other_counts[name] for name, count in counts.items()} | {"test": "bootstrap"}
    return statements(values, evidence, question, counts, message or other_message)


def _of_one(operand: Operand, question: Question) -> tuple[Evidence, dict[str, Any], str]:
    """Return value and draws of one metric as if of its difference to 0, the numbers of its units, and a warning."""
    operands = [operand]
    value, jackknife = operand.values.read(operand.resampled.observed), jackknife_of(operands)
    draws = draw_sets(operands, value, jackknife)
    evidence = Evidence(
        value,
        draws,
        ranges_of(operands),
        None,
        _standard_error(operands, jackknife, draws),
        None if question.rope is None else margin_draws(operands, value, jackknife),
        one_unit=jackknife is not None and jackknife.num_units == 1,
    )
    counts = counts_of(operand.resampled, jackknife)
    return evidence, counts, unit_count_warning(jackknife, draws, counts["groups"] != counts["items"])


def _values_of_both(a: Resampled, b: Resampled) -> tuple[FlatValues, FlatValues]:
    values, others = values_of(a), values_of(b)
    if len(a.weighted) != len(b.weighted):
        raise ValueError(f"replicates: got {len(b.weighted)} for b, wanted {len(a.weighted)} as a has")
    if values.spec != others.spec or [x.shape for x in values.leaves] != [x.shape for x in others.leaves]:
        raise ValueError(SHAPES_DIFFER)
    return values, others


def _standard_error(operands: list[Operand], jackknife: Jackknife | None, draws: DrawSets) -> Tensor:
    # ->  (V,)
    """Return the cluster-robust standard error of means (Liang & Zeger 1986, doi:10.1093/biomet/73.1.13).

    Other values have the standard error of the jackknife; with too many units for both, or for values that are no
    function of sums over units, it is that of the draws.
    """
    if jackknife is None or not all(operand.resampled.is_smooth for operand in operands):
        return draws.first.std(0)
    if not all(operand.resampled.bounds is not None and operand.resampled.bounds.is_mean for operand in operands):
        return jackknife.standard_error
    influences = []
    for resampled, _, sign in operands:
        value_sums, counts = resampled.observed.flatten().tensor_split(2)
        of_units, sizes = cast(Units, resampled.units).rows.flatten(1).tensor_split(2, 1)
        influences.append(sign * (of_units - value_sums / counts * sizes) / counts)
    squares = torch.stack(influences).sum(0).square().sum(0)
    return (squares * (jackknife.num_units / (jackknife.num_units - 1 or torch.nan))).sqrt()


def _check_same_items(a: Resampled, b: Resampled) -> None:
    if "merged" in (a.pairing, b.pairing):
        raise ValueError("ids: got none for items of merged metrics, which have no common order; write ids= in update")
    if not torch.equal(a.items, b.items):
        raise ValueError("a, b: their items differ; feed both with the same ids (or, without ids, the same order)")
    if a.half is not None and b.half is not None and a.observed.shape != b.observed.shape:
        raise ValueError(SHAPES_DIFFER)
    if a.units is not None and b.units is not None and not torch.equal(a.units.ids, b.units.ids):
        raise ValueError("a, b: their items differ; feed both with the same ids and groups")


def _swap_test(operands: list[Operand], half_a: Tensor, half_b: Tensor) -> ExactTest:
    (a, values, _), (b, others, _) = operands
    units = None if a.units is None or b.units is None else (a.units.rows, b.units.rows)
    scale = torch.maximum(values.read(a.observed).abs(), others.read(b.observed).abs())
    of_means = a.bounds is not None and a.bounds.is_mean

    def read_difference(x: Tensor, y: Tensor) -> Tensor:
        return values.read(x) - others.read(y)

    test = swap_test(read_difference, (a.observed, b.observed), units, (half_a, half_b), scale, of_means)
    return test if of_means else _with_binomial(test, operands)


def _with_binomial(test: ExactTest, operands: list[Operand]) -> ExactTest:
    """Return McNemar's test of values that are fractions of items, such as accuracy, though not declared means."""
    fractions = [_fractions(operand.resampled, operand.values) for operand in operands]
    if fractions[0] is None or fractions[1] is None:
        return test
    values_a, values_b = (operand.values.read(cast(Units, operand.resampled.units).rows) for operand in operands)
    applies = fractions[0][2] & fractions[1][2] & (values_a.isnan() == values_b.isnan()).all(0)
    exact = binomial_test((values_a > values_b).sum(0), ((values_a - values_b).abs() > 0).sum(0), 0.5)
    return either(applies, exact, test)


def _pairs_warning(jackknife: Jackknife | None, alternative: str, evidence: Evidence) -> str:
    if jackknife is None:
        return ""
    if jackknife.num_units == 1:
        return "one pair: its spread cannot be known; wanted at least 6 pairs"
    if evidence.test is None:
        return unit_count_warning(jackknife, evidence.draws, False).replace("item", "pair")
    return swap_count_warning(jackknife.num_units, "pair", alternative)


def comparisons_with(a: Resampled | Joined, reference: float, question: Question) -> Any:
    """Return a `Comparison` of each value of a with the number; its draws are those of the interval of a."""
    if isinstance(a, Joined):
        return a.join([comparisons_with(part, reference, question) for part in a.parts])
    values = values_of(a)
    ranges = ranges_of([Operand(a, values)])
    low, high = (float(end) for end in (ranges[0].min(), ranges[1].max()))
    if not low <= reference <= high:
        hint = "; percent? write a fraction" if (low, high) == (0, 1) and 1 < reference <= 100 else ""
        raise ValueError(
            f"b: got {reference:g}, wanted a number between {low:g} and {high:g}, the bounds of the score{hint}"
        )
    test, is_binomial = _exact_test(a, values, reference)
    if a.signs is not None and reference == 0:
        test, is_binomial = binomial_test(*a.signs, 0.5), True
    of_a, counts, message = _of_one(Operand(a, values), question)
    units, margins = 0 if a.units is None else len(a.units.ids), of_a.margin_draws
    evidence = of_a._replace(
        difference=of_a.difference - reference,
        draws=of_a.draws.minus(reference),
        range=(ranges[0] - reference, ranges[1] - reference),
        test=test,
        margin_draws=None if margins is None else (margins[0] - reference, margins[1] - reference),
        least_p=2.0**-units if units and not is_binomial else 0.0,
    )
    if not message and units and test is not None and not is_binomial:
        unit = "item" if counts["groups"] == counts["items"] else "group"
        message = swap_count_warning(units, unit, question.alternative)
    counts["test"] = "exact binomial" if is_binomial else "bootstrap" if test is None else "random signs"
    return statements(values, evidence, question, counts, message)


def _exact_test(a: Resampled, values: FlatValues, reference: float) -> tuple[ExactTest | None, bool]:
    """Return the binomial test for fractions of items, else that of signs; and whether all values are fractions."""
    signs, fractions = _sign_test(a, values, reference), _fractions(a, values)
    if fractions is None or not 0 <= reference <= 1:
        return signs, False
    successes, trials, applies = fractions
    exact = binomial_test(successes, trials, reference)
    nan = torch.full_like(exact.greater, torch.nan)
    others = signs or ExactTest(nan, nan, ~exact.is_exact)
    return either(applies, exact, others), bool(applies.all())


def _sign_test(a: Resampled, values: FlatValues, reference: float) -> ExactTest | None:
    """Return the test that swaps each unit with one of equal weight in which every item scores the reference."""
    if a.half is None or a.bounds is None or not a.bounds.is_mean:
        return None

    def constant(rows: Tensor) -> Tensor:
        # rows: (..., *shape), 2 V numbers each  ->  the same
        counts = rows.flatten(rows.ndim - a.observed.ndim).tensor_split(2, -1)[1]
        return torch.cat([reference * counts, counts], -1).view(rows.shape)

    units = None if a.units is None else (a.units.rows, constant(a.units.rows))
    scale = values.read(a.observed).abs().clamp(min=abs(reference))
    return swap_test(
        lambda x, y: values.read(x) - values.read(y),
        (a.observed, constant(a.observed)),
        units,
        (a.half, constant(a.half)),
        scale,
        of_means=True,
    )


def _fractions(a: Resampled, values: FlatValues) -> tuple[Tensor, Tensor, Tensor] | None:
    # ->  successes, trials and whether the value is their ratio, (V,) each
    """Count the items of value 1 and all items that have a value, where a value is the fraction of the former.

    Adding one more item distinguishes such a fraction from other values, such as F1 where all items are right.
    """
    if a.units is None or a.bounds is None or not bool((a.units.sizes == 1).all()):
        return None
    unit_values = values.read(a.units.rows)
    is_scored = ~unit_values.isnan()
    successes, trials = unit_values.nan_to_num(0).sum(0), is_scored.sum(0).double()
    worst, best = (end.to(a.observed).expand_as(a.observed) for end in a.bounds[:2])
    applies = ((unit_values == 0) | (unit_values == 1) | ~is_scored).all(0)
    for added, right, more in ((0 * worst, 0, 0), (worst, 0, 1), (best, 1, 1)):
        fraction = (successes + right) / (trials + more)
        applies = applies & ((values.read(a.observed + added) - fraction).abs() <= TOLERANCE)
    return successes, trials, applies
