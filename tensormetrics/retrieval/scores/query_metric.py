"""From ranks to numbers: scores of all queries in tiles, their averages, and the base of metrics that are averages."""

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from typing_extensions import Unpack

from ... import _checks
from ..._exact_sums import cumulative_mass
from ...uncertainty.engine.draws import Bounds, mean_bounds
from ...uncertainty.engine.resampling import Items
from ...uncertainty.engine.weights import ItemNames
from ..inputs import RetrievalInputs, as_gains, budget, is_rank_local
from ..ranking.out_of_core import counts_by_blocks
from ..ranking.positive_ranks import PositiveRanks, count_relevant
from ..ranking.ranking import TIES, Ranking, Ties
from ..ranking.sharded import gathered_scores, tiles_of
from ..relevance import Comparison, Gains, Ignore, Relevance
from ..search.distance import DISTANCES, DistanceName
from .depths import Score
from .embedding_metric import EmbeddingMetric, EmbeddingOptions

Average = Literal["micro", "macro", "class", "none"]
OnLone = Literal["exclude", "zero", "error"]
Statistic = Literal["mean", "median"]
AVERAGES: tuple[Average, ...] = get_args(Average)
ON_LONE: tuple[OnLone, ...] = get_args(OnLone)
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)

log = logging.getLogger("tensormetrics.retrieval")


def relevant_counts(sides: RetrievalInputs, comparison: Comparison | None, memory_budget: int | None) -> Tensor:
    # ->  (Q,) int64, R of every query
    own = sides.self_index()
    if sides.stream is not None:
        return counts_by_blocks(sides, comparison, memory_budget)
    if comparison is None and sides.gains is None and sides.ignore is None:
        return count_relevant(sides.query_labels, sides.reference_labels) - (own >= 0).long()
    relevance = Relevance(sides.query_labels, sides.reference_labels, own, comparison, sides.gains, sides.ignore)
    rows = max(budget(memory_budget, own.device) // relevance.bytes_per_query, 1)
    relevant = torch.zeros_like(own)
    for start in range(0, len(own) if len(sides.reference_labels) else 0, rows):
        tile = slice(start, min(start + rows, len(own)))
        relevant[tile] = relevance(tile).relevant
    return relevant


def query_scores(
    functions: Sequence[Callable[[PositiveRanks], Tensor]],
    tiles: Iterable[tuple[slice | Tensor, PositiveRanks]],
    sides: RetrievalInputs,
) -> Tensor:
    # ->  (F, Q) float64
    """Every function on the ranks of all queries, tile by tile: only the scores are kept."""
    own = sides.query_labels if sides.spread is None else sides.query  # each rank scores its own
    scores = own.new_empty(len(functions), len(own), dtype=torch.float64)
    for rows, ranks in tiles:
        for score, function in zip(scores, functions, strict=True):
            score[rows] = function(ranks)
    return gathered_scores(scores, sides.spread)


def scored_queries(lone: Tensor, on_lone: str) -> Tensor:
    # lone: (Q,) bool  ->  (Q,) bool
    """Which queries enter the averages; a warning if there is none, a ValueError if that is asked for."""
    if on_lone == "error" and lone.any():
        raise ValueError(
            f"on_lone='error': {int(lone.sum())} of {len(lone)} queries have no relevant reference, the first is "
            f"query {int(lone.nonzero()[0])}; write on_lone='exclude' to leave them out"
        )
    scored = torch.ones_like(lone) if on_lone == "zero" else ~lone
    if not len(lone):
        log.warning("there is no query: every metric is NaN")
    elif not scored.any():
        log.warning("no query has a relevant reference: every metric of neighbours is NaN")
    return scored


class Classes(NamedTuple):
    """The classes of the queries that are scored: labels (C,) or (C, L), sorted; codes (Q,) int64, -1 = not scored."""

    labels: Tensor
    codes: Tensor

    @classmethod
    def of(cls, labels: Tensor, scored: Tensor) -> "Classes":
        # labels: (Q,) or (Q, L)  scored: (Q,) bool
        # By rows it takes ten times as long.
        rows = {"dim": 0} if labels.ndim > 1 else {}
        distinct, codes = labels[scored].unique(return_inverse=True, **rows)
        return cls(distinct, codes.new_full(scored.shape, -1).masked_scatter(scored, codes))


def averaged(scores: Tensor, classes: Classes, average: str, statistic: str = "mean") -> Tensor:
    # scores: (Q,) float64, NaN = undefined  ->  () for "micro" and "macro", (C,) for "class", (Q,) for "none"
    """Mean or median over the scored queries, or over each class of them; undefined scores are left out."""
    if average == "none":
        return scores
    scored = (classes.codes >= 0) & ~scores.isnan()
    scores, codes = scores[scored], classes.codes[scored]
    if average == "micro":
        codes, count = torch.zeros_like(codes), 1
    else:
        count = len(classes.labels)
    order = scores.argsort(stable=True)
    order = order[codes[order].argsort(stable=True)]
    number = torch.bincount(codes, minlength=count)
    values = _centres(scores[order], number, statistic)
    if average == "micro":
        return values[0]
    return values.nanmean() if average == "macro" else values


def items_of(
    scores: Tensor,
    names: ItemNames,
    labels: Tensor,
    classes: Classes,
    average: str,
    statistic: str = "mean",
    value_range: tuple[float, float] = (0.0, 1.0),
) -> Items:
    # scores: (Q,) float64, NaN = undefined  labels: (Q,) or (Q, L)
    """Return the rows whose weighted sums give `averaged` of weighted queries; the average "none" has no interval."""
    _check_averaged(average)
    if statistic == "mean":
        items = items_of_several({"": scores}, names, labels, classes, average, {"": value_range})
        return items._replace(read=functools.partial(_read_mean, average=average, count=len(classes.labels)))
    count = 1 if average == "micro" else len(classes.labels)
    scored = (classes.codes >= 0) & ~scores.isnan()
    scores, units = scores[scored], names.units[scored]
    codes = torch.zeros_like(units) if average == "micro" else classes.codes[scored]
    order = scores.argsort(stable=True)
    order = order[codes[order].argsort(stable=True)]
    pairs = torch.stack([codes[order].double(), scores[order]], 1)
    distinct, cells = pairs.unique_consecutive(dim=0, return_inverse=True)
    ends = torch.searchsorted(distinct[:, 0].contiguous(), torch.arange(count + 1, device=codes.device).double())
    read = functools.partial(_read_medians, values=distinct[:, 1], ends=ends, average=average)
    ones = torch.ones_like(scores)[:, None]
    items = Items(ones, units[order], read, cells, len(distinct), mixes=False, range=value_range)
    return items._replace(is_smooth=False, identity=names.columns(_targets(labels)))


def items_of_several(
    scores: dict[str, Tensor],
    names: ItemNames,
    labels: Tensor,
    classes: Classes,
    average: str,
    value_ranges: Mapping[str, tuple[float, float]],
) -> Items:
    # scores: (Q,) float64 each, NaN = undefined  labels: (Q,) or (Q, L)  value_ranges: infinite where unknown
    """Return the rows of means by name; see `items_of`."""
    _check_averaged(average)
    columns = torch.stack(list(scores.values()), 1)
    scored = (classes.codes >= 0)[:, None] & ~columns.isnan()
    rows = torch.cat([columns.masked_fill(~scored, 0), scored.double()], 1)
    count, identity = len(classes.labels), names.columns(_targets(labels))
    read = functools.partial(_read_means, names=tuple(scores), average=average, count=count)
    lows, highs = torch.tensor([value_ranges[name] for name in scores], dtype=torch.float64, device="cpu").T
    bounds = mean_bounds(len(scores), lows, highs)
    if average == "micro":
        return Items(rows, names.units, read, bounds=bounds, range=(lows, highs), identity=identity)
    width = max(count, 1)
    share = 1 / width if average == "macro" else 1.0  # of one item that all classes share
    bounds = Bounds(share * bounds.worst, share * bounds.best)
    low, high = (end if average == "macro" else end.repeat_interleave(count) for end in (lows, highs))
    cells = classes.codes.clamp(min=0)
    return Items(rows, names.units, read, cells, width, bounds=bounds, range=(low, high), identity=identity)


def _targets(labels: Tensor) -> Tensor | None:
    # labels: (Q,) or (Q, L)  ->  (Q,)
    """Return one integer for each query, if the labels are that: two metrics of one id are to agree on it."""
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    return None if labels.ndim > 1 or labels.is_floating_point() else labels


def _check_averaged(average: str) -> None:
    if average == "none":
        raise ValueError("average: got 'none', the score of each query; write average='micro', 'macro' or 'class'")


def _read_means(sums: Tensor, names: tuple[str, ...], average: str, count: int) -> dict[str, Tensor]:
    # sums: (..., max(C, 1), 2 M), C = `count`  ->  name: (...), or (..., C) for "class"
    totals, numbers = (part[..., :count] if average == "class" else part for part in sums.movedim(-1, 0).chunk(2))
    values = (_over_classes(value, average) for value in totals / numbers)
    return dict(zip(names, values, strict=True))


def _read_mean(sums: Tensor, average: str, count: int) -> Tensor:
    # sums: (..., max(C, 1), 2), C = `count`  ->  (...), or (..., C) for "class"
    return _read_means(sums, ("",), average, count)[""]


def _read_medians(sums: Tensor, values: Tensor, ends: Tensor, average: str) -> Tensor:
    # sums: (..., Z, 1)  values: (Z,), ascending in each class  ends: (C + 1,)  ->  (...), or (..., C) for "class"
    if not len(values):
        return _over_classes(sums.new_full((*sums.shape[:-2], len(ends) - 1), torch.nan), average)
    before = torch.nn.functional.pad(cumulative_mass(sums[..., 0]), (1, 0))
    first, last = before[..., ends[:-1]], before[..., ends[1:]]
    place = torch.searchsorted(before[..., 1:].contiguous(), ((first + last) / 2).contiguous())
    middle = values[place.clamp(max=len(values) - 1)]
    return _over_classes(middle.masked_fill(first == last, torch.nan), average)


def _over_classes(values: Tensor, average: str) -> Tensor:
    # values: (..., C)
    return values[..., 0] if average == "micro" else values.nanmean(-1) if average == "macro" else values


def _centres(scores: Tensor, number: Tensor, statistic: str) -> Tensor:
    # scores: (Q,), ascending in each group, group after group  number: (G,) of each  ->  (G,), NaN for an empty group
    if not len(scores):
        return scores.new_full(number.shape, torch.nan)
    if statistic == "mean":
        return torch.segment_reduce(scores, "sum", lengths=number) / number
    first = number.cumsum(0) - number
    middle = [scores[(first + half).clamp(0, len(scores) - 1)] for half in ((number - 1) // 2, number // 2)]
    return ((middle[0] + middle[1]) / 2).masked_fill(number == 0, torch.nan)


class RankOptions(EmbeddingOptions, total=False):
    """See `QueryMetric`."""

    average: Average
    on_lone: OnLone
    label_comparison_fn: Comparison | None
    ignore: Ignore | None
    ties: Ties
    distance: DistanceName
    memory_budget: int | None


class QueryOptions(RankOptions, total=False):
    gains: Gains | None


class QueryMetric(EmbeddingMetric):
    """An average over queries of `score`, a function of their ranks (or of what a subclass scores in `scores`).

    Args:
        score: `(PositiveRanks) -> (Q,)`, NaN where undefined, or several by name, which have a value each.
        depth: how deep it looks: an integer, "relevant" (as deep as there are relevant references) or None (all).
        statistic: "mean" or "median" over queries.
        gains: graded relevance, a function of pairs of labels, or a number for each pair, (Q, N), with a row for each
            query that `compute` scores and a column for each reference, in order, or a tuple of (n,) each, the
            queries, references and gains of the pairs that have some.
        average: "micro", over queries; "macro", the mean over classes of "class"; "class", (C,), over the queries of
            each label in `class_labels`; "none", (Q,), NaN for lone queries.
        on_lone: lone queries, without relevant reference, are left out ("exclude"), count as 0 ("zero"), or are a
            ValueError ("error").
        label_comparison_fn: `(x, y)` for pairs of labels, (n,) or (n, L) each, to (n,) bool; default equality.
        ignore, ties: as in `positive_ranks`, with a row for each query that `compute` scores, in order.
        distance, memory_budget: as in `TorchKNN`.
    """

    higher_is_better = True
    plot_lower_bound: float | None = 0.0
    plot_upper_bound: float | None = 1.0

    def __init__(
        self,
        score: Score | Mapping[str, Score] | None,
        depth: int | Literal["relevant"] | None,
        statistic: Statistic = "mean",
        *,
        gains: Gains | None = None,
        average: Average = "micro",
        on_lone: OnLone = "exclude",
        label_comparison_fn: Comparison | None = None,
        ignore: Ignore | None = None,
        ties: Ties = "index",
        distance: DistanceName = "l2",
        memory_budget: int | None = None,
        **kwargs: Unpack[EmbeddingOptions],
    ) -> None:
        super().__init__(label_columns=label_comparison_fn is not None or callable(gains), **kwargs)
        _checks.check_choice("average", average, AVERAGES)
        _checks.check_choice("on_lone", on_lone, ON_LONE)
        _checks.check_choice("ties", ties, TIES)
        _checks.check_choice("distance", distance, DISTANCES)
        if memory_budget is not None:
            memory_budget = _checks.check_int("memory_budget", memory_budget, 1)
        self.score, self.depth, self.statistic = score, depth, statistic
        self.gains, self.label_comparison_fn = gains, label_comparison_fn
        self.average, self.on_lone = average, on_lone
        self.ignore, self.ties = ignore, ties
        self.distance, self.memory_budget = distance, memory_budget
        self.class_labels: Tensor | None = None

    def rows_may_stay(self) -> bool:
        return self.score is not None and self.ignore is None and is_rank_local(self.gains)

    def compute(self) -> Any:
        # ->  () float64, or as `average` says; of several scores name: that of each
        sides, queries = self.kept()
        sides = sides._replace(gains=as_gains(self.gains, sides.query.device)).without(self.ignore)
        scores, lone = self.scores(sides)
        names = tuple(self.score) if isinstance(self.score, Mapping) else None
        scored = scored_queries(lone, self.on_lone)
        if self.on_lone == "zero":
            scores = scores.masked_fill(lone, 0)
        classes = Classes.of(sides.query_labels, scored)
        self.class_labels = classes.labels
        items = queries.names, sides.query_labels
        if names is None:
            self._items = functools.partial(
                items_of, scores, *items, classes, self.average, self.statistic, self.value_range()
            )
            return averaged(scores, classes, self.average, self.statistic)
        by_name = dict(zip(names, scores, strict=True))
        ranges = dict.fromkeys(names, self.value_range())
        self._items = functools.partial(items_of_several, by_name, *items, classes, self.average, ranges)
        return {name: averaged(score, classes, self.average) for name, score in by_name.items()}

    @torch.no_grad()
    def scores(self, sides: RetrievalInputs) -> tuple[Tensor, Tensor]:
        # ->  (Q,) float64, NaN = undefined, or (M, Q) of several scores; (Q,) bool, lone
        depth = self.depth
        if depth == "relevant":
            relevant = relevant_counts(sides, self.label_comparison_fn, self.memory_budget)
            depth = max(int(relevant.max()), 1) if len(relevant) else 1
        ranking = Ranking(self.label_comparison_fn, depth, self.ties, self.distance, memory_budget=self.memory_budget)
        assert self.score is not None  # who has none overrides this
        functions = [*self.score.values()] if isinstance(self.score, Mapping) else [self.score]
        functions.append(lambda ranks: ranks.relevant.double())
        *scores, relevant = query_scores(functions, tiles_of(sides, ranking), sides)
        return torch.stack(scores) if isinstance(self.score, Mapping) else scores[0], relevant == 0
