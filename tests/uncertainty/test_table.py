"""Every metric x what can be said of it: an interval, groups, a comparison, all the same on two ranks as on one.

The table is generated: what a metric cannot do must stand below with its reason.
"""

import copy
import csv
import inspect
import io
import itertools
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import METRICS, MetricCase
from test_one_story import contradictions
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tensormetrics._metric import Metric
from tensormetrics._sum_metric import SumMetric
from tensormetrics.structured import Suite
from tensormetrics.uncertainty import Comparison, Estimate, Table, Uncertain, UncertaintyWarning, compare

N, REPLICATES = 60, 40

# What a metric cannot do, and why.
HOLES = {
    "association.CEAT": "its items are samples of contexts, no words; it has a standard error of its own",
    "retrieval.AdjustedMutualInfo": "simulated intervals of 10 clusters hold the truth in less than 70 % of data sets",
}


def fields(answer: Any, kind: type) -> list[Any]:
    """The estimates or comparisons in an answer: one, or several by name."""
    found = list(answer.values()) if isinstance(answer, dict) else [answer]
    assert found and all(isinstance(each, kind) for each in found)
    return found


def made(case: MetricCase) -> Metric:
    """As the row says, with replicates where the metric keeps sums."""
    metric = case.make()
    if not isinstance(metric, SumMetric | Suite) or metric.replicates:
        return metric
    if type(metric).no_interval is not Metric.no_interval:
        return metric
    args, kwargs = metric._arguments
    return type(metric)(*args, **{**kwargs, "replicates": REPLICATES})


def options(metric: Metric) -> dict[str, int]:
    return {} if isinstance(metric, SumMetric | Suite) else {"replicates": REPLICATES}


def items_of(metric: Metric, inputs: tuple[Tensor, ...], order: Tensor, **identity: Tensor) -> Iterator[tuple]:
    """Batches in an order, with the identity of their items; one item at a time where a metric wants that."""
    for batch in order.split(1 if isinstance(metric, Uncertain) else 23):
        given = {name: values[batch] for name, values in identity.items()}
        if isinstance(metric, Uncertain):
            given = {name: values[0] for name, values in given.items()}
        yield tuple(side[batch] for side in inputs), given


def fed(case: MetricCase, inputs: tuple[Tensor, ...], order: Tensor | None = None, **identity: Tensor) -> Metric:
    metric = made(case)
    for batch, given in items_of(metric, inputs, torch.arange(N) if order is None else order, **identity):
        metric.update(*batch, **given)
    return metric


OTHER_ITEMS = {
    "retrieval.RunMetric": "its items are queries, which `indexes` names; see test_run_metric.py",
    "uncertainty.PassAtK": "its items are problems, which `problem_ids` names; see test_passes.py",
}
TABLE = {name: case for name, case in METRICS.items() if name not in HOLES | OTHER_ITEMS}
rows = pytest.mark.parametrize(("name", "case"), TABLE.items(), ids=TABLE.keys())
ids = torch.arange(N) * 7 + 2**40
# Metrics whose groups are their items, and which have no value of one.
WITHOUT_A_VALUE_OF_ONE = {"association.ResidualBias": "a word is predicted from the other words"}
REPLICATES_ALONE = "uncertainty.BinaryAUROC", "uncertainty.BinaryAveragePrecision"  # no functions of sums of units


@rows
def test_interval_in_any_order_of_batches(name, case, generator):
    inputs = case.inputs(generator, N)
    metric = fed(case, inputs, ids=ids)
    shuffled = fed(case, inputs, torch.randperm(N, generator=generator), ids=ids)
    found = fields(metric.interval(**options(metric)), Estimate)
    for value, low, high in found:
        assert value.shape == low.shape == high.shape and (low <= high).all()
    assert any((high > low).any() for _, low, high in found)
    values = tree_leaves(metric.compute())
    if len(values) == len(found):
        for leaf, estimate in zip(values, found, strict=True):
            torch.testing.assert_close(estimate.value, leaf, rtol=0, atol=2e-2)  # a posterior's is its median
    for one, other in zip(found, fields(shuffled.interval(**options(shuffled)), Estimate), strict=True):
        for end in ("low", "high"):
            assert torch.equal(getattr(one, end), getattr(other, end)), "the ends depend on the order of the batches"


@rows
def test_groups_share_a_weight(name, case, generator):
    inputs = case.inputs(generator, N)
    alone = fed(case, inputs, ids=ids)
    # Each item a group of its own, by the numbers of the ids, is as without groups.
    single = fed(case, inputs, groups=ids)
    for one, other in zip(found_in(alone), found_in(single), strict=True):
        if not name.startswith("posterior"):  # there a posterior of counts becomes one of weights
            assert torch.equal(one.low, other.low) and torch.equal(one.high, other.high)
    # All items in one group: nothing is known of the spread.
    if name.startswith("posterior") or name in REPLICATES_ALONE:
        return
    whole = fed(case, inputs, groups=torch.zeros(N, dtype=torch.int64))
    if name in WITHOUT_A_VALUE_OF_ONE:
        with pytest.warns(UncertaintyWarning, match="^one item: its spread cannot be known"):
            estimates = found_in(whole)
        assert all(estimate.value.isnan() and estimate.items == estimate.groups == 1 for estimate in estimates)
        return
    with pytest.warns(UncertaintyWarning, match="^one group: its spread cannot be known"):
        estimates = found_in(whole)
    lowest, highest = whole.value_range()
    for estimate, one in zip(estimates, found_in(alone), strict=True):
        assert (estimate.low <= one.low).all() and (estimate.high >= one.high).all() and estimate.groups == 1
        assert (estimate.low == lowest).all() or not isinstance(lowest, float) or name == "retrieval.AccuracyCalculator"
        assert (
            (estimate.high == highest).all() or not isinstance(highest, float) or name == "retrieval.AccuracyCalculator"
        )


def found_in(metric: Metric) -> list[Estimate]:
    return fields(metric.interval(**options(metric)), Estimate)


@rows
def test_comparison_of_equal_and_of_different_items(name, case, generator):
    inputs = case.inputs(generator, N)
    a, b = (fed(case, inputs, ids=ids) for _ in range(2))
    for found in fields(compare(a, b, rope=0.1, **options(a)), Comparison):
        assert not found.difference.any() and (found.low <= 0).all() and (found.high >= 0).all()
        assert (found.p_better == 0.5).all() and (found.p_rope > 0.5).all() and (found.p_value == 1).all()
    others = fed(case, inputs, ids=ids + 1)
    with pytest.raises(ValueError, match="^a, b: their items differ"):
        compare(a, others, **options(a))


@rows
def test_comparison_tells_one_story(name, case, generator):
    """With a number and with scores of other predictions, where these can be paired; of two sides and of one."""
    metric, other = (fed(case, case.inputs(generator, N), ids=ids) for _ in range(2))
    estimate = found_in(metric)[0]
    number = float(estimate.low.flatten()[0].lerp(estimate.value.flatten()[0], 0.2))
    for b, confidence, side in itertools.product((number, other), (0.6, 0.95), ("two-sided", "greater", "less")):
        try:
            result = compare(metric, b, confidence=confidence, alternative=side, **options(metric))
        except ValueError as error:
            assert b is other and str(error).startswith("a, b: their ")
            continue
        for key, comparison in result.items() if isinstance(result, dict) else [("", result)]:
            assert comparison.alternative == side
            for index in np.ndindex(comparison.difference.shape):
                one = comparison._map(lambda tensor, index=index: tensor[index])
                if one.difference.isfinite():
                    assert contradictions(one, confidence, 1 if metric._direction(key) is not False else -1) == []


# Values that `compute` has and `interval` has not, and why.
OTHER_VALUES = {
    "retrieval.PairwiseROC": "rates of false acceptance are what was asked for",
    "retrieval.AccuracyCalculator": "scores of clusters have no interval",
    "structured.Family": "scores of single labels have no interval",
    "structured.Suite": "scores of single labels have no interval",
}
# Metrics with one estimate of all models, and its name; the rows of their tables are models: test_ratings.py.
ESTIMATES_OF_MODELS = {"uncertainty.Ratings": "rating"}


@rows
def test_results_are_numbers_that_print_and_make_tables(name, case, generator):
    """`compute`, `interval` and `table` state one value; results print in a line each and come back from JSON."""
    metric, other = (fed(case, case.inputs(generator, N), ids=ids) for _ in range(2))
    values = metric.compute()
    intervals = metric.interval(**({} if name.startswith("posterior") else options(metric)))  # as `compute` draws
    values = values._asdict() if isinstance(values, tuple) else values
    if name in ESTIMATES_OF_MODELS:
        assert tuple(values) == intervals.labels
        values = torch.stack([*values.values()])
    values, intervals = (each if isinstance(each, dict) else {"": each} for each in (values, intervals))
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
    table = metric.table("one", **options(metric)) | other.table("two", **options(other))
    assert Table.from_json(table.to_json()) == table and len(str(table).splitlines()) == 3
    header, *lines = csv.reader(io.StringIO(table.to_csv()))
    for column, cells in table.columns.items():
        written = [float(line[header.index(column)]) for line in lines]
        assert np.array_equal(written, [float(cell) for cell in cells.value], equal_nan=True)
    assert set(table.to_latex()) <= {*string.printable} and table.to_markdown() and table._repr_html_()


@rows
def test_comparisons_know_both_scores(name, case, generator):
    inputs = case.inputs(generator, N)
    a, b = (fed(case, inputs, ids=ids) for _ in range(2))
    found = compare(a, b, **options(a))
    estimates = a.interval(**options(a))
    for key, comparison in found.items() if isinstance(found, dict) else [("", found)]:
        estimate = estimates[key] if key else estimates
        assert comparison.name == comparison.a.name == estimate.name and comparison.labels == estimate.labels
        assert comparison.higher_is_better is (a._direction(key) is not False)
        if not name.startswith("posterior"):  # whose interval is that of the posterior
            assert all(map(torch.equal, comparison.a, estimate)) and all(map(torch.equal, comparison.b, estimate))
        assert "undecided" in str(comparison.verdict) and len(repr(comparison).splitlines()) <= 21


@rows
def test_forward_and_copies_draw_alike(name, case, generator):
    inputs = case.inputs(generator, N)
    metric, other = fed(case, inputs), made(case)
    for batch, _ in items_of(other, inputs, torch.arange(N)):
        other(*batch)
    for one, two in zip(found_in(metric), found_in(copy.deepcopy(other)), strict=True):
        assert torch.equal(one.low, two.low) and torch.equal(one.high, two.high)


def test_the_page_of_intervals_names_the_metrics_without_one():
    text = (Path(__file__).parents[2] / "tensormetrics" / "pages" / "intervals.md").read_text()
    (sentence,) = re.findall(r"`metric\.interval\(\)` of every metric but (.*?), which say why", text, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", sentence)) == {name.partition(".")[2] for name in HOLES}


@pytest.mark.parametrize("name", sorted(HOLES.keys() & METRICS.keys()))
def test_holes_say_why(name, generator):
    case = METRICS[name]
    metric = made(case)
    metric.update(*case.inputs(generator, N))
    with pytest.raises(NotImplementedError, match=f"^{type(metric).__name__}: "):
        metric.interval()


def run_rank(rank: int, world: int, folder: str) -> None:
    store = f"file://{folder}/store"
    torch.distributed.init_process_group("gloo", store, rank=rank, world_size=world)
    try:
        results = {}
        for name, case in TABLE.items():
            inputs = case.inputs(torch.Generator().manual_seed(0), N)
            metric = made(case)
            for batch, given in items_of(metric, inputs, torch.arange(N)[rank::world], ids=ids):
                metric.update(*batch, **given)
            results[name] = metric.interval(**options(metric))
        torch.save(results, Path(folder) / f"{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()


def test_two_ranks_and_one_process_agree_bit_for_bit(tmp_path):
    torch.multiprocessing.spawn(run_rank, args=(2, str(tmp_path)), nprocs=2)
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2)]
    for name, case in TABLE.items():
        metric = fed(case, case.inputs(torch.Generator().manual_seed(0), N), ids=ids)
        wanted = found_in(metric)
        for results in ranks:
            for estimate, one in zip(fields(results[name], Estimate), wanted, strict=True):
                assert torch.equal(estimate.low, one.low) and torch.equal(estimate.high, one.high), name


def test_every_update_takes_ids_and_groups():
    for name, case in TABLE.items():
        parameters = inspect.signature(type(case.make()).update).parameters.values()
        assert any(p.kind is p.VAR_KEYWORD or p.name == "ids" for p in parameters), name
