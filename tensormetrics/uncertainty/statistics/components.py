"""Variance components of repeated scores of items: variance between items, repeats and seeds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import array_as_tensor
from ...core.numbers.exact_sums import index_add
from ...core.numbers.student import t_upper_quantile
from ...core.resampling.units import numbered
from ...core.resampling.weights import units
from ...core.results.estimates import Estimate, check_confidence

Names = Tensor | Sequence[Hashable]


@dataclass(frozen=True, eq=False)
class VarianceComponents:
    """Variance components of the mean over items and repeats, see `variance_components`.

    Args:
        value: The mean.
        items: Variance between items; a negative estimate is reported as it is.
        within: Variance between repeats of an item; None of a crossed table.
        seeds: Variance between seeds that all items share; None of nested repeats.
        residual: Residual variance of a crossed table: that of items from seed to seed.
        icc: Intraclass correlation, the fraction of the variance that lies between items.
        df: Degrees of freedom of the standard error of the mean.
        num_items: Number of items.
        num_repeats: Number of repeats of each item, the harmonic mean where they differ.

    Shape:
        - all: ``(...)``, float64
    """

    value: Tensor
    items: Tensor
    within: Tensor | None
    seeds: Tensor | None
    residual: Tensor | None
    icc: Tensor
    df: Tensor
    num_items: Tensor
    num_repeats: Tensor
    _variance: Tensor

    def se(self, items: float | None = None, repeats: float | None = None) -> Tensor:
        """Return the standard error of the mean, also for other numbers of items and repeats.

        Args:
            items: Number of items; default that of the data.
            repeats: Number of repeats of each item, or of seeds; default that of the data.

        Shape:
            - Output: ``(...)``, float64

        Raises:
            ValueError: If a number is below 1.
        """
        for name, count in (("items", items), ("repeats", repeats)):
            if count is not None:
                checks.check_number(name, count, "a number >= 1", lambda x: x >= 1)
        if items is None and repeats is None:
            return self._variance.sqrt()
        num_items = self.num_items if items is None else items
        num_repeats = self.num_repeats if repeats is None else repeats
        return _variance_of_mean(self.parts, num_items, num_repeats).sqrt()

    @property
    def parts(self) -> dict[str, Tensor]:
        """Variances by name."""
        parts = {"items": self.items, "within": self.within, "seeds": self.seeds, "residual": self.residual}
        return {name: part for name, part in parts.items() if part is not None}

    def interval(self, *, confidence: float = 0.95) -> Estimate:
        """Return the mean of a crossed table with its t interval (Satterthwaite 1946), for other items and seeds.

        The interval of nested repeats is that of the means of items, ``interval(scores, ids=ids)``.

        Args:
            confidence: Mass of the interval, in (0, 1).

        Raises:
            ValueError: If repeats are nested, or `confidence` is out of range.
        """
        confidence = check_confidence(confidence)
        if self.within is not None:
            raise ValueError("repeats: got nested ones, whose means hold the variance; write interval(scores, ids=ids)")
        quantile = t_upper_quantile((1 - confidence) / 2, self.df)
        half_width = (self.se() * quantile).masked_fill(self._variance == 0, 0)
        ends = self.value - half_width, self.value + half_width
        count, seeds = (int(n.flatten()[0]) if n.numel() else None for n in (self.num_items, self.num_repeats))
        details = {"se": self.se(), "df": self.df, "seeds": seeds}
        return Estimate(
            self.value, *ends, confidence=confidence, items=count, groups=count, method="crossed t", details=details
        )


def variance_components(scores: Any, ids: Names, repeats: Names | None = None) -> VarianceComponents:
    """Split the variance of scores of repeated items, and predict the effect of more items or more repeats.

    Without `repeats`, the repeats of an item are unrelated to those of another (nested: samples of an answer). With
    `repeats` they are seeds or judges that scored every item (crossed): then the error of a seed does not vanish with
    more items. For a comparison of two models, pass the differences of their scores.

    Args:
        scores: Score of each repeat of each item. NaN is a missing score.
        ids: Integer or name of the item of each score.
        repeats: Integer or name of its seed, in a complete table of one score for each item and seed.

    Shape:
        - scores: ``(..., N)``
        - ids, repeats: ``(N,)``

    Returns:
        The mean and its parts. Without an item that has two scores both variances are NaN; without any variance the
        intraclass correlation is.

    Raises:
        ValueError: If there are fewer than two items or seeds, or a score of an item and a seed is missing, or double.

    Example:
        >>> scores = torch.tensor([0.9, 0.7, 0.8, 0.4, 0.2, 0.1, 0.7, 0.6, 0.8, 0.5, 0.3, 0.6])
        >>> parts = variance_components(scores, torch.arange(12) // 3)
        >>> {name: round(float(part), 3) for name, part in parts.parts.items()}
        {'items': 0.059, 'within': 0.017}
        >>> [round(float(se), 3) for se in (parts.se(), parts.se(repeats=9), parts.se(items=16))]
        [0.127, 0.123, 0.063]
        >>> variance_components(scores, torch.arange(12) // 3, torch.arange(12) % 3).interval()
        0.550 [0.160, 0.940], 95 %, 4 items, crossed t, only 4 groups

    References:
        Satterthwaite 1946, doi:10.2307/3002019
        Brennan 2001, doi:10.1007/978-1-4757-3456-0
        Miller 2024, doi:10.48550/arXiv.2411.00640
    """
    scores = checks.as_tensor(array_as_tensor(scores)).double()
    checks.shape("scores", scores, "...", "N")
    count = scores.shape[-1]
    item = numbered(units("ids", array_as_tensor(ids), count, scores.device))
    num_items = item.amax() + 1 if count else item.sum()
    if repeats is None:
        if int(num_items) < 2:
            raise ValueError(f"ids: got {int(num_items)} items, wanted at least 2")
        return _nested(scores, item)
    seed = numbered(units("repeats", array_as_tensor(repeats), count, scores.device))
    num_seeds = seed.amax() + 1 if count else seed.sum()
    cells = (item * count + seed).sort().values
    is_double, is_missing = (cells[1:] == cells[:-1]).any(), scores.isnan().any()
    item_count, seed_count, double, missing = torch.stack([num_items, num_seeds, is_double, is_missing]).tolist()
    if item_count < 2 or seed_count < 2:
        raise ValueError(f"ids, repeats: got {item_count} items and {seed_count} seeds, wanted at least 2 of each")
    if double or missing or item_count * seed_count != count:
        raise ValueError(_cell_message(scores, item, seed, ids, repeats))
    return _crossed(scores, item, seed, item_count, seed_count)


def _sums(scores: Tensor, index: Tensor) -> Tensor:
    # scores: (..., N)  index: (N,)  ->  (..., N), the sum of item i at position i
    return index_add(torch.zeros_like(scores), -1, index, scores)


def _nested(scores: Tensor, item: Tensor) -> VarianceComponents:
    is_scored = (~scores.isnan()).double()
    # Subtracting the largest score makes the variance of equal scores exactly 0.
    shift = scores.masked_fill(is_scored == 0, -torch.inf).amax(-1, keepdim=True)
    scores = (scores - shift).where(is_scored > 0, 0)
    repeats = _sums(is_scored, item)
    means = _sums(scores, item) / repeats  # NaN where there is no item
    has_score = (repeats > 0).double()
    count = has_score.sum(-1)
    value = means.where(repeats > 0, 0).sum(-1) / count
    deviations = (means - value[..., None]).where(repeats > 0, 0)
    variance = deviations.square().sum(-1) / (count - 1)
    squares = ((scores - means[..., item]).square()).where(is_scored > 0, 0).sum(-1)
    within = squares / (is_scored.sum(-1) - count)
    inverse = (has_score / repeats).nan_to_num(0).sum(-1) / count
    items = variance - within * inverse
    return VarianceComponents(
        value + shift[..., 0],
        items,
        within,
        None,
        None,
        items / (items + within),
        count - 1,
        count,
        1 / inverse,
        variance / count,
    )


def _crossed(scores: Tensor, item: Tensor, seed: Tensor, num_items: int, num_seeds: int) -> VarianceComponents:
    shift = scores[..., :1]  # equal scores have no variance at all
    scores = scores - shift
    mean = scores.mean(-1, keepdim=True)
    of_items = _sums(scores, item)[..., item] / num_seeds - mean  # (..., N)
    of_seeds = _sums(scores, seed)[..., seed] / num_items - mean
    df = num_items - 1, num_seeds - 1, (num_items - 1) * (num_seeds - 1)
    parts = of_items, of_seeds, scores - mean - of_items - of_seeds
    of_item, of_seed, residual = (part.square().sum(-1) / free for part, free in zip(parts, df, strict=True))
    items, seeds = (of_item - residual) / num_seeds, (of_seed - residual) / num_items
    like = torch.ones_like(residual)
    components = {"items": items, "seeds": seeds, "residual": residual}
    variance = _variance_of_mean(components, num_items, num_seeds)
    # A negative part is left out, and with it its mean square; the residual is subtracted once for both.
    has_items, has_seeds = (items >= 0).double(), (seeds >= 0).double()
    terms = torch.stack([has_items * of_item, has_seeds * of_seed, (1 - has_items - has_seeds) * residual])
    per_term = like.new_tensor(df).view(-1, *[1] * like.ndim)
    free = terms.sum(0).square() / (terms.square() / per_term).sum(0)
    total = items + seeds + residual
    return VarianceComponents(
        (mean + shift)[..., 0],
        items,
        None,
        seeds,
        residual,
        items / total,
        free,
        like * num_items,
        like * num_seeds,
        variance,
    )


def _variance_of_mean(parts: dict[str, Tensor], num_items: Any, num_repeats: Any) -> Tensor:
    of_items = parts["items"].clamp(min=0) / num_items
    rest = parts["within"] if "within" in parts else parts["residual"]
    of_seeds = parts["seeds"].clamp(min=0) / num_repeats if "seeds" in parts else 0
    return of_items + of_seeds + rest / (num_items * num_repeats)


def _cell_message(scores: Tensor, item: Tensor, seed: Tensor, ids: Names, repeats: Names) -> str:
    counts = torch.zeros(int(item.max()) + 1, int(seed.max()) + 1, dtype=torch.int64, device=item.device)
    is_scored = ~scores.reshape(-1, len(item)).isnan().any(0)
    counts.index_put_((item, seed), is_scored.long(), accumulate=True)
    row, column = (counts != 1).nonzero()[0].tolist()
    first, second = _name_at(ids, item == row), _name_at(repeats, seed == column)
    got = "none" if counts[row, column] == 0 else f"{int(counts[row, column])} scores"
    return f"repeats: got {got} for the item {first!r} and the repeat {second!r}, wanted one for each item and repeat"


def _name_at(names: Names, is_there: Tensor) -> Any:
    name = names[int(is_there.long().argmax())]
    return name.item() if hasattr(name, "item") else name
