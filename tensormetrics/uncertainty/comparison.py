"""Comparison of two metrics on the same items, of a metric with a number, or of several models."""

from collections.abc import Mapping, Sequence
from typing import Any, overload

from torchmetrics import MetricCollection
from typing_extensions import Unpack  # torch brings it

from ..core.resampling.families import without_draws
from ..core.results.estimates import Comparison, Estimate
from ..core.results.score_table import ScoreTable, scored
from ..core.results.table import ComparisonTable, Table
from .anytime.sequences import check_anytime
from .intervals import HasInterval, SampleOptions
from .item_scores.score_sources import NO_SOURCE, Source, is_number, is_scores
from .pairs.model_tables import compare_models
from .pairs.sampled import ComparisonOptions, PairedScores, Sample, check_comparable, compare_sequences


class CompareOptions(SampleOptions, total=False):
    """Options of `compare`."""

    paired: bool
    score: str | None
    on_missing: str
    higher_is_better: bool | None
    confidence: float
    alternative: str
    rope: float | None
    correction: str


@overload
def compare(a: HasInterval[Estimate], b: Any, **options: Unpack[CompareOptions]) -> Comparison: ...
@overload
def compare(
    a: HasInterval[Mapping[str, Estimate]], b: Any, **options: Unpack[CompareOptions]
) -> ScoreTable[Comparison]: ...
@overload
def compare(
    a: Any, b: None = None, *, baseline: str, model: str | None = None, **options: Unpack[CompareOptions]
) -> Table: ...
@overload
def compare(
    a: Any, b: None = None, *, baseline: None = None, model: str | None = None, **options: Unpack[CompareOptions]
) -> ComparisonTable: ...
@overload
def compare(a: Any, b: Any, **options: Unpack[CompareOptions]) -> Comparison: ...
def compare(
    a: Any,
    b: Any = None,
    *,
    ids: Any = None,
    groups: Any = None,
    bounds: tuple[float, float] | None = None,
    score: str | None = None,
    model: str | None = None,
    paired: bool = True,
    on_missing: str = "error",
    higher_is_better: bool | None = None,
    confidence: float = 0.95,
    alternative: str = "two-sided",
    replicates: int | None = None,
    seed: int | None = None,
    rope: float | None = None,
    correction: str = "max-t",
    baseline: str | None = None,
    anytime: bool = False,
    looks: Sequence[int] | None = None,
) -> Any:
    """Compare two models on the same items, one with a number, or several models.

    A model is given as scores of items that exist already, see `interval`, or as a metric that was updated. Scores are
    paired by id where both have ids (the keys of a dictionary, `ids`, or those of a log), else by position.

    Two models: each item (or group of items) has the same weight in both samples, so that items that are hard for both
    models add no noise: see `Metric.interval`, also for the options. The p-value is that of a paired randomization
    test, which swaps items, or groups, of a and b (Noreen 1989; Yeh 2000, doi:10.3115/992730.992783), or that of the
    interval's draws if it is larger; draws that all lie on one side leave an exact p-value as it is. Up to 12 items or
    groups that differ all swaps are enumerated; otherwise they are drawn, with resolution 1 / (1 + replicates). Means
    whose differences of items all have one size, such as fractions of right items, have the exact binomial test
    (McNemar's). Of more than 1,000 items or groups swaps are always drawn. Options that say how a model answers, such
    as the distance or the search of embeddings, may differ.

    Two samples of other items (`paired=False`), such as two data sets or the users of an A/B test: the difference of
    two independent scores, whose draws also give the p-value. Missing scores are left out.

    A number: the interval is `interval(a)` minus it. The p-value of a fraction of right items without groups, at most
    1,000, is that of the exact binomial test (two-sided twice the smaller tail), of other means that of random signs of
    the differences to the number, or that of the draws if it is larger; other values have that of the draws.

    Several models: name -> model, or name -> {name: score}, or a DataFrame whose column `model` names them, in a table
    of all pairs that also knows the models, their ranks and the best ones, see `ComparisonTable`; with a `baseline` in
    a table of all models, each score with its interval, its difference from the baseline and the p-value of that, both
    corrected over the models. Verdicts, ranks and the best models follow corrected p-values. `table.compare()` is then
    the table of all pairs.

    The interval, `p_value` and `p_better` are one statement for every alternative: the interval excludes 0 exactly
    where `p_value` <= 1 - `confidence`, for which the end nearer to 0 is moved where tests and draws differ. A
    two-sided p-value is twice the smaller one-sided one.

    Args:
        a: Scores of items: a tensor, array, list or Series, a dictionary by id, `Scores`, a DataFrame, or a path. Or a
            metric. Or several of these by the name of their model.
        b: Another one of the same kind, or a number. Options of metrics that say what is scored must be equal; those
            that say how a model answers, such as `distance` or `threshold`, may differ. A metric of several values has
            each compared with the number.
        ids: Integers or names of the items of scores; a table's column.
        groups: Integers or names of the groups of items, such as documents; a table's column.
        bounds: Smallest and largest possible score; by default 0 and 1 if all scores are 0 or 1, else unknown.
        score: Column of a table, which is a DataFrame or a path; by default "score" or the only one.
        model: Column of a table that names the models.
        paired: Whether both have the same items.
        on_missing: Treatment of items without a score of some model: ``"error"``; ``"drop"`` leaves them out,
            ``"zero"`` counts them as 0, and `details` has their number.
        higher_is_better: Direction of scores, by default True; metrics know theirs.
        confidence: Mass of the interval, in (0, 1); one-sided in (0.5, 1).
        alternative: ``"two-sided"``; ``"greater"``: a is above b, whether or not more is better; ``"less"``: below. A
            one-sided interval begins (or ends) with a bound of this confidence and goes on to the end of the range.
        replicates: Number of random draws; see `Metric.interval`.
        seed: Seed of the draws.
        correction: Correction of p-values and intervals of several models, for each score by itself, and of the fields
            of `FieldScores`: ``"max-t"``, the largest deviation of all of them in the common draws, which loses little
            where they rise and fall together; or that of `correct_p_values`, whose p-values many replicates have to
            resolve.
        baseline: Name of the model from which the others differ.
        rope: Differences up to it do not matter in practice; `p_rope` is the probability of such a difference.
        anytime: Whether interval and p-value hold at every number of items at once, see `interval`: of scores of two
            models, or of one and a number. Items count in the order of a; `p_better` and `p_rope` are NaN.
        looks: With `anytime`, the numbers of items (or groups) after which the comparison is wanted.

    Returns:
        A `Comparison` of a minus b, or a `Table` of several, which is also a mapping by name; a `Table` of several
        models.

    Raises:
        ValueError: If the classes, scoring options, items, groups or targets differ, or an option is out of range.
        TypeError: If one is neither scores nor a metric of this package.

    Example:
        >>> import torch
        >>> hard = torch.linspace(0, 1, 40)
        >>> small, large = hard < 0.5, hard < 0.8
        >>> print(f"{compare(large, small):.2f}")
        +0.30 [+0.14, +0.45], p < 0.001
        >>> print(f"{compare(large, small[:30], paired=False):.2f}")
        +0.13 [-0.09, +0.34], p = 0.238
        >>> compare({"small": small, "large": large, "larger": hard < 0.82}).best
        ('large', 'larger')
        >>> from tensormetrics.retrieval import HitRate
        >>> generator = torch.Generator().manual_seed(0)
        >>> labels = torch.arange(60) % 3
        >>> a, b = HitRate(1), HitRate(1)
        >>> a.update(torch.eye(3)[labels] + 0.3 * torch.randn(60, 3, generator=generator), labels)
        >>> b.update(torch.eye(3)[labels] + 0.6 * torch.randn(60, 3, generator=generator), labels)
        >>> print(f"{compare(a, b):.2f}")
        +0.43 [+0.30, +0.56], p < 0.001
        >>> print(f"{compare(b, 0.4, alternative='greater'):.2f}")
        +0.17 [+0.06, +0.60], p = 0.007
    """
    options = ComparisonOptions(confidence, alternative, replicates, seed, rope, is_paired=paired)
    check_anytime(anytime, looks, replicates=replicates, seed=seed)
    source = Source(ids, groups, bounds, score, higher_is_better)
    if model is not None:
        a = source.models(a, model)
        source = NO_SOURCE
    if not paired and (anytime or b is None or is_number(b)):
        what = "anytime=True" if anytime else "several models" if b is None else "a number"
        raise ValueError(f"paired: got False with {what}, wanted two samples")
    if isinstance(a, Mapping) and not (b is not None and is_scores(a)):
        if b is not None:
            raise TypeError("b: got a second argument beside several models, wanted baseline='name of a model'")
        if anytime:
            raise TypeError("anytime: got several models, wanted two, or one and a number")
        return compare_models(a, options, correction, baseline, source, on_missing)
    if baseline is not None:
        raise ValueError(f"baseline: got {baseline!r} for two metrics, wanted several models as {{name: metric}}")
    options.question(bool)  # checks the options before any work
    models = {"a": a} if is_number(b) else {"a": a, "b": b}
    if all(map(is_scores, models.values())):
        scores = {name: source.read(model, name) for name, model in models.items()}
        if "b" not in models and on_missing == "error":
            on_missing = "drop"
        if anytime:
            return compare_sequences(scores, None if "b" in models else float(b), options, on_missing, looks)
        of_each = {name: Sample.of(model, options) for name, model in scores.items()} if not paired else {}
        samples = of_each or PairedScores.of(scores, options, on_missing).samples
        return samples["a"].compared(samples["b"] if "b" in models else Sample(float(b)), options)
    if anytime:
        name, model = next((name, model) for name, model in models.items() if not is_scores(model))
        raise TypeError(f"{name}: got a {type(model).__name__} with anytime=True, wanted scores of items in order")
    if is_scores(a) and b is None:
        raise TypeError("b: got a NoneType, wanted scores of the same items, or a number")
    if isinstance(a, MetricCollection):
        return _of_collections(a, b, options, correction)
    source.check_unused(source._fields, f"a {type(a).__name__}, which knows its items")
    return _of_metrics(a, b, options, correction)


def _of_metrics(a: Any, b: Any, options: ComparisonOptions, correction: str) -> Any:
    check_comparable(a, b)
    correct = getattr(a, "corrected", None) if type(a) is type(b) else None
    options = options._replace(of_family=correct is not None)
    comparisons = Sample.of(a, options).compared(Sample.of(b, options), options)
    if correct is not None:
        comparisons = {name: without_draws(x) for name, x in correct(b, comparisons, correction).items()}
    return scored(comparisons, a._direction, "")


def _of_collections(a: MetricCollection, b: Any, options: ComparisonOptions, correction: str) -> ScoreTable[Comparison]:
    if not is_number(b) and not (isinstance(b, MetricCollection) and a.keys() == b.keys()):
        raise TypeError(f"b: got a {type(b).__name__}, wanted a MetricCollection of the metrics of a, or a number")
    results: dict[str, Comparison] = {}
    for name, metric in a.items():
        result = _of_metrics(metric, b if is_number(b) else b[name], options, correction)
        several = result if isinstance(result, Mapping) else {"": result}
        results |= {"/".join(filter(None, (name, key))): comparison for key, comparison in several.items()}
    return ScoreTable.by_name(results, bool, "")
