"""Intervals, groups and comparisons of every metric, equal on two ranks and one process.

The cases are generated from all metrics that have an interval.
"""

import copy
import csv
import io
import itertools
import math
import re
import string
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
import torch
from cases import METRICS, MetricCase
from test_comparison_consistency import contradictions
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tensormetrics.core.metric.base import Metric
from tensormetrics.core.metric.sum_metric import SumMetric
from tensormetrics.core.resampling.families import FAMILY_CORRECTIONS
from tensormetrics.core.results.estimates import Result
from tensormetrics.core.results.ranks import RANK_COLUMNS
from tensormetrics.core.results.table import ComparisonTable
from tensormetrics.uncertainty import Comparison, Estimate, Table, Uncertain, UncertaintyWarning, compare, interval

N, REPLICATES = 60, 40
OPTIONS = {"replicates": REPLICATES}

WITHOUT_INTERVAL = {name for name, case in METRICS.items() if case.make().no_interval != Metric.no_interval}


def fields(answer: Any, kind: type) -> list[Any]:
    """Return the estimates or comparisons of an answer: one, or several by name."""
    results = list(answer.values()) if isinstance(answer, Mapping) else [answer]
    assert results and all(isinstance(result, kind) for result in results)
    return results


def items_of(metric: Metric, inputs: tuple[Tensor, ...], order: Tensor, **identity: Tensor) -> Iterator[tuple]:
    """Yield batches in an order, with ids or groups of their items; single items where the metric requires them."""
    for batch in order.split(1 if isinstance(metric, Uncertain) else 23):
        batch_identity = {name: values[batch] for name, values in identity.items()}
        if isinstance(metric, Uncertain):
            batch_identity = {name: values[0] for name, values in batch_identity.items()}
        yield tuple(tensor[batch] for tensor in inputs), batch_identity


def updated_metric(
    case: MetricCase, inputs: tuple[Tensor, ...], order: Tensor | None = None, **identity: Tensor
) -> Metric:
    return updated(case.make(), inputs, torch.arange(N) if order is None else order, **identity)


def updated(metric: Metric, inputs: tuple[Tensor, ...], order: Tensor, **identity: Tensor) -> Metric:
    for batch, batch_identity in items_of(metric, inputs, order, **identity):
        metric.update(*batch, **batch_identity)
    return metric


OTHER_ITEMS = {
    "retrieval.RunMetric": "its items are queries, which `indexes` names; see test_run_metric.py",
    "uncertainty.PassAtK": "its items are problems, which `problem_ids` names; see test_passes.py",
}
TABLE = {name: case for name, case in METRICS.items() if name not in WITHOUT_INTERVAL | OTHER_ITEMS.keys()}
rows = pytest.mark.parametrize(("name", "case"), TABLE.items(), ids=TABLE.keys())
ids = torch.arange(N) * 7 + 2**40
# Metrics whose groups are their items, and which have no value for a single item.
WITHOUT_A_VALUE_OF_ONE = {"association.ResidualBias": "a word is predicted from the other words"}
REFUSE_ONE = {"PassAtK", "Ratings", "ClusterAccuracy", "EmbeddingClusterAccuracy", "NormalizedMutualInfo"}
REFUSE_ONE |= {"Homogeneity", "Completeness", "VMeasure"}  # without an interval of one item, or battle of two
WITHOUT_UNIT_SUMS = "uncertainty.BinaryAUROC", "uncertainty.BinaryAveragePrecision"  # not functions of sums over units


@rows
def test_interval_does_not_depend_on_order_of_batches(name, case, generator):
    inputs = case.inputs(generator, N)
    metric = updated_metric(case, inputs, ids=ids)
    shuffled = updated_metric(case, inputs, torch.randperm(N, generator=generator), ids=ids)
    estimates = fields(metric.interval(**OPTIONS), Estimate)
    for value, low, high in estimates:
        assert value.shape == low.shape == high.shape and (low <= high).all()
    assert any((high > low).any() for _, low, high in estimates)
    values = tree_leaves(metric.compute())
    if len(values) == len(estimates):
        for leaf, estimate in zip(values, estimates, strict=True):
            torch.testing.assert_close(estimate.value, leaf, rtol=0, atol=2e-2)  # a posterior's is its median
    for one, other in zip(estimates, fields(shuffled.interval(**OPTIONS), Estimate), strict=True):
        for end in ("low", "high"):
            assert torch.equal(getattr(one, end), getattr(other, end)), "the ends depend on the order of the batches"


@rows
def test_interval_of_single_item_groups_equals_ungrouped(name, case, generator):
    inputs = case.inputs(generator, N)
    ungrouped = updated_metric(case, inputs, ids=ids)
    # Groups of one item, numbered like the ids, change nothing.
    single = updated_metric(case, inputs, groups=ids)
    for one, other in zip(estimates_of(ungrouped), estimates_of(single), strict=True):
        if not name.startswith("posterior"):  # whose posterior of counts becomes one of weights
            assert torch.equal(one.low, other.low) and torch.equal(one.high, other.high)
    # All items in one group: the variance is unknown.
    if name.startswith("posterior") or name in WITHOUT_UNIT_SUMS:
        return
    one_group = updated_metric(case, inputs, groups=torch.zeros(N, dtype=torch.int64))
    if name in WITHOUT_A_VALUE_OF_ONE:
        with pytest.warns(UncertaintyWarning, match="^one item: its spread cannot be known"):
            estimates = estimates_of(one_group)
        assert all(estimate.value.isnan() and estimate.items == estimate.groups == 1 for estimate in estimates)
        return
    with pytest.warns(UncertaintyWarning, match="^one group: its spread cannot be known"):
        estimates = estimates_of(one_group)
    lowest, highest = one_group.value_range()
    for estimate, one in zip(estimates, estimates_of(ungrouped), strict=True):
        assert (estimate.low <= one.low).all() and (estimate.high >= one.high).all() and estimate.groups == 1
        if name != "retrieval.AccuracyCalculator":
            assert (estimate.low == lowest).all() or not isinstance(lowest, float)
            assert (estimate.high == highest).all() or not isinstance(highest, float)


def estimates_of(metric: Metric) -> list[Estimate]:
    return fields(metric.interval(**OPTIONS), Estimate)


@rows
def test_comparison_of_equal_metrics_is_undecided_and_of_other_items_refused(name, case, generator):
    inputs = case.inputs(generator, N)
    a, b = (updated_metric(case, inputs, ids=ids) for _ in range(2))
    for comparison in fields(compare(a, b, rope=0.1, **OPTIONS), Comparison):
        assert not comparison.difference.any() and (comparison.low <= 0).all() and (comparison.high >= 0).all()
        assert (
            (comparison.p_better == 0.5).all() and (comparison.p_rope > 0.5).all() and (comparison.p_value == 1).all()
        )
    others = updated_metric(case, inputs, ids=ids + 1)
    with pytest.raises(ValueError, match="^a, b: their items differ"):
        compare(a, others, **OPTIONS)


EDGES_LEFT_OUT = {"uncertainty.Ratings": "equal battles do not connect its models; see test_ratings.py"}


def edge_data(case: MetricCase, data: str, generator: torch.Generator) -> list[tuple[Tensor, ...]]:
    """Return items of two models at an edge; the first is all right or wrong where its items are best or worst."""
    if data == "few":
        return [tuple(x[:5] for x in case.inputs(generator, N)) for _ in range(2)]
    inputs = case.inputs(generator, 12)
    for size in (1, 6):  # rankings have no value for a single item
        blocks = torch.arange(6)[:, None] * (1 if size == 1 else 5) + torch.arange(size)
        answers = [tree_leaves(updated_metric(case, inputs, block % 12).compute())[0] for block in blocks]
        values = torch.stack([value.double().flatten()[0] for value in answers])
        if values.isfinite().any():
            break
    best = blocks[values.nan_to_num(-math.inf).argmax()].repeat(12 // size) % 12
    worst = blocks[values.nan_to_num(math.inf).argmin()].repeat(12 // size) % 12
    one_worse = torch.where(torch.arange(12) == 7, worst, best)
    pairs = {"all right": (best, worst), "all wrong": (worst, best), "all equal": (best, best)}
    return [tuple(x[index] for x in inputs) for index in pairs.get(data, (best, one_worse))]


@rows
@pytest.mark.parametrize(("alternative", "confidence"), [("two-sided", 0.95), ("greater", 0.6), ("less", 0.95)])
@pytest.mark.parametrize("data", ["many", "few", "all right", "all wrong", "all equal", "one different"])
@pytest.mark.filterwarnings("ignore::tensormetrics.uncertainty.UncertaintyWarning")
def test_comparison_has_no_contradictions(name, case, alternative, data, confidence, generator):
    """Comparisons with a constant and, where these can be paired, with other predictions, at edges of the data too."""
    if name in EDGES_LEFT_OUT and data != "many":
        return
    both = [case.inputs(generator, N) for _ in range(2)] if data == "many" else edge_data(case, data, generator)
    order = torch.arange(len(both[0][0]))
    metric = updated_metric(case, both[0], order, ids=ids)
    try:
        estimate = estimates_of(metric)[0]
    except NotImplementedError as error:
        assert "so that chance raises the score" in str(error)
        return
    value, low = estimate.value.flatten()[0], estimate.low.flatten()[0]
    constant = float(low.lerp(value, 0.2) if low.isfinite() else value.nan_to_num(0.6) - 0.1)
    asked = {"confidence": confidence, "alternative": alternative, "rope": 0.1, **OPTIONS}
    # Other predictions of the same items, which come first or last, else other items, which some metrics pair.
    others = [(both[1][0], *both[0][1:]), (*both[0][:-1], both[1][-1]), both[1]]
    others *= name not in ESTIMATES_OF_MODELS
    for inputs in (None, *others):
        try:
            b = constant if inputs is None else updated_metric(case, inputs, order, ids=ids)
            result = compare(metric, b, **asked)
        except (ValueError, NotImplementedError) as error:
            assert inputs is not None and (inputs is not others[-1] or str(error).startswith("a, b: their "))
            continue
        same = compare(metric, b, **asked | {"alternative": "two-sided"})
        for one_sided, two_sided in zip(fields(result, Comparison), fields(same, Comparison), strict=True):
            assert one_sided.alternative == alternative
            assert_agrees(one_sided, confidence)
            # The end that is asked for is nearer to the difference, the other one at the end of the range.
            assert alternative == "less" or not (one_sided.low < two_sided.low).any()
            assert alternative == "greater" or not (one_sided.high > two_sided.high).any()
        if inputs is not None:
            reverse = compare(b, metric, **asked | {"alternative": "two-sided"})
            for one, other in zip(fields(same, Comparison), fields(reverse, Comparison), strict=True):
                assert_mirrored(one, other)
            options = {name: value for name, value in asked.items() if name != "rope"}
            # The third model has every third answer of the second.
            is_third = (order % 3 == 0).nonzero()[:, 0]
            mixed = (x.index_copy(0, is_third, y[is_third]) for x, y in zip(both[0], inputs, strict=True))
            models = {"a": metric, "b": b, "c": updated_metric(case, tuple(mixed), order, ids=ids)}
            assert_families_agree(models, options)
            break


def assert_mirrored(one: Comparison, other: Comparison) -> None:
    """Two models that differ have opposite results in the other order."""
    differs = one.difference.nan_to_num(0) != 0
    ends = (one.low, -other.high), (one.high, -other.low), (one.p_value, other.p_value)
    for value, opposite in (*ends, (one.p_better, 1 - other.p_better)):
        torch.testing.assert_close(value[differs], opposite[differs], rtol=1e-9, atol=1e-9, equal_nan=True)


def assert_families_agree(models: dict[str, Metric], asked: dict[str, Any]) -> None:
    """Compare two models, and three also at confidences at which p-values and corrected ones decide differently."""
    pair = compare(dict(itertools.islice(models.items(), 2)), **asked)
    assert_table_agrees(pair, asked["confidence"])
    for correction in FAMILY_CORRECTIONS if asked["alternative"] == "two-sided" else FAMILY_CORRECTIONS[:1]:
        confidences = [asked["confidence"]]
        for confidence in confidences:
            table = compare(models, **asked | {"confidence": confidence, "correction": correction})
            assert_table_agrees(table, confidence)
            for row, column in itertools.product(table.rows, table.columns):
                if not isinstance(cell := table[row, column], Comparison):
                    continue
                if row in pair.rows and confidence == asked["confidence"] and cell.difference.isfinite():
                    assert cell.low <= pair[row, column].low and cell.high >= pair[row, column].high
                p_value, p_corrected = float(cell.p_value), float(cell.p_corrected)
                finest = max(p_value, 1 / (1 + REPLICATES)) + 1e-6
                if correction == "max-t" and cell.se > 0 and finest <= 1 - confidence + 2e-6 < p_corrected / 2:
                    # The interval holds 0 by the critical value of many draws, not by being extended to 0.
                    assert (cell.low if cell.difference > 0 else cell.high) * cell.difference < 0
                elif finest < min(0.5, p_corrected / 2) and len(confidences) < 3:
                    confidences.append(1 - finest)


def assert_agrees(comparison: Comparison, confidence: float) -> None:
    for index in np.ndindex(comparison.difference.shape):
        one = comparison._map(lambda tensor, index=index: tensor[index])
        if one.difference.isfinite():
            assert contradictions(one, confidence, 1 if one.higher_is_better else -1) == [], one


def assert_table_agrees(table: ComparisonTable, confidence: float) -> None:
    """Corrected p-values agree with the corrected intervals, and both with the verdicts and the ranks."""
    for row, column in itertools.product(table.rows, table.columns):
        if isinstance(cell := table[row, column], Comparison):
            assert_agrees(cell, confidence)
            assert cell.p_corrected is None or cell.p_corrected >= cell.p_value or cell.p_corrected.isnan()
    if "verdict" not in table.columns or RANK_COLUMNS[0] not in table.models.columns:
        return
    wins = []
    for row in table.rows:
        pair, verdict = row.split(" - "), table[row, "verdict"]
        p_value = table[row, "corrected p" if "corrected p" in table.columns else "p"]
        assert (p_value <= 1 - confidence) == (verdict != "undecided")
        wins += [pair if verdict == "better" else pair[::-1]] * (verdict != "undecided")
    winners, losers = ([pair[end] for pair in wins] for end in (0, 1))
    names = table.models.rows
    assert table.ranks == {name: (1 + losers.count(name), len(names) - winners.count(name)) for name in names}
    assert table.best == tuple(name for name in names if name not in losers)


# Values of `compute` that `interval` lacks, with the reason.
OTHER_VALUES = {
    "retrieval.PairwiseROC": "rates of false acceptance are what was asked for",
    "retrieval.AccuracyCalculator": "scores of clusters have no interval",
    "structured.Family": "scores of single labels have no interval",
}
# Metrics with one estimate of all models, and its name; the rows of their tables are models: test_ratings.py.
ESTIMATES_OF_MODELS = {"uncertainty.Ratings": "rating"}


@rows
def test_results_print_and_make_tables(name, case, generator):
    """`compute`, `interval` and `table` report equal values; results print on one line and survive JSON."""
    metric, other = (updated_metric(case, case.inputs(generator, N), ids=ids) for _ in range(2))
    values = metric.compute()
    # The posterior draws the sample size of `compute` by default.
    intervals = metric.interval(**({} if name.startswith("posterior") else OPTIONS))
    values = values._asdict() if isinstance(values, tuple) else values
    if name in ESTIMATES_OF_MODELS:
        assert tuple(values) == intervals.labels
        values = torch.stack([*values.values()])
    values, intervals = (result if isinstance(result, Mapping) else {"": result} for result in (values, intervals))
    compared = 0
    for key, value in values.items():
        key, _, end = key.rpartition("/") if key.endswith(("/low", "/high")) else (key, "", "value")
        if key not in intervals:
            assert name in OTHER_VALUES, key
            continue
        estimate = getattr(intervals[key], end)
        assert torch.equal(estimate, value.to(estimate)) or bool(value.isnan().all()), key
        compared += 1
    assert compared
    for key, estimate in intervals.items():
        assert estimate.name == (key or ESTIMATES_OF_MODELS.get(name, type(metric).__name__))
        if estimate.value.ndim == 0:
            assert float(estimate) == float(estimate.value) or estimate.value.isnan()
            assert "\n" not in f"{estimate}{estimate!r}{estimate:.1%}"
    if name in ESTIMATES_OF_MODELS:
        return
    table = metric.table("one", **OPTIONS) | other.table("two", **OPTIONS)
    assert Table.from_json(table.to_json()) == table and len(table.to_text().splitlines()) == 3
    header, *lines = csv.reader(io.StringIO(table.to_csv()))
    for column, cells in table.columns.items():
        written = [float(line[header.index(column)]) for line in lines]
        assert np.array_equal(written, [float(cell) for cell in cells.value], equal_nan=True)
    assert set(table.to_latex()) <= {*string.printable} and table.to_markdown() and table._repr_html_()


@rows
def test_comparison_holds_estimates_of_both_metrics(name, case, generator):
    inputs = case.inputs(generator, N)
    a, b = (updated_metric(case, inputs, ids=ids) for _ in range(2))
    comparisons = compare(a, b, **OPTIONS)
    estimates = a.interval(**OPTIONS)
    for key, comparison in comparisons.items() if isinstance(comparisons, Mapping) else [("", comparisons)]:
        estimate = estimates[key] if key else estimates
        assert comparison.name == comparison.a.name == estimate.name and comparison.labels == estimate.labels
        assert comparison.higher_is_better is (a._direction(key) is not False)
        if not name.startswith("posterior"):  # whose interval is that of the posterior
            assert all(map(torch.equal, comparison.a, estimate)) and all(map(torch.equal, comparison.b, estimate))
        assert "undecided" in str(comparison.verdict) and len(repr(comparison).splitlines()) <= 21


@rows
def test_interval_after_forward_and_copy_equals_update(name, case, generator):
    inputs = case.inputs(generator, N)
    metric, other = updated_metric(case, inputs), case.make()
    for batch, _ in items_of(other, inputs, torch.arange(N)):
        other(*batch)
    for one, two in zip(estimates_of(metric), estimates_of(copy.deepcopy(other)), strict=True):
        assert torch.equal(one.low, two.low) and torch.equal(one.high, two.high)


def test_page_of_intervals_names_metrics_without_interval():
    text = (Path(__file__).parents[2] / "tensormetrics" / "pages" / "intervals.md").read_text()
    (sentence,) = re.findall(r"`metric\.interval\(\)` of every metric but (.*?), which say why", text, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", sentence)) == {name.partition(".")[2] for name in WITHOUT_INTERVAL}


@pytest.mark.parametrize("name", sorted(WITHOUT_INTERVAL))
def test_metrics_without_interval_raise_not_implemented(name, generator):
    case = METRICS[name]
    metric = case.make()
    metric.update(*case.inputs(generator, N))
    with pytest.raises(NotImplementedError, match=f"^{type(metric).__name__}: "):
        metric.interval()


def intervals_of_rank(rank: int, world: int) -> dict[str, Any]:
    results = {}
    for name, case in TABLE.items():
        inputs = case.inputs(torch.Generator().manual_seed(0), N)
        metric = updated(case.make(), inputs, torch.arange(N)[rank::world], ids=ids)
        results[name] = metric.interval(**OPTIONS)
        if isinstance(metric, SumMetric):
            unnamed = [updated(case.make(), inputs, torch.arange(N)[rank::world]) for _ in range(2)]
            comparison = fields(compare(*unnamed, **OPTIONS), Comparison)[0]
            assert comparison.items == N and "paired by position" in comparison.test
    return results


@pytest.mark.full
def test_two_ranks_and_one_process_agree_exactly():
    answers = ranks.run(intervals_of_rank)
    for name, case in TABLE.items():
        metric = updated_metric(case, case.inputs(torch.Generator().manual_seed(0), N), ids=ids)
        expected = estimates_of(metric)
        for results in answers:
            for estimate, one in zip(fields(results[name], Estimate), expected, strict=True):
                assert torch.equal(estimate.low, one.low) and torch.equal(estimate.high, one.high), name


@pytest.mark.parametrize("name", [name for name, case in TABLE.items() if isinstance(case.make(), SumMetric)])
def test_weights_of_each_update_equal_those_of_the_interval(name, generator):
    case = TABLE[name]
    inputs = case.inputs(generator, N)
    metric = updated_metric(case, inputs, ids=ids)
    args, kwargs = metric._arguments
    streaming = updated(type(metric)(*args, **{**kwargs, **OPTIONS}), inputs, torch.arange(N), ids=ids)
    for one, other in zip(estimates_of(metric), fields(streaming.interval(), Estimate), strict=True):
        assert all(map(torch.equal, one, other)) or bool(one.value.isnan().all())


def asked(name: str, count: int, rank: int = 0, world: int = 1) -> list[Any]:
    """Ask a metric as made by default every question, in batches and merged; nothing if a refusal is documented."""
    case = METRICS[name]
    inputs = case.inputs(torch.Generator().manual_seed(0), count)
    a, b, merged = case.make(), case.make(), case.make()
    for batch in torch.arange(count)[rank::world].split(1 if isinstance(a, Uncertain) else 1 + count // 3 // world):
        for metric in (a, b) if len(batch) else ():
            metric.update(*(tensor[batch] for tensor in inputs))
    for metric in (a, b):
        merged.merge_state(metric)
    if name in WITHOUT_INTERVAL or (count == 1 and name.partition(".")[2] in REFUSE_ONE):
        with pytest.raises((NotImplementedError, ValueError)):
            interval(a)
        return []
    answers = [interval(a), interval(merged), compare(a, b)]
    for answer in answers:
        results = fields(answer, Comparison if hasattr(answer, "p_value") else Result)
        assert str(answer) and repr(answer) and answer.plot() is not None
        table = answer if isinstance(answer, Table) else Table.of({"row": answer})
        assert table.to_latex().startswith(r"\begin{tabular}") and results
    if isinstance(a, SumMetric):
        with pytest.raises(ValueError, match="ids: got none for items of merged metrics"):
            compare(merged, merged)
    return answers


@pytest.mark.filterwarnings("ignore::tensormetrics.uncertainty.UncertaintyWarning")
@pytest.mark.parametrize(
    "count", [*(pytest.param(n, marks=pytest.mark.full) for n in (1, 30)), pytest.param(5000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", METRICS)
def test_metric_as_made_by_default_answers_to_every_question(name, count):
    asked(name, count)


def asked_on_rank(rank: int, world: int, name: str, count: int) -> list[Any]:
    warnings.simplefilter("ignore")
    return asked(name, count, rank, world)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 30, 5000])
@pytest.mark.parametrize("name", METRICS)
def test_metric_as_made_by_default_answers_to_every_question_on_two_ranks(name, count):
    first, second = ranks.run(asked_on_rank, name, count)
    assert first == second
