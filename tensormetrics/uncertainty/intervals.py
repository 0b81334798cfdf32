"""The score of a metric, or the mean of given scores, with its interval."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict, overload

from torchmetrics import Metric, MetricCollection
from typing_extensions import TypeVar, Unpack  # torch brings them

from ..core.results.estimates import Estimate
from ..core.results.result import Result
from ..core.results.score_table import ScoreTable
from ..core.results.table import Table
from ..core.text.tables import is_frame
from .anytime.sequences import check_anytime, interval_sequence
from .item_scores.item_scores import Scores
from .item_scores.score_sources import Source, is_scores

Answer = TypeVar("Answer", covariant=True)


class HasInterval(Protocol[Answer]):
    """A metric, or anything else with an interval."""

    def interval(
        self, *, confidence: float = 0.95, replicates: int | None = None, seed: int | None = None
    ) -> Answer: ...


class SampleOptions(TypedDict, total=False):
    """Options of `interval` and `compare`."""

    groups: Any
    ids: Any
    bounds: tuple[float, float] | None
    replicates: int | None
    seed: int | None
    anytime: bool
    looks: Sequence[int] | None


class IntervalOptions(SampleOptions, total=False):
    """Options of `interval`."""

    weights: Any
    confidence: float | None


@overload
def interval(metric: HasInterval[Answer], **options: Unpack[IntervalOptions]) -> Answer: ...
@overload
def interval(
    metric: Mapping[str, HasInterval[Any]] | MetricCollection, **options: Unpack[IntervalOptions]
) -> ScoreTable[Estimate]: ...
@overload
def interval(metric: Any, *, score: list[str], **options: Unpack[IntervalOptions]) -> Table: ...
@overload
def interval(metric: Any, *, score: str | None = None, **options: Unpack[IntervalOptions]) -> Estimate: ...
def interval(
    metric: Any,
    *,
    groups: Any = None,
    ids: Any = None,
    weights: Any = None,
    bounds: tuple[float, float] | None = None,
    score: str | list[str] | None = None,
    confidence: float | None = None,
    replicates: int | None = None,
    seed: int | None = None,
    anytime: bool = False,
    looks: Sequence[int] | None = None,
) -> Any:
    """Return a score and an interval that holds the true one in about `confidence` of such data sets.

    The score is the mean of given scores of items, or that of a metric. Items, or groups of them, are reweighted
    together with one pseudo-item, half of it the worst and half the best, if the bounds of a score are known: see
    `Metric.interval`.

    Args:
        metric: A metric that was updated, for which the same as `metric.interval()`; a `Study`; an `Estimate` or a
            `Table` that has intervals, which are returned. Or a score for each item: a
            tensor, array, list or Series, a dictionary by id, a DataFrame, the path of a log or a table, or `Scores`,
            such as those that `read_scores` reads with options. NaN is a missing score, which is left out.
        groups: Integers or names of the groups of items, such as documents; a column of a DataFrame or a file.
        ids: Integers or names of the items; scores of equal ids are repeats, and an item's score is their mean. A
            column, too.
        weights: Importance of the items, numbers above 0, such as those of a survey; a DataFrame's column. The score is
            the weighted mean, and items that weigh more count as larger units.
        bounds: Smallest and largest possible score; by default 0 and 1 if all scores are 0 or 1, else unknown.
        score: Column of a table, by default "score" or the only one, or metric of a log; several columns of a DataFrame
            make a table.
        confidence: Mass of the interval, in (0, 1); default that of the metric, 0.95.
        replicates: Number of random draws; see `Metric.interval`.
        seed: Seed of the draws.
        anytime: Whether the interval holds at every number of items at once, so that results may be inspected after
            each batch and sampling stopped at any time: a betting confidence sequence (Waudby-Smith & Ramdas 2023,
            doi:10.1093/jrsssb/qkad009). It needs bounds and no random draws. Items count in their order, which must not
            depend on scores; with groups it is the mean of the means of groups, in the order in which they are
            complete. Repeats and groups that grow again need `looks`, which says that all are complete. With 500 items
            it is about 1.5 to 1.9 times as wide as the interval of a fixed number.
        looks: With `anytime`, the numbers of items (or groups) after which an interval is computed, each from the items
            up to there; by default after all.

    Shape:
        - metric: scores ``(..., N)``; leading dimensions are several scores of the same items
        - ids, groups, weights: ``(N,)``
        - Output: ``(...)``, with `looks` ``(..., L)``

    Returns:
        An `Estimate`, or a `Table` of one row for several columns or scores, which is also a mapping from their names
        to estimates: those of a metric, a dictionary of metrics or a MetricCollection. `details["missing"]` counts
        missing scores.

    Raises:
        TypeError: If these are neither scores nor a metric of this package.
        ValueError: If there are no scores, one is infinite or out of bounds, lengths differ, or an option is out of
            range.

    Example:
        >>> import torch
        >>> print(interval([1, 1, 0, 1, 1, 1, 1, 0, 1, 1]))
        0.800 [0.512, 0.994]
        >>> print(interval([1, 1, 0, 1, 1] * 40, anytime=True, looks=[50, 100, 200]))
        50   0.800 [0.617, 0.936]
        100  0.800 [0.669, 0.908]
        200  0.800 [0.705, 0.885]
        >>> from tensormetrics.retrieval import HitRate
        >>> labels, hit_rate = torch.arange(60) % 3, HitRate(1)
        >>> noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> hit_rate.update(torch.eye(3)[labels] + 0.6 * noise, labels)
        >>> print(interval(hit_rate))
        0.817 [0.712, 0.908]
    """
    arguments: Any = {"confidence": confidence, "replicates": replicates, "seed": seed}
    options = {name: option for name, option in arguments.items() if option is not None}
    check_anytime(anytime, looks, replicates=replicates, seed=seed)

    def of_scores(sample: Scores) -> Estimate:
        if anytime and sample.weights is not None:
            raise ValueError("weights: got some with anytime=True, which counts items; leave one of them out")
        if anytime:
            return interval_sequence(sample, 0.95 if confidence is None else confidence, looks)
        return sample.interval(**options)

    if isinstance(score, list) and is_frame(metric):
        sources = {name: Source(ids, groups, bounds, name, weights=weights) for name in score}
        return Table.of({"mean": {name: of_scores(source.read(metric)) for name, source in sources.items()}})
    if isinstance(score, list):
        raise TypeError(f"score: got a list for a {type(metric).__name__}, wanted a DataFrame, or one name")
    source = Source(ids, groups, bounds, score, weights=weights)
    if isinstance(metric, Estimate | Table):
        return _made(metric, [*options, *(name for name, option in source._asdict().items() if option is not None)])
    if is_scores(metric):
        return of_scores(source.read(metric))
    if isinstance(metric, Mapping | MetricCollection) and len(metric) and not hasattr(metric, "interval"):
        return _of_several(metric, source, options)
    if not hasattr(metric, "interval"):
        advice = "; wrap it in Uncertain before update" if isinstance(metric, Metric) else ""
        raise TypeError(f"metric: got a {type(metric).__name__}, wanted scores or a metric of this package{advice}")
    if anytime:
        raise TypeError(f"anytime: got a {type(metric).__name__}, wanted the scores of its items in their order")
    source.check_unused(source._fields, f"a {type(metric).__name__}, which knows its items")
    return metric.interval(**options)


def _made(made: Estimate | Table, options: list[str]) -> Estimate | Table:
    """Return a result as it is, if it has an interval and no option asks for another one."""
    if options:
        raise ValueError(f"{options[0]}: got it for an interval that is made; ask the metric or the scores again")
    cells = made.cells if isinstance(made, Table) else [[made]]
    if all(cell.low.isnan().all() for row in cells for cell in row if isinstance(cell, Result)):
        raise ValueError(f"metric: got {made}, without an interval; write replicates=1000 where it is made")
    return made


def _of_several(metrics: Any, source: Source, options: dict[str, Any]) -> ScoreTable[Estimate]:
    results: dict[str, Estimate] = {}
    directions: dict[str, bool | None] = {}
    for name, metric in metrics.items():
        metric = source.read(metric, name) if is_scores(metric) else metric
        result = interval(metric, **options)
        several = result if isinstance(result, Mapping) else {"": result}
        for key, estimate in several.items():
            column = "/".join(filter(None, (name, key)))
            results[column], directions[column] = estimate, metric._direction(key)
    return ScoreTable.by_name(results, directions.get, "score")
