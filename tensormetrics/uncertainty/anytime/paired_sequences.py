"""Differences of scores with an interval and a p-value that hold at every number of items at once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...core.results.estimates import Comparison
from ..item_scores.item_scores import Scores
from ..pairs.metric_pairs import Options
from ..pairs.paired_scores import common_bounds, mixes_names, paired_items
from .sequences import (
    Bets,
    UnitScores,
    bounds_of,
    check_complete,
    check_looks,
    estimate_of,
    last_positions,
    units_in_order,
)


def compare_sequences(
    models: dict[str, Scores], reference: float | None, options: Options, on_missing: str, looks: Sequence[int] | None
) -> Comparison:
    """Compare two models item by item, or one with a number; items are in the order of the first model."""
    options.question(bool)  # checks the options
    first, *others = models.values()
    if others and others[0].shape != first.shape:
        raise ValueError(
            f"b: got scores {(*others[0].shape, len(others[0]))}, wanted {(*first.shape, len(first))} as a has"
        )
    items, details = paired_items(models, on_missing)
    for scores in models.values():
        bounds_of(scores)
    low, high = common_bounds(models, items.values)
    if reference is not None and not low < reference < high:
        raise ValueError(f"b: got {reference}, wanted a number between the bounds {low} and {high}")
    positions = last_positions(first, items, mixes_names(models))
    check_complete(models.values(), items, positions, looks)
    units = units_in_order(items, positions)
    counts, is_path = check_looks(looks, units)
    parts = units.values.split(len(units.values) // len(models))
    estimates = [
        estimate_of(units._replace(values=part), scores, (low, high), options.confidence, counts, is_path)
        for part, scores in zip(parts, models.values(), strict=True)
    ]
    if reference is None:
        differences, ends = parts[0] - parts[1], (low - high, high - low)
    else:
        differences, ends = parts[0] - reference, (low - reference, high - reference)
    shape = (*first.shape, len(counts)) if is_path else first.shape
    columns = _columns(units._replace(values=differences), ends, options, counts)
    difference, low_end, high_end, p_value = (column.reshape(shape) for column in columns)
    unknown = torch.full_like(difference, torch.nan)
    return Comparison(
        difference,
        low_end,
        high_end,
        p_value,
        unknown,
        unknown,
        confidence=options.confidence,
        alternative=options.alternative,
        items=units.items,
        groups=units.values.shape[1],
        effective_groups=float(units.values.shape[1]),
        discordant=None if reference is not None else int((differences != 0).any(0).sum()),
        test="anytime",
        a=estimates[0],
        b=estimates[1] if reference is None else None,
        higher_is_better=first.higher_is_better,
        rope=options.rope,
        name=first.name,
        labels=estimates[0].labels,
        details=details,
    )


def _columns(
    differences: UnitScores, ends: tuple[float, float], options: Options, looks: list[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # ->  (V, L) each: difference, low, high and p-value
    lowest, highest = ends
    is_two_sided = options.alternative == "two-sided"
    # One-sided, a bound has the confidence that two ends of a narrower interval have together.
    confidence = options.confidence if is_two_sided else 2 * options.confidence - 1
    bets = Bets.of(differences.rescaled(lowest, highest), confidence)
    null = -lowest / (highest - lowest)
    low, high = (
        lowest + (highest - lowest) * torch.stack(end, -1)
        for end in zip(*(bets.interval(look) for look in looks), strict=True)
    )
    above, below = (torch.stack(p, -1) for p in zip(*(bets.p_values(null, look) for look in looks), strict=True))
    tiny, level = torch.finfo(low.dtype).tiny, (1 - confidence) / 2
    low = torch.where(above <= level, low.clamp(min=tiny), low.clamp(max=0))  # for rounding: p-values decide
    high = torch.where(below <= level, high.clamp(max=-tiny), high.clamp(min=0))
    if options.alternative == "greater":
        p_value, high = above, torch.full_like(high, highest)
    elif options.alternative == "less":
        p_value, low = below, torch.full_like(low, lowest)
    else:
        p_value = (2 * torch.minimum(above, below)).clamp(max=1)
    return differences.running_means(looks), low, high, p_value
