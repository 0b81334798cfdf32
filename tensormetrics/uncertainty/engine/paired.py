"""Comparisons of two metrics on the same items: interval, p-value and probability as one statement."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_unflatten

from .draws import Jackknife
from .errors import UncertaintyWarning
from .estimates import Comparison
from .intervals import Operand, counts_of, draw_sets, jackknife_of, ranges_of, read_operands
from .resampling import Joined, Resampled, Values, values_of
from .swaps import SwapTest, swap_test

FEW_PAIRS = 5  # up to so many pairs no swap test reaches .05


def comparisons(
    a: Resampled | Joined,
    b: Resampled | Joined,
    confidence: float,
    rope: float | None,
    better: Callable[[str], int],
) -> Any:
    # better: of a name, -1 where less is better
    """Return a `Comparison` for each value of a and b, whose replicates have the same weights."""
    if isinstance(a, Joined) or isinstance(b, Joined):
        if not (isinstance(a, Joined) and isinstance(b, Joined) and len(a.parts) == len(b.parts)):
            raise ValueError("a, b: their results differ in shape; wanted equal options and the same classes")
        pairs = zip(a.parts, b.parts, strict=True)
        return a.join([comparisons(x, y, confidence, rope, better) for x, y in pairs])
    _check_comparable(a, b)
    values, others = values_of(a), values_of(b)
    if values.spec != others.spec or [x.shape for x in values.leaves] != [x.shape for x in others.leaves]:
        raise ValueError("a, b: their results differ in shape; wanted equal options and the same classes")
    operands = [Operand(a, values), Operand(b, others, -1.0)]
    difference, jackknife = read_operands(operands, lambda operand: operand.resampled.observed), jackknife_of(operands)
    names = _names(values)
    direction = torch.cat([
        torch.full((leaf.numel(),), float(better(name)), dtype=torch.float64, device="cpu")
        for name, leaf in zip(names, values.leaves, strict=True)
    ]).to(difference)  # fmt: skip
    draws = draw_sets(operands, difference, jackknife)
    low, high = draws.interval(confidence)
    differs = None if a.units is None or b.units is None else (a.units.rows != b.units.rows).flatten(1).any(1)
    is_equal = differs is not None and a.half is not None and not bool(differs.any())
    sets = [draws.first, draws.second.where(draws.has_second, draws.first)]
    p_draws, p_better = _fractions(sets, direction, is_equal)
    p_value, mid_p = p_draws, torch.zeros_like(p_draws)
    if a.half is not None and b.half is not None:
        test = _swap_test(operands, a.half, b.half)
        p_value, mid_p = torch.maximum(test.p_value, p_draws), test.mid_p
    if jackknife is not None and jackknife.num_units == 1:
        low, high = (end.expand_as(difference) for end in ranges_of(operands))
        p_value, p_better = torch.ones_like(difference), torch.full_like(difference, 0.5)
    p_better = p_better.clamp(mid_p / 2, 1 - mid_p / 2)
    low, high = _consistent(torch.fmin(low, difference), torch.fmax(high, difference), p_value, confidence)
    p_rope = torch.full_like(difference, torch.nan)
    if rope is not None:
        fractions = [(draw.abs() <= rope).double().sum(0) / draw.isnan().logical_not().sum(0) for draw in sets]
        p_rope = torch.minimum(*fractions)
    counts = counts_of(a, jackknife) | {"discordant": None if differs is None else int(differs.sum())}
    if message := _pairs_warning(counts, jackknife):
        warnings.warn(message, UncertaintyWarning, stacklevel=3)
    columns = [difference, low, high, p_value, p_better, p_rope]
    columns = [columns[0], *(column.where(difference.isfinite(), torch.nan) for column in columns[1:])]
    return values.restored(columns, lambda *tensors: Comparison(*tensors, confidence=confidence, **counts, rope=rope))


def _check_comparable(a: Resampled, b: Resampled) -> None:
    if not torch.equal(a.items, b.items):
        raise ValueError("a, b: their items differ; feed both with the same ids (or, without ids, the same order)")
    is_swapped = a.half is not None and b.half is not None
    if len(a.weighted) != len(b.weighted) or (is_swapped and a.observed.shape != b.observed.shape):
        raise ValueError("a, b: their results differ in shape; wanted equal options and the same classes")
    if a.units is not None and b.units is not None and not torch.equal(a.units.ids, b.units.ids):
        raise ValueError("a, b: their items differ; feed both with the same ids and groups")


def _fractions(sets: list[Tensor], direction: Tensor, is_equal: bool) -> tuple[Tensor, Tensor]:
    # sets: (R, V) each  direction: (V,)  ->  two-sided p-value and probability that a is better, (V,) each
    """Read both off the set that is nearer to 1/2; nothing is known where the sets disagree on the sign."""
    fractions, p_values = [], []
    for draws in sets:
        oriented = direction * draws
        count = oriented.isnan().logical_not().sum(0)
        above, equal = (oriented > 0).sum(0).double(), (oriented == 0).sum(0).double()
        fractions.append((above + equal / 2) / count)
        tails = torch.minimum(1 + above + equal, 1 + count - above) / (1 + count)
        p_values.append((2 * tails).clamp(max=1))
    half = torch.full_like(fractions[0], 0.5)
    if is_equal:
        return torch.ones_like(half), half
    agree = (fractions[0] - 0.5) * (fractions[1] - 0.5) > 0
    first, second = fractions
    nearer = torch.where((first - 0.5).abs() <= (second - 0.5).abs(), first, second)
    return torch.maximum(p_values[0], p_values[1]).where(agree, 1.0), nearer.where(agree, half)


def _swap_test(operands: list[Operand], half_a: Tensor, half_b: Tensor) -> SwapTest:
    (a, values, _), (b, others, _) = operands
    units = None if a.units is None or b.units is None else (a.units.rows, b.units.rows)
    scale = torch.maximum(values.read(a.observed).abs(), others.read(b.observed).abs())
    of_means = a.bounds is not None and a.bounds.is_mean

    def read_difference(x: Tensor, y: Tensor) -> Tensor:
        return values.read(x) - others.read(y)

    return swap_test(read_difference, (a.observed, b.observed), units, (half_a, half_b), scale, of_means)


def _consistent(low: Tensor, high: Tensor, p_value: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    # (V,) each
    """Move the end nearer to 0 so that the interval excludes 0 exactly where p_value <= 1 - confidence."""
    tiny = torch.finfo(low.dtype).tiny
    is_significant = p_value <= 1 - confidence
    low, high = (
        torch.where(~is_significant & (low > 0), 0.0, low),
        torch.where(~is_significant & (high < 0), 0.0, high),
    )
    holds = is_significant & (low <= 0) & (high >= 0)
    is_above = low.abs() <= high.abs()
    return torch.where(holds & is_above, tiny, low), torch.where(holds & ~is_above, -tiny, high)


def _names(values: Values) -> list[str]:
    leaves = tree_unflatten([str(i) for i in range(len(values.leaves))], values.spec)
    return list(leaves) if isinstance(leaves, dict) else [""] * len(values.leaves)


def _pairs_warning(counts: dict[str, Any], jackknife: Jackknife | None) -> str:
    pairs = None if jackknife is None else jackknife.num_units
    if pairs == 1:
        return "one pair: its spread cannot be known; wanted at least 6 pairs"
    if pairs is not None and pairs <= FEW_PAIRS:
        least = f"2^(1-{pairs}) = {2.0 ** (1 - pairs):.4g}"
        return f"{pairs} pairs: no p-value below {least} exists, so that a 95 % interval always holds 0"
    return ""
