"""Scores of several models, paired by item and compared all at once."""

import dataclasses
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.resampling import intervals
from ...core.resampling.errors import UncertaintyWarning
from ...core.resampling.families import MEMBER
from ...core.resampling.means import UNBOUNDED, Means, resampled_means
from ...core.resampling.paired import comparisons
from ...core.resampling.weights import check_draws
from ...core.results.estimates import Comparison
from ..item_scores.item_scores import ItemScores, Scores
from .metric_pairs import Options, SampledMetric, compare_sampled

ON_MISSING = "error", "drop", "zero"
UNKNOWN_GROUP = torch.iinfo(torch.int64).min
CHUNK = 2**18  # numbers of a chunk of pairs, in each of some twenty tensors


class PairedScores(NamedTuple):
    """Scores of models on the same items, with replicates under the same weights."""

    models: dict[str, Scores]
    means: Means
    estimates: list[Any]  # of each model
    details: dict[str, Any]

    @classmethod
    def of(cls, models: dict[str, Scores], options: Options, on_missing: str) -> "PairedScores":
        """Pair the items by id, or by position where no model has ids, and draw the replicates once for all."""
        items, details = paired_items(models, on_missing)
        bounds = common_bounds(models, items.values)
        means = resampled_means(items.values, items.names(), *check_draws(options.replicates, options.seed), bounds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UncertaintyWarning)  # the comparison warns instead
            estimate = intervals.interval(means.take(), options.confidence)
        estimate = intervals.with_values(estimate, items.values.nanmean(0))
        estimates = [
            dataclasses.replace(
                estimate._map(lambda tensor, part=part, scores=scores: scores.shaped(tensor[part])),
                name=scores.name,
                details=dict(estimate.details),
            )
            for scores, part in zip(models.values(), _columns(models), strict=True)
        ]
        return cls(models, means, estimates, details)

    def samples(self) -> Iterator[SampledMetric]:
        """Yield each model with its replicates."""
        parts = _columns(self.models)
        for scores, estimate, part in zip(self.models.values(), self.estimates, parts, strict=True):
            yield SampledMetric(scores, self.means.take(part, scores.shaped), estimate)

    def compared_with(self, reference: float, options: Options) -> Comparison:
        """Compare the only model with a number."""
        (sample,) = self.samples()
        return self._with_details(compare_sampled(sample, SampledMetric(reference, None, None), options))

    def compared(self, options: Options) -> Comparison:
        """Compare two models, of one or more scores part."""
        a, b = self.models.values()
        if a.shape != b.shape:
            raise ValueError(f"b: got scores {(*b.shape, len(b))}, wanted {(*a.shape, len(a))} as a has")
        first, second = self.samples()
        return self._with_details(compare_sampled(first, second, options))

    def _with_details(self, comparison: Comparison) -> Comparison:
        return dataclasses.replace(comparison, details=comparison.details | self.details)

    def pairs(self, pairs: Sequence[tuple[str, str]], options: Options) -> Iterator[Comparison]:
        """Yield the comparison of each pair of models that have one score; all pairs share the tensor operations."""
        positions = {name: i for i, name in enumerate(self.models)}
        index = torch.tensor([[positions[a], positions[b]] for a, b in pairs], device=self.means.sums.observed.device)
        first = next(iter(self.models.values()))
        question, units = options.question(first._direction), self.means.sums.units
        longest = max(len(self.means.sums.weighted), 1 if units is None else len(units.ids))
        for chunk in index.split(max(CHUNK // longest, 1)):
            a, b = (self.means.take(column) for column in chunk.unbind(1))
            yield from self._single(comparisons(a, b, question), _discordant(a, b), chunk.tolist(), first)

    def _single(
        self, result: Comparison, discordant: list[Any], pairs: list[list[int]], first: Scores
    ) -> Iterator[Comparison]:
        tensor_names = [
            name for name in (*Comparison.tensors, *Comparison.optional) if getattr(result, name) is not None
        ]
        tensors = zip(*(getattr(result, name).unbind() for name in tensor_names), strict=True)
        names = {field.name for field in dataclasses.fields(result)} - {*tensor_names}
        fields = {name: getattr(result, name) for name in names}
        fields |= {"name": first.name, "higher_is_better": first.higher_is_better}
        family = result.details[MEMBER]
        for i, (values, count, (a, b)) in enumerate(zip(tensors, discordant, pairs, strict=True)):
            details = self.details | {MEMBER: family.take(i)}
            pair_fields = {"a": self.estimates[a], "b": self.estimates[b], "discordant": count, "details": details}
            yield Comparison(**{**fields, **dict(zip(tensor_names, values, strict=True)), **pair_fields})


def _discordant(a: Any, b: Any) -> list[int | None]:
    """Return the number of units on which the models of each pair differ."""
    if a.units is None:
        return [None] * (a.observed.shape[-1] // 2)
    differs = (a.units.rows != b.units.rows)[:, 0].chunk(2, 1)
    return torch.stack(differs).any(0).sum(0).tolist()


def _columns(models: dict[str, Scores]) -> list[Tensor]:
    """Return the columns of the paired values that each model has."""
    device = next(iter(models.values())).scores.device
    sizes = [math.prod(scores.shape) for scores in models.values()]
    return list(torch.arange(sum(sizes), device=device).split(sizes))


def common_bounds(models: dict[str, Scores], values: Tensor) -> tuple[float, float]:
    """Return the bounds that hold for all models; ValueError for a score outside, such as one that counts as 0."""
    bounds = {scores.bounds or UNBOUNDED for scores in models.values()}
    low, high = (end(ends) for end, ends in zip((min, max), zip(*bounds, strict=True), strict=True))
    if bool((values < low).any() | (values > high).any()):
        raise ValueError(f"on_missing: got 'zero' with the bounds {low} and {high}; wanted 0 within them")
    return low, high


def paired_items(models: dict[str, Scores], on_missing: str) -> tuple[ItemScores, dict[str, Any]]:
    """Return the scores of all models on the common items as columns, and details on the other items."""
    checks.check_choice("on_missing", on_missing, ON_MISSING)
    checks.same_device(**{name: scores.scores for name, scores in models.items()})
    kinds = {name: None if scores.ids is None else isinstance(scores.ids, Tensor) for name, scores in models.items()}
    if None in kinds.values() and {*kinds.values()} != {None}:
        without = next(name for name, kind in kinds.items() if kind is None)
        having = next(name for name, kind in kinds.items() if kind is not None)
        raise ValueError(f"ids: got some for {having} and none for {without}; wanted them for all models or for none")
    _check_documents(models)
    items = {name: scores._items(mixes_names(models)) for name, scores in models.items()}
    first, *_ = items.values()
    lengths = {name: len(part.values) for name, part in items.items()}
    if first.ids is None and len({*lengths.values()}) > 1:
        got = ", ".join(f"{count} of {name}" for name, count in lengths.items())
        raise ValueError(f"scores: got {got}, wanted as many of each; give ids= to pair them by name")
    ids = [part.ids for part in items.values() if part.ids is not None]
    if not all(torch.equal(ids[0], other) for other in ids):
        items = _by_id(items, torch.cat(ids).unique())
    paired = ItemScores(
        torch.cat([part.values for part in items.values()], 1), next(iter(items.values())).ids, _common_groups(items)
    )
    return _without_missing(paired, items, on_missing)


def mixes_names(models: dict[str, Scores]) -> bool:
    """Return whether some models have integer ids and others have texts."""
    return len({isinstance(scores.ids, Tensor) for scores in models.values()}) > 1


def _by_id(items: dict[str, ItemScores], union: Tensor) -> dict[str, ItemScores]:
    # union: (I,) int64, sorted ids of all models
    """Return the items of all models in the order of ids, NaN where a model lacks one."""
    aligned = {}
    for name, part in items.items():
        position = torch.searchsorted(union, cast(Tensor, part.ids))
        values = part.values.new_full((len(union), part.values.shape[1]), torch.nan)
        values[position] = part.values
        groups = None
        if part.groups is not None:
            groups = torch.full_like(union, UNKNOWN_GROUP)
            groups[position] = part.groups
        aligned[name] = ItemScores(values, union, groups)
    return aligned


def _common_groups(items: dict[str, ItemScores]) -> Tensor | None:
    having = {name: part.groups for name, part in items.items() if part.groups is not None}
    if not having:
        return None
    if len(having) < len(items):
        without = next(name for name in items if name not in having)
        raise ValueError(
            f"groups: got some for {next(iter(having))} and none for {without}; wanted them for all models"
        )
    first, *others = having
    groups = having[first]
    for name in others:
        is_known = (groups != UNKNOWN_GROUP) & (having[name] != UNKNOWN_GROUP)
        if bool((is_known & (groups != having[name])).any()):
            raise ValueError(f"groups: got others for {name} than for {first} on the same items")
        groups = torch.where(groups == UNKNOWN_GROUP, having[name], groups)
    return groups


def _without_missing(
    paired: ItemScores, items: dict[str, ItemScores], on_missing: str
) -> tuple[ItemScores, dict[str, Any]]:
    lacks = {name: part.values.isnan().any(1) for name, part in items.items()}
    is_missing = torch.stack([*lacks.values()]).any(0)
    count = int(is_missing.sum())
    if not count:
        return paired, {}
    if on_missing == "error":
        what = "scores" if paired.ids is None else "ids"
        name, lack = next((name, int(part.sum())) for name, part in lacks.items() if bool(part.any()))
        raise ValueError(
            f"{what}: {name} lacks {lack} of {len(is_missing)}, {count} are missing in some model; write "
            'on_missing="drop" to leave these out, or "zero" to count them as 0'
        )
    if on_missing == "zero":
        return paired._replace(values=paired.values.nan_to_num(0)), {"zeros": count}
    if count == len(is_missing):
        raise ValueError("ids: no item has a score of each model; wanted at least one in common")
    return paired.selected(~is_missing), {"dropped": count}


def _check_documents(models: dict[str, Scores]) -> None:
    """Raise a ValueError where logs say that an id is another document in another log."""
    hashes: dict[Any, str] = {}
    for name, scores in models.items():
        for key, digest in scores.hashes.items():
            if hashes.setdefault(key, digest) != digest:
                raise ValueError(
                    f"ids: {key!r} is another document in {name}, by its hash; wanted logs of one data set"
                )
