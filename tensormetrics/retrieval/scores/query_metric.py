"""Scores of all queries in tiles, their averages, and the base class of metrics that are averages of scores."""

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.metric.base import Answer
from ...core.native import gpu_kernels
from ...core.numbers.exact_sums import cumulative_mass, parts, total, unit_of
from ...core.resampling.draws import Bounds, mean_bounds
from ...core.resampling.resampling import Items
from ...core.resampling.weights import ItemNames
from ..deterministic import chunk_slices, lexsort
from ..inputs import RetrievalInputs, Status, budget, check_budget, is_rank_local
from ..ranking.neighbor_ranks import LONE, SCORED, direct_search
from ..ranking.out_of_core import counts_by_blocks
from ..ranking.positive_ranks import PositiveRanks, count_relevant
from ..ranking.ranking import TIES, RankingOptions, Ties
from ..ranking.sharded import gathered_scores, tiles_of
from ..relevance import Comparison, Gains, Ignore, Relevance
from ..search.direct_search import NOT_FINITE
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


def relevant_counts(inputs: RetrievalInputs, comparison: Comparison | None, memory_budget: int | None) -> Tensor:
    # ->  (Q,) int64, R of every query
    self_index = inputs.self_index()
    if inputs.stream is not None:
        return counts_by_blocks(inputs, comparison, memory_budget)
    if comparison is None and inputs.gains is None and inputs.ignore is None:
        return count_relevant(inputs.query_labels, inputs.reference_labels) - (self_index >= 0).long()
    relevance = Relevance(
        inputs.query_labels, inputs.reference_labels, self_index, comparison, inputs.gains, inputs.ignore
    )
    rows = max(budget(memory_budget, self_index.device) // relevance.bytes_per_query, 1)
    relevant = torch.zeros_like(self_index)
    for tile in chunk_slices(len(self_index) if len(inputs.reference_labels) else 0, rows):
        relevant[tile] = relevance(tile).relevant
    return relevant


def query_scores(
    functions: Sequence[Callable[[PositiveRanks], Tensor]],
    tiles: Iterable[tuple[slice | Tensor, PositiveRanks]],
    inputs: RetrievalInputs,
) -> tuple[Tensor, Tensor]:
    # ->  (F, Q) float64, (Q,), R of every query
    """Apply every function to the ranks of all queries, tile by tile; only the scores are kept."""
    local_queries = inputs.query_labels if inputs.layout is None else inputs.query  # each rank scores its local queries
    scores = local_queries.new_empty(len(functions), len(local_queries), dtype=torch.float64)
    relevant = scores.new_empty(len(local_queries))
    for rows, ranks in tiles:
        values = [function(ranks).double() for function in functions]
        if inputs.layout is None and isinstance(rows, slice) and rows == slice(0, len(local_queries)):
            scores = torch.stack(values) if len(values) > 1 else values[0][None].contiguous()
            relevant = ranks.relevant
            continue
        for score, value in zip([*scores, relevant], [*values, ranks.relevant.to(relevant.dtype)], strict=True):
            score[rows] = value
    if inputs.layout is None:
        return scores, relevant
    scores = gathered_scores(torch.cat([scores, relevant[None]]), inputs.layout)
    return scores[:-1], scores[-1]


def read_status(status: Status | None, relevant: Tensor, on_lone: str) -> int:
    # relevant: (Q,)
    """Read what kernels noted, once; raise and warn as if the values had been checked before.

    Returns:
        The largest number of relevant references, 0 without a status.
    """
    word, longest = (LONE | SCORED, 0) if status is None else status.word.tolist()
    if status is not None and word & NOT_FINITE:
        status.check()
    if status is None or not word & SCORED or (on_lone == "error" and word & LONE):
        scored_queries(relevant == 0, on_lone)
    return longest


def scored_queries(lone: Tensor, on_lone: str) -> Tensor:
    # lone: (Q,) bool  ->  (Q,) bool
    """Return the mask of queries that enter the averages; warn if it is empty, raise an error if `on_lone` says so."""
    if on_lone == "error" and lone.any():
        raise ValueError(
            f"on_lone='error': {int(lone.sum())} of {len(lone)} queries have no relevant reference, the first is "
            f"query {int(lone.nonzero()[0])}; write on_lone='exclude' to leave them out"
        )
    scored = torch.ones_like(lone) if on_lone == "zero" else ~lone
    if not len(lone):
        log.warning("there is no query: every metric is NaN")
    elif not scored.any():
        log.warning("no query has a relevant reference: every metric of neighbors is NaN")
    return scored


class Classes:
    """Classes of the queries that are scored, found when they are first read.

    Queries without relevant references are not scored, or with `on_lone="zero"` as 0.
    """

    def __init__(self, query_labels: Tensor, relevant: Tensor, on_lone: str = "exclude") -> None:
        # query_labels: (Q,) or (Q, L)  relevant: (Q,), 0 for lone queries
        self.query_labels, self.relevant, self.on_lone = query_labels, relevant, on_lone

    @functools.cached_property
    def scored(self) -> Tensor:
        # ->  (Q,) bool
        is_all = self.on_lone == "zero"
        return torch.ones_like(self.relevant, dtype=torch.bool) if is_all else self.relevant > 0

    @functools.cached_property
    def _found(self) -> tuple[Tensor, Tensor]:
        labels, scored = self.query_labels, self.scored
        # With `dim` it takes ten times as long.
        rows = {"dim": 0} if labels.ndim > 1 else {}
        distinct, codes = labels[scored].unique(return_inverse=True, **rows)
        return distinct, codes.new_full(scored.shape, -1).masked_scatter(scored, codes)

    @property
    def labels(self) -> Tensor:
        """Distinct labels, (C,) or (C, L), sorted."""
        return self._found[0]

    @property
    def codes(self) -> Tensor:
        """Class of each query, (Q,) int64, -1 = not scored."""
        return self._found[1]


def means(scores: Tensor, classes: Classes, by_class: bool = False) -> Tensor:
    # scores: (M, Q) float64, NaN = undefined  ->  (M,), or (M, C), NaN for a class without defined scores
    """Compute the mean of each score over the scored queries, without undefined scores, from exact sums."""
    relevant, is_zero = classes.relevant, classes.on_lone == "zero"
    groups = (classes.codes, len(classes.labels)) if by_class else ()
    if scores.numel() and gpu_kernels.can_use("neighbor scores", scores.device):
        from ..search.kernels import scores as kernels

        return kernels.means(scores, relevant, is_zero, *groups)
    if is_zero:
        scores = scores.masked_fill(relevant <= 0, 0)
    valid = ~scores.isnan() if is_zero else classes.scored & ~scores.isnan()
    values = torch.where(valid, scores, 0.0)
    finite = values.nan_to_num(posinf=0.0, neginf=0.0)
    unit = unit_of(torch.nn.functional.pad(finite.abs(), (0, 1)).amax(1))[:, None]
    first, *others = parts(finite, unit)
    terms = torch.stack([first + (values - finite), *others, valid.double()], 1)
    if groups:  # exact sums have no order
        codes, count = groups[0].clamp(min=0).expand_as(terms), max(groups[1], 1)
        sums = terms.new_zeros(*terms.shape[:2], count).scatter_add_(2, codes, terms)[..., : groups[1]]
    else:
        sums = terms.sum(2)
    return total([*sums[:, :3].unbind(1)]) / sums[:, 3]


def averaged(scores: Tensor, classes: Classes, average: str, statistic: str = "mean") -> Tensor:
    # scores: (Q,) or for the mean also (M, Q) float64, NaN = undefined
    # ->  (..., ) for "micro" and "macro", (..., C) for "class", (..., Q) for "none"
    """Compute the mean or median over the scored queries, or over each class of them, without undefined scores."""
    if average == "none":
        return scores
    if statistic == "mean":
        values = means(torch.atleast_2d(scores), classes, average != "micro")
        values = values.nanmean(-1) if average == "macro" else values
        return values if scores.ndim > 1 else values[0]
    rows, codes, count = _by_class(scores, classes, average)
    values = _medians(scores[rows], torch.bincount(codes, minlength=count))
    if average == "micro":
        return values[0]
    return values.nanmean() if average == "macro" else values


def _by_class(scores: Tensor, classes: Classes, average: str) -> tuple[Tensor, Tensor, int]:
    # scores: (Q,), NaN = undefined  ->  (n,) int64, scored queries by class and score; (n,) int64; number of classes
    rows = ((classes.codes >= 0) & ~scores.isnan()).nonzero()[:, 0]
    codes = torch.zeros_like(rows) if average == "micro" else classes.codes[rows]
    order = lexsort(scores[rows], codes)
    return rows[order], codes[order], 1 if average == "micro" else len(classes.labels)


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
    """Return rows with weighted sums from which `averaged` of weighted queries is computed.

    The average "none" has no interval.
    """
    _check_averaged(average)
    if statistic == "mean":
        items = items_of_several({"": scores}, names, labels, classes, average, {"": value_range})
        return items._replace(read=functools.partial(_read_mean, average=average, count=len(classes.labels)))
    rows, codes, count = _by_class(scores, classes, average)
    pairs = torch.stack([codes.double(), scores[rows]], 1)
    distinct, cells = pairs.unique_consecutive(dim=0, return_inverse=True)
    ends = torch.searchsorted(distinct[:, 0].contiguous(), torch.arange(count + 1, device=codes.device).double())
    read = functools.partial(_read_medians, values=distinct[:, 1], ends=ends, average=average)
    ones = torch.ones_like(pairs[:, :1])
    items = Items(ones, names.units[rows], read, cells, len(distinct), mixes=False, range=value_range)
    return items._replace(is_smooth=False, identity=names.columns(_targets(labels)))


def items_of_several(
    scores: dict[str, Tensor],
    names: ItemNames,
    labels: Tensor,
    classes: Classes,
    average: str,
    value_ranges: Mapping[str, tuple[float, float]],
) -> Items:
    # scores: (Q,) float64 each, NaN = undefined  labels: (Q,) or (Q, L)  value_ranges: infinite if unknown
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
    class_weight = 1 / width if average == "macro" else 1.0  # weight of a class in the mean
    bounds = Bounds(class_weight * bounds.worst, class_weight * bounds.best)
    low, high = (end if average == "macro" else end.repeat_interleave(count) for end in (lows, highs))
    cells = classes.codes.clamp(min=0)
    return Items(rows, names.units, read, cells, width, bounds=bounds, range=(low, high), identity=identity)


def _targets(labels: Tensor) -> Tensor | None:
    # labels: (Q,) or (Q, L)  ->  (Q,)
    """Return one integer for each query, if labels are integers: metrics have to agree on those of equal ids."""
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    return None if labels.ndim > 1 or labels.is_floating_point() else labels


def _check_averaged(average: str) -> None:
    if average == "none":
        raise ValueError("average: got 'none', the score of each query; write average='micro', 'macro' or 'class'")


def _read_means(sums: Tensor, names: tuple[str, ...], average: str, count: int) -> dict[str, Tensor]:
    # sums: (..., max(C, 1), 2 M), C = `count`  ->  name: (...), or (..., C) for "class"
    score_sums, weights = (part[..., :count] if average == "class" else part for part in sums.movedim(-1, 0).chunk(2))
    values = (_over_classes(value, average) for value in score_sums / weights)
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
    index = torch.searchsorted(before[..., 1:].contiguous(), ((first + last) / 2).contiguous())
    medians = values[index.clamp(max=len(values) - 1)]
    return _over_classes(medians.masked_fill(first == last, torch.nan), average)


def _over_classes(values: Tensor, average: str) -> Tensor:
    # values: (..., C)
    return values[..., 0] if average == "micro" else values.nanmean(-1) if average == "macro" else values


def _medians(scores: Tensor, counts: Tensor) -> Tensor:
    # scores: (Q,), ascending in each group, group after group  counts: (G,)  ->  (G,), NaN for an empty group
    if not len(scores):
        return scores.new_full(counts.shape, torch.nan)
    first = counts.cumsum(0) - counts
    central = [scores[(first + half).clamp(0, len(scores) - 1)] for half in ((counts - 1) // 2, counts // 2)]
    return ((central[0] + central[1]) / 2).masked_fill(counts == 0, torch.nan)


class RankOptions(EmbeddingOptions, total=False):
    """Options of metrics of ranks; see `QueryMetric`."""

    average: Average
    on_lone: OnLone
    label_comparison_fn: Comparison | None
    ignore: Ignore | None
    ties: Ties
    distance: DistanceName
    memory_budget: int | None


class GradedOptions(RankOptions, total=False):
    gains: Gains | None


class QueryMetric(EmbeddingMetric[Answer]):
    """Average over queries of `score`, a function of their ranks (or of the result of `scores` of a subclass).

    `score` maps `PositiveRanks` to (Q,), NaN if undefined, or is several by name; `depth` is the deepest rank that it
    uses: an integer, "relevant" (number of relevant references) or None (all); `statistic` is "mean" or "median".

    Args:
        average: "micro" (default), over queries; "macro", the mean over classes of "class"; "class", (C,), over the
            queries of each label in `class_labels`; "none", (Q,), NaN for lone queries.
        on_lone: Lone queries, without a relevant reference, are left out ("exclude", the default), count as 0 ("zero"),
            or are a ValueError ("error").
        label_comparison_fn: `(x, y)` for pairs of labels, (n,) or (n, L) each, to (n,) bool; by default equality.
        gains: Graded relevance as a function of pairs of labels, (n,) and (n,) -> (n,), or for each pair, (Q, N), or
            a tuple of queries, references and gains, (n,) each, of the pairs with gains; by default 1 for equal labels.
        ignore: Pairs that are no candidates, (Q, N) bool, or a function of a slice of the queries that gives its rows.
        ties: Order at equal distance: "index" (of the reference), "optimistic" (relevant first) or "pessimistic".
        distance: "l2" (default), "sqeuclidean", "ip" (inner product) or "cosine".
        memory_budget: Maximal bytes of temporaries of the search, by default 256 MiB on a CPU, 1 GiB on a GPU.
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
        checks.check_choice("average", average, AVERAGES)
        checks.check_choice("on_lone", on_lone, ON_LONE)
        checks.check_choice("ties", ties, TIES)
        checks.check_choice("distance", distance, DISTANCES)
        self.score, self.depth, self.statistic = score, depth, statistic
        self.gains, self.label_comparison_fn = gains, label_comparison_fn
        self.average, self.on_lone = average, on_lone
        self.ignore, self.ties = ignore, ties
        self.distance, self.memory_budget = distance, check_budget(memory_budget)
        self._classes: Classes | None = None

    def rows_may_stay(self) -> bool:
        return self.score is not None and self.ignore is None and is_rank_local(self.gains)

    def compute(self) -> Any:
        # ->  () float64, or the shape of `average`; for several scores a dictionary by name
        inputs, queries = self.stored_inputs(self._ranks_directly)
        inputs = inputs.with_options(gains=self.gains, ignore=self.ignore)
        scores, relevant = self.scores(inputs)
        names = tuple(self.score) if isinstance(self.score, Mapping) else ("",)
        classes = Classes(inputs.query_labels, relevant, self.on_lone)
        if self.on_lone == "zero":
            scores = scores.masked_fill(relevant == 0, 0)
        if self.statistic == "mean":
            values = averaged(scores, classes, self.average).unbind()
        else:
            values = tuple(averaged(score, classes, self.average, self.statistic) for score in scores)
        read_status(inputs.status, relevant, self.on_lone)
        self._classes = classes
        items = queries.names, inputs.query_labels, classes, self.average
        if not isinstance(self.score, Mapping):
            self._items = functools.partial(items_of, scores[0], *items, self.statistic, self.value_range())
            return values[0]
        by_name, ranges = dict(zip(names, scores, strict=True)), dict.fromkeys(names, self.value_range())
        self._items = functools.partial(items_of_several, by_name, *items, ranges)
        return dict(zip(names, values, strict=True))

    @property
    def class_labels(self) -> Tensor | None:
        """Classes of the queries that the latest `compute` scored, (C,) or (C, L)."""
        return None if self._classes is None else self._classes.labels

    def _ranking(self, depth: int | None) -> RankingOptions:
        options = self.label_comparison_fn, depth, self.ties, self.distance
        return RankingOptions(*options, memory_budget=self.memory_budget)

    def _ranks_directly(self, inputs: RetrievalInputs) -> bool:
        is_plain = isinstance(self.depth, int) and self.gains is None and self.ignore is None
        is_float64 = torch.float64 in (inputs.query.dtype, inputs.reference.dtype)  # whose squares are checked too
        return is_plain and not is_float64 and direct_search(inputs, self._ranking(cast(int, self.depth))) is not None

    @torch.no_grad()
    def scores(self, inputs: RetrievalInputs) -> tuple[Tensor, Tensor]:
        # ->  (M, Q) float64, NaN = undefined; (Q,), R of every query
        depth = self.depth
        if depth == "relevant":
            relevant = relevant_counts(inputs, self.label_comparison_fn, self.memory_budget)
            depth = max(int(relevant.max()), 1) if len(relevant) else 1
        assert self.score is not None  # subclasses without a score override this method
        functions = [*self.score.values()] if isinstance(self.score, Mapping) else [self.score]
        return query_scores(functions, tiles_of(inputs, self._ranking(depth)), inputs)
