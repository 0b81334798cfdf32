"""Samples of metrics, scores and numbers under common weights, and their comparisons."""

import dataclasses
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torchmetrics
from torch import Tensor

from ...core.arguments import checks
from ...core.metric.base import Metric
from ...core.metric.distributed import described, options_of
from ...core.resampling import intervals
from ...core.resampling.errors import UncertaintyWarning
from ...core.resampling.families import MEMBER
from ...core.resampling.means import UNBOUNDED, Means, resampled_means
from ...core.resampling.paired import comparisons, comparisons_with, independent_comparisons
from ...core.resampling.statements import ALTERNATIVES, Question
from ...core.resampling.weights import check_draws
from ...core.results.estimates import Comparison, check_confidence, check_rope
from ..anytime import sequences
from ..anytime.sequences import UnitScores
from ..item_scores.item_scores import ItemScores, Scores

ON_MISSING = "error", "drop", "zero"
UNKNOWN_GROUP = torch.iinfo(torch.int64).min
CHUNK = 2**18  # numbers of a chunk of pairs, in each of some twenty tensors


class ComparisonOptions(NamedTuple):
    """Options of `compare`."""

    confidence: float = 0.95
    alternative: str = "two-sided"
    replicates: int | None = None
    seed: int | None = None
    rope: float | None = None
    of_family: bool = False
    is_paired: bool = True

    def question(self, direction: Callable[[str], bool | None]) -> Question:
        """Return the checked options; ValueError for one that is out of range."""
        confidence = check_confidence(self.confidence)
        checks.check_choice("alternative", self.alternative, ALTERNATIVES)
        if self.alternative != "two-sided":  # below .5 a bound would exclude the difference
            checks.check_number("confidence", confidence, "a number between 0.5 and 1 for one side", lambda x: x > 0.5)
        check_rope(self.rope)
        return Question(confidence, self.alternative, self.rope, direction, self.of_family)


class Sample(NamedTuple):
    """A metric, or scores, with replicates; or a number, which has none."""

    metric: Any
    resampled: Any = None
    estimates: Any = None  # the interval of each value
    details: Mapping[str, Any] = {}

    @classmethod
    def of(cls, metric: Any, options: ComparisonOptions) -> "Sample":
        """Sample a metric, once for all comparisons."""
        if not hasattr(metric, "_resampled"):
            return cls(float(metric))
        resampled = metric._resampled("comparison", options.replicates, options.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UncertaintyWarning)  # the comparison warns instead
            return cls(metric, resampled, metric._estimates(resampled, options.confidence))

    def compared(self, other: "Sample", options: ComparisonOptions) -> Any:
        """Return a `Comparison`, or several by name, with the estimates of both samples and the direction."""
        question = options.question(self.metric._direction)
        if other.resampled is None:
            result = comparisons_with(self.resampled, other.metric, question)
        else:
            compare = comparisons if options.is_paired else independent_comparisons
            result = compare(self.resampled, other.resampled, question)
        if isinstance(result, Comparison):
            return self._completed(result, "", self.estimates, other.estimates)
        others = other.estimates or dict.fromkeys(result)
        return {name: self._completed(x, name, self.estimates[name], others[name]) for name, x in result.items()}

    def _completed(self, comparison: Comparison, name: str, a: Any, b: Any) -> Comparison:
        name = name or (self.metric.name if isinstance(self.metric, Scores) else a.name)
        direction = self.metric._direction(name) is not False
        fields = {"name": name, "higher_is_better": direction, "a": a, "b": b, "labels": getattr(a, "labels", None)}
        return dataclasses.replace(comparison, details={**comparison.details, **self.details}, **fields)


class PairedScores(NamedTuple):
    """Scores of models on the same items, with replicates under the same weights."""

    samples: dict[str, Sample]
    means: Means

    @classmethod
    def of(cls, models: dict[str, Scores], options: ComparisonOptions, on_missing: str) -> "PairedScores":
        """Pair the items by id, or by position where no model has ids, and draw the replicates once for all."""
        items, details = _paired_items(models, on_missing)
        bounds = _common_bounds(models, items.values)
        means = resampled_means(items.values, items.names(), *check_draws(options.replicates, options.seed), bounds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UncertaintyWarning)  # the comparison warns instead
            estimate = intervals.interval(means.take(), options.confidence)
        estimate = intervals.with_values(estimate, items.values.nanmean(0))
        samples = {}
        columns = torch.arange(items.values.shape[1], device=items.values.device).chunk(len(models))
        for (model, scores), part in zip(models.items(), columns, strict=True):
            of_model = estimate._map(lambda tensor, part=part, scores=scores: scores.shaped(tensor[part]))
            of_model = dataclasses.replace(of_model, name=scores.name, details=dict(estimate.details))
            samples[model] = Sample(scores, means.take(part, scores.shaped), of_model, details)
        return cls(samples, means)

    def pairs(self, pairs: Sequence[tuple[str, str]], options: ComparisonOptions) -> Iterator[Comparison]:
        """Yield the comparison of each pair of models that have one score; all pairs share the tensor operations."""
        positions = {name: i for i, name in enumerate(self.samples)}
        index = torch.tensor([[positions[a], positions[b]] for a, b in pairs], device=self.means.sums.observed.device)
        first, units = next(iter(self.samples.values())), self.means.sums.units
        question = options.question(first.metric._direction)
        longest = max(len(self.means.sums.weighted), 1 if units is None else len(units.ids))
        size = max(CHUNK // longest, 1)
        for start, chunk in zip(range(0, len(pairs), size), index.split(size), strict=True):
            a, b = (self.means.take(column) for column in chunk.unbind(1))
            result, discordant = comparisons(a, b, question), _discordant(a, b)
            family = result.details.pop(MEMBER)
            for i, (model, other) in enumerate(pairs[start : start + size]):
                one = dataclasses.replace(
                    result._map(lambda x, i=i: x[i]), discordant=discordant[i], details={MEMBER: family.take(i)}
                )
                yield first._completed(one, "", self.samples[model].estimates, self.samples[other].estimates)


def _discordant(a: Any, b: Any) -> list[int | None]:
    """Return the number of units on which the models of each pair differ."""
    if a.units is None:
        return [None] * (a.observed.shape[-1] // 2)
    differs = (a.units.rows != b.units.rows)[:, 0].chunk(2, 1)
    return torch.stack(differs).any(0).sum(0).tolist()


def _common_bounds(models: dict[str, Scores], values: Tensor) -> tuple[float, float]:
    """Return the bounds that hold for all models; ValueError for a score outside, such as one that counts as 0."""
    bounds = {scores.bounds or UNBOUNDED for scores in models.values()}
    low, high = (end(ends) for end, ends in zip((min, max), zip(*bounds, strict=True), strict=True))
    if bool((values < low).any() | (values > high).any()):
        raise ValueError(f"on_missing: got 'zero' with the bounds {low} and {high}; wanted 0 within them")
    return low, high


def _paired_items(models: dict[str, Scores], on_missing: str) -> tuple[ItemScores, dict[str, Any]]:
    """Return the scores of all models on the common items as columns, and details on the other items."""
    checks.check_choice("on_missing", on_missing, ON_MISSING)
    checks.same_device(**{name: scores.scores for name, scores in models.items()})
    kinds = {name: None if scores.ids is None else isinstance(scores.ids, Tensor) for name, scores in models.items()}
    if None in kinds.values() and {*kinds.values()} != {None}:
        without = next(name for name, kind in kinds.items() if kind is None)
        having = next(name for name, kind in kinds.items() if kind is not None)
        raise ValueError(f"ids: got some for {having} and none for {without}; wanted them for all models or for none")
    _check_documents(models)
    if weighted := [name for name, scores in models.items() if scores.weights is not None]:
        raise ValueError(f"weights: got some for {weighted[0]}, wanted none for paired items; write paired=False")
    first_name = next(iter(models))
    shape = models[first_name].shape
    for name, scores in models.items():
        if scores.shape != shape:
            got, wanted = ((*part, len(models[of])) for part, of in ((scores.shape, name), (shape, first_name)))
            raise ValueError(f"{name}: got scores {got}, wanted {wanted} as {first_name} has")
    items = {name: scores._items(_mixes_names(models)) for name, scores in models.items()}
    first, *_ = items.values()
    lengths = {name: len(part.values) for name, part in items.items()}
    if first.ids is None and len({*lengths.values()}) > 1:
        got = ", ".join(f"{count} of {name}" for name, count in lengths.items())
        raise ValueError(f"scores: got {got}, wanted as many of each; give ids= to pair them by name")
    orders = [[*scores.index] for scores in models.values() if first.ids is None and scores.index is not None]
    if any(order != orders[0] and {*order} == {*orders[0]} for order in orders[1:]):
        raise ValueError("ids: got none, and rows whose index has another order; wanted ids=, or equal orders")
    ids = [part.ids for part in items.values() if part.ids is not None]
    if not all(torch.equal(ids[0], other) for other in ids):
        items = _by_id(items, torch.cat(ids).unique())
    paired = ItemScores(
        torch.cat([part.values for part in items.values()], 1), next(iter(items.values())).ids, _common_groups(items)
    )
    return _without_missing(paired, items, on_missing)


def _mixes_names(models: dict[str, Scores]) -> bool:
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


def compare_sequences(
    models: dict[str, Scores],
    reference: float | None,
    options: ComparisonOptions,
    on_missing: str,
    looks: Sequence[int] | None,
) -> Comparison:
    """Compare two models item by item, or one with a number; items are in the order of the first model."""
    first = models["a"]
    items, details = _paired_items(models, on_missing)
    for scores in models.values():
        sequences.bounds_of(scores)
    low, high = _common_bounds(models, items.values)
    if reference is not None and not low < reference < high:
        raise ValueError(f"b: got {reference}, wanted a number between the bounds {low} and {high}")
    positions = sequences.last_positions(first, items, _mixes_names(models))
    sequences.check_complete(models.values(), items, positions, looks)
    units = sequences.units_in_order(items, positions)
    counts, is_path = sequences.check_looks(looks, units)
    parts = units.values.split(len(units.values) // len(models))
    estimates = [
        sequences.estimate_of(units._replace(values=part), scores, (low, high), options.confidence, counts, is_path)
        for part, scores in zip(parts, models.values(), strict=True)
    ]
    if reference is None:
        differences, ends = parts[0] - parts[1], (low - high, high - low)
    else:
        differences, ends = parts[0] - reference, (low - reference, high - reference)
    shape = (*first.shape, len(counts)) if is_path else first.shape
    columns = _anytime_columns(units._replace(values=differences), ends, options, counts)
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


def _anytime_columns(
    differences: UnitScores, ends: tuple[float, float], options: ComparisonOptions, looks: list[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # ->  (V, L) each: difference, low, high and p-value
    lowest, highest = ends
    is_two_sided = options.alternative == "two-sided"
    # One-sided, a bound has the confidence that two ends of a narrower interval have together.
    confidence = options.confidence if is_two_sided else 2 * options.confidence - 1
    bets = sequences.Bets.of(differences.rescaled(lowest, highest), confidence)
    null = -lowest / (highest - lowest)
    low, high = bets.ends(looks, lowest, highest)
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


def check_comparable(a: Any, b: Any, names: tuple[str, str] = ("a", "b")) -> None:
    """Raise an error before any work for arguments that are no metrics, or differ in type or scoring options."""
    if isinstance(b, int | float | np.number) and not isinstance(b, bool):
        checks.check_number(names[1], b, "a metric or a finite number", math.isfinite)
        samples = [a]
    else:
        samples = [a, b]
    for name, sample in zip(names, samples, strict=False):
        if not hasattr(sample, "_resampled"):
            expected = f"a metric of this package, or Uncertain(it){', or a number' if sample is b else ''}"
            advice = "; wrap it in Uncertain before update" if isinstance(sample, torchmetrics.Metric) else ""
            if hasattr(sample, "compare"):
                advice = f"; write {type(sample).__name__}.compare()"
            raise TypeError(f"{name}: got a {type(sample).__name__}, wanted {expected}{advice}")
    if len(samples) == 2:
        if type(a) is not type(b):
            raise ValueError(f"{names[1]}: got a {type(b).__name__}, wanted a {type(a).__name__} as {names[0]} is")
        check_same_scores(a, b)


def check_same_scores(a: Any, b: Any) -> None:
    """Raise a ValueError if a scoring option differs; options that say how a model answers may differ."""
    metrics, others = (_parts(sample) for sample in (a, b))
    if len(metrics) != len(others):
        raise ValueError(f"b: got {len(others)} metrics, wanted {len(metrics)} as a has")
    for options, other_options in zip(metrics, others, strict=True):
        for name in (*options, *other_options):
            option, other_option = (sample.get(name, "nothing") for sample in (options, other_options))
            if option != other_option:
                raise ValueError(f"{name}: got {option} for a and {other_option} for b, wanted the same for both")


def _parts(sample: Any) -> list[dict[str, str]]:
    """Return the options of each metric in a sample as texts."""
    parts = sample.modules() if isinstance(sample, torch.nn.Module) else [sample]
    return [_options_of(part) for part in parts if isinstance(part, Metric) or hasattr(part, "scoring_options")]


def _options_of(metric: Any) -> dict[str, str]:
    """Return the arguments of the constructor as texts, with the defaults of the omitted ones."""
    if hasattr(metric, "scoring_options"):
        return {name: described(option) for name, option in metric.scoring_options().items()}
    options = options_of(metric)
    for base in type(metric).__mro__:  # `**options` of a constructor go to that of a base
        for name, parameter in inspect.signature(cast(Any, base).__init__).parameters.items():
            if parameter.default is not parameter.empty:
                options.setdefault(name, described(parameter.default))
    return {name: option for name, option in options.items() if name not in type(metric).model_options}
