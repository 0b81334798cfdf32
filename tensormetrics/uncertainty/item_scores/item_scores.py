"""`Scores`: scores of items that were computed elsewhere, with ids that pair them with another model's scores."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.resampling import intervals
from ...core.resampling.means import UNBOUNDED, resampled_means
from ...core.resampling.resampling import Resampled
from ...core.resampling.weights import ItemNames, check_draws, sums_by_item, units
from ...core.results.estimates import Estimate, check_confidence

Ids = Tensor | Sequence[Hashable]


class ItemScores(NamedTuple):
    """Scores of distinct items; repeats of an item are averaged."""

    values: Tensor  # (I, V) float64, NaN where an item has no score
    ids: Tensor | None  # (I,) int64; None: positions
    groups: Tensor | None  # (I,) int64
    weights: Tensor | None = None  # (I,) float64

    def scored(self) -> "ItemScores":
        """Return the items that have a score."""
        return self.selected(self.values.isnan().logical_not().any(1))

    def selected(self, is_selected: Tensor) -> "ItemScores":
        # is_selected: (I,) bool
        columns = self.values, self.names().ids, self.groups, self.weights
        values, *others = (None if column is None else column[is_selected] for column in columns)
        return ItemScores(cast(Tensor, values), *others)

    def means(self) -> Tensor:
        # ->  (V,)
        if self.weights is None:
            return self.values.nanmean(0)
        weights = self.weights[:, None] * self.values.isnan().logical_not()
        return (weights * self.values.nan_to_num(0)).sum(0) / weights.sum(0)

    def names(self) -> ItemNames:
        ids = torch.arange(len(self.values), device=self.values.device) if self.ids is None else self.ids
        return ItemNames(ids, self.groups)


class Scores:
    """Scores of items that exist already: in an array, a column of a table, a dictionary or a file.

    `interval` and `compare` take what the constructor takes, and tables and paths.

    Args:
        scores: Tensor, array, list or Series of scores, or a dictionary of them by id. NaN and None are missing scores.
        ids: Names or integers of the items, by which scores of two models are paired. Scores of equal ids are repeats:
            an item's score is their mean.
        groups: Names or integers of what items belong to, such as documents, or a dictionary of them by id: items of
            one group share a weight.
        repeats: Which repeat of its item each score is, such as the epoch or seed; kept, not computed with.
        weights: Importance of the items, numbers above 0, such as those of a survey: the mean is weighted. Repeats of
            an item weigh the mean of theirs.
        bounds: Least and largest possible score. By default 0 and 1 if all scores are 0 or 1, else unknown.
        higher_is_better: Direction of the scores.
        name: Name of the scores.

    Shape:
        - scores: ``(..., N)``; leading dimensions are several scores of the same items
        - ids, groups, repeats, weights: ``(N,)``

    Raises:
        ValueError: If there are no scores, one is infinite or out of bounds, or lengths differ.
        TypeError: If the scores are no numbers.

    Example:
        >>> scores = Scores({"q1": 1, "q2": 0, "q3": 1, "q4": 1, "q5": 1}, name="exact match")
        >>> scores
        Scores(exact match=0.8, items=5)
        >>> print(scores.interval())
        0.800 [0.294, 1.000]
    """

    def __init__(
        self,
        scores: Any,
        ids: Ids | None = None,
        groups: Ids | Mapping[Hashable, Hashable] | None = None,
        repeats: Ids | None = None,
        *,
        weights: Any = None,
        bounds: tuple[float, float] | None = None,
        higher_is_better: bool = True,
        name: str | None = None,
    ) -> None:
        if isinstance(scores, Mapping):
            if ids is not None:
                raise ValueError("ids: got some beside a dictionary, whose keys they are")
            ids, scores = list(scores), list(scores.values())
        self.index: Any = scores.index if hasattr(scores, "iloc") and ids is None else None  # of a Series
        self.scores = _numbers(scores)
        count = self.scores.shape[-1]
        self.ids = None if ids is None else _names("ids", ids, count)
        if isinstance(groups, Mapping):
            if self.ids is None:
                raise ValueError("groups: got a dictionary for scores without ids; write ids=")
            if missing := [name for name in as_list(self.ids) if name not in groups]:
                raise ValueError(f"groups: got none for the id {missing[0]!r}; wanted a group for each id")
            groups = [groups[name] for name in as_list(self.ids)]
        self.groups = None if groups is None else _names("groups", groups, count)
        self.repeats = None if repeats is None else _names("repeats", repeats, count)
        self.weights = None if weights is None else _weights(weights, self.scores)
        self.bounds = _bounds(self.scores, bounds)
        self.higher_is_better = higher_is_better
        self.name = name or "score"
        self.hashes: dict[Hashable, str] = {}  # id -> digest of the item's document, where a log has one

    def __len__(self) -> int:
        return self.scores.shape[-1]

    def __repr__(self) -> str:
        items = self._items()
        mean = f"={float(items.means()):.4g}" if self.scores.ndim == 1 else f" {(*self.scores.shape[:-1],)}"
        missing = f", missing={self.missing}" if self.missing else ""
        return f"Scores({self.name}{mean}, items={len(items.values)}{missing})"

    def replaced(
        self,
        *,
        bounds: tuple[float, float] | None = None,
        higher_is_better: bool | None = None,
        name: str | None = None,
    ) -> "Scores":
        """Return the same scores with other bounds, another direction or another name."""
        options = {"bounds": bounds, "higher_is_better": higher_is_better, "name": name}
        return self._with(self.scores, **{key: option for key, option in options.items() if option is not None})

    def selected(self, index: Any) -> "Scores":
        # index: (n,) integer
        """Return the scores of some rows."""
        columns = self.ids, self.groups, self.repeats
        picked = [column if column is None else [column[i] for i in index] for column in columns]
        names = [torch.stack(x) if x and isinstance(x[0], Tensor) else x for x in picked]
        weights = None if self.weights is None else self.weights[index]
        return self._with(self.scores[..., index], *names, weights=weights)

    def _with(self, scores: Tensor, *columns: Any, **options: Any) -> "Scores":
        columns = columns or (self.ids, self.groups, self.repeats)
        names = ("weights", "bounds", "higher_is_better", "name")
        fields = {name: getattr(self, name) for name in names} | options
        scored = Scores(scores, *columns, **fields)
        scored.hashes, scored.index = self.hashes, self.index if len(scored) == len(self) else None
        return scored

    @property
    def shape(self) -> torch.Size:
        """Shape of the mean, `(...)`."""
        return self.scores.shape[:-1]

    @property
    def missing(self) -> int:
        """Number of scores that are missing."""
        return int(self.scores.isnan().sum())

    def interval(self, *, confidence: float = 0.95, replicates: int | None = None, seed: int | None = None) -> Estimate:
        """Return the mean over the items with an interval; see `tensormetrics.interval`.

        Args:
            confidence: Mass of the interval, in (0, 1).
            replicates: Number of random draws, by default 1000.
            seed: Seed of the draws, by default 0; they depend on it and on the ids alone.

        Returns:
            An `Estimate`; the number of scores that are missing is in `details`.

        Raises:
            ValueError: If an option is out of range.
        """
        return self._estimates(self._resampled("interval", replicates, seed), check_confidence(confidence))

    def _estimates(self, resampled: Resampled, confidence: float) -> Estimate:
        estimate = intervals.interval(resampled, confidence)
        estimate.details["missing"] = self.missing
        return intervals.with_values(estimate, self.shaped(self._items().means()), self.name)

    def shaped(self, values: Tensor) -> Tensor:
        # (..., V)  ->  (..., *shape)
        return values.reshape((*values.shape[:-1], *self.shape))

    def _direction(self, name: str) -> bool:
        return self.higher_is_better

    def _resampled(self, method: str, replicates: int | None = None, seed: int | None = None) -> Resampled:
        items = self._items().scored()
        means = resampled_means(
            items.values, items.names(), *check_draws(replicates, seed), self.bounds or UNBOUNDED, weights=items.weights
        )
        return means.take(read=self.shaped)

    def id_numbers(self, as_texts: bool = False) -> Tensor:
        # ->  (N,) int64
        """Return the id of each score's item as an integer; `as_texts` treats integer ids as texts."""
        ids = [*map(str, as_list(cast(Ids, self.ids)))] if as_texts else self.ids
        return units("ids", ids, len(self), self.scores.device)

    def _items(self, as_texts: bool = False) -> ItemScores:
        """Return the items with their ids as integers; `as_texts` treats integer ids as texts."""
        values = self.scores.reshape(-1, len(self)).T
        groups = None if self.groups is None else units("groups", self.groups, len(self), values.device)
        if self.ids is None:
            return ItemScores(values, None, groups, self.weights)
        item_ids = self.id_numbers(as_texts)
        if len(item_ids.unique()) == len(item_ids):
            return ItemScores(values, item_ids, groups, self.weights)
        if self.weights is not None:
            values = torch.cat([values, self.weights[:, None]], 1)
        rows = torch.cat([values.nan_to_num(0), values.isfinite().double()], 1)
        sums, names = sums_by_item(rows, ItemNames(item_ids, groups))
        value_sums, counts = sums.chunk(2, 1)
        means = value_sums / counts
        if self.weights is None:
            return ItemScores(means, names.ids, names.groups)
        return ItemScores(means[:, :-1], names.ids, names.groups, means[:, -1])


def _numbers(scores: Any) -> Tensor:
    # ->  (..., N) float64, NaN where there is no score
    expected = "a tensor, an array, a list or a Series of numbers, or a dictionary of them by id"
    if isinstance(scores, str | bytes) or not isinstance(scores, Tensor | Sequence) and not is_array(scores):
        raise TypeError(f"scores: got a {type(scores).__name__}, wanted {expected}")
    try:
        tensor = _tensor_of(scores)
    except (TypeError, ValueError) as error:
        raise TypeError(f"scores: got a value that is no number ({error}), wanted {expected}") from None
    if tensor.ndim == 0:
        raise ValueError("scores: got a single number, wanted a score for each item")
    if tensor.is_complex():
        raise TypeError(f"scores: got {tensor.dtype}, wanted {expected}")
    tensor = tensor.double()
    if bool(tensor.isinf().any()):
        raise ValueError("scores: got infinite ones, wanted finite numbers, or NaN for a missing score")
    if not bool(tensor.isfinite().any()):
        got = f"{tensor.numel()} scores that are all missing" if tensor.numel() else "none"
        raise ValueError(f"scores: got {got}, wanted at least one")
    return tensor


def is_array(data: Any) -> bool:
    return any(hasattr(data, name) for name in ("__array__", "__cuda_array_interface__", "__dlpack__"))


def _tensor_of(data: Any) -> Tensor:
    data = checks.array_as_tensor(data)
    if isinstance(data, Tensor):
        return data.detach()
    if hasattr(data, "iloc"):  # of pandas, whose missing integers are objects
        data = data.to_numpy(dtype="float64", na_value=np.nan)
    array = np.asarray(data)
    if array.dtype.kind in "USMmc":
        raise TypeError(f"an array of {array.dtype}")
    if array.dtype == object and any(isinstance(x, str) for x in array.flat):
        raise TypeError("a text")
    return torch.from_numpy(array.astype(np.float64))


def _weights(weights: Any, scores: Tensor) -> Tensor:
    # scores: (..., N)  ->  (N,) float64
    weights = _tensor_of(weights).to(scores)
    checks.shape("weights", weights, scores.shape[-1])
    if not bool((weights.isfinite() & (weights > 0)).all()):
        raise ValueError(f"weights: got from {weights.min():g} to {weights.max():g}, wanted finite numbers above 0")
    return weights


def _bounds(scores: Tensor, bounds: tuple[float, float] | None) -> tuple[float, float] | None:
    scored = scores[~scores.isnan()]
    if bounds is None:
        return (0.0, 1.0) if bool(((scored == 0) | (scored == 1)).all()) else None
    low, high = bounds
    if not low < high:
        raise ValueError(f"bounds: got {bounds}, wanted two numbers, the smaller one first")
    outside = scored[(scored < low) | (scored > high)]
    if len(outside):
        raise ValueError(f"scores: got {float(outside[0])}, wanted scores within the bounds {low} and {high}")
    return float(low), float(high)


def as_list(names: Ids) -> list[Any]:
    return names.tolist() if isinstance(names, Tensor) else list(names)


def _names(name: str, names: Any, count: int) -> Ids:
    """Return names of items as a tensor of integers, or else as texts."""
    if isinstance(names, str) or not (isinstance(names, Sequence) or is_array(names)):
        raise TypeError(f"{name}: got a {type(names).__name__}, wanted a tensor of integers or a list of names")
    if isinstance(names, Tensor):
        checks.integral(name, names)
        names = names.detach()
    else:
        array = np.asarray(names) if not isinstance(names, Sequence) else None
        values = list(names) if array is None else array.tolist()
        if any(value is None or value != value for value in values):
            raise ValueError(f"{name}: got a missing one, wanted a name or an integer for each score")
        is_integer = all(isinstance(value, int | np.integer) and not isinstance(value, bool) for value in values)
        names = torch.tensor(values, dtype=torch.int64, device="cpu") if is_integer else [*map(str, values)]
    if len(names) != count or (isinstance(names, Tensor) and names.ndim != 1):
        raise ValueError(f"{name}: got {len(names)}, wanted {count}, one for each score")
    return names
