"""Whatever a calculator answers beside its values belongs to the same rows as these values."""

import copy
import pickle

import pytest
import torch
from test_audit import Cells

from tensormetrics.retrieval import AccuracyCalculator, HitRate
from tensormetrics.uncertainty import compare

NAME = "precision_at_1"


def made(**options):
    return AccuracyCalculator(include=(NAME,), **options)


def rows_of(generator, count=60):
    return torch.randn(count, 4, generator=generator), torch.randint(4, (count,), generator=generator)


def fed(x, labels, **options):
    calculator = made(**options)
    calculator.update(x, labels)
    return calculator


def after_update(x, labels):
    calculator = fed(x[:20], labels[:20])
    calculator.compute()
    calculator.update(x[20:], labels[20:])
    return calculator


def after_merge(x, labels):
    calculator = fed(x[:20], labels[:20])
    calculator.compute()
    calculator.merge_state(fed(x[20:], labels[20:]))
    return calculator


def after_load(x, labels):
    calculator, stored = fed(x[:20], labels[:20]), fed(x, labels)
    calculator.compute()
    stored.persistent(True)
    calculator.load_state_dict(stored.state_dict())
    return calculator


def after_forward(x, labels):
    calculator = fed(x[:20], labels[:20])
    calculator.compute()
    calculator(x[20:], labels[20:])
    return calculator


def after_get_accuracy(x, labels):
    calculator = made()
    calculator.get_accuracy(x[:20], labels[:20])
    calculator.update(x, labels)
    return calculator


changes = pytest.mark.parametrize(
    "change",
    [after_update, after_merge, after_load, after_forward, after_get_accuracy],
    ids=lambda change: change.__name__,
)


@changes
def test_interval_after_a_change_is_of_all_rows(change, generator):
    rows = rows_of(generator)
    calculator, expected = change(*rows), fed(*rows)
    assert calculator.last is None and calculator.class_labels is None
    interval, expected_interval = (metric.interval(replicates=50)[NAME] for metric in (calculator, expected))
    assert interval.value == expected_interval.value == calculator.compute()[NAME]
    assert interval.low == expected_interval.low and interval.high == expected_interval.high
    assert interval.items == 60
    assert len(calculator.last.lone) == 60 and torch.equal(calculator.class_labels, expected.class_labels)


@changes
def test_comparison_after_a_change_is_of_all_rows(change, generator):
    x, labels = rows_of(generator)
    assert compare(change(x, labels), fed(x, labels), replicates=50)[NAME].difference == 0
    with pytest.raises(ValueError, match="^a, b: their items differ"):
        compare(change(x, labels), fed(x[:20], labels[:20]), replicates=50)


def test_interval_of_a_calculator_and_of_a_hit_rate_agree_between_updates(generator):
    x, labels = rows_of(generator)
    calculator, metric = made(), HitRate(1)
    for batch in torch.arange(60).split(20):
        for scorer in (calculator, metric):
            scorer.update(x[batch], labels[batch])
        found = calculator.interval(replicates=50)[NAME], metric.interval(replicates=50)
        assert all(torch.equal(*ends) for ends in zip(*found, strict=True))


def test_audit_after_more_updates_is_of_all_rows(generator):
    x, labels = rows_of(generator)
    search = {"knn_func": Cells(), "k": 5, "audit": 60}
    calculator = fed(x[:20], labels[:20], **search)
    calculator.audited()
    calculator.update(x[20:], labels[20:])
    assert torch.equal(calculator.audited()[NAME].value, fed(x, labels, **search).audited()[NAME].value)


def test_interval_after_get_accuracy_is_of_that_call(generator):
    x, labels = rows_of(generator)
    calculator = fed(x, labels)
    calculator.compute()
    value = calculator.get_accuracy(x[:20], labels[:20])[NAME]
    for latest in (calculator, copy.deepcopy(calculator), pickle.loads(pickle.dumps(calculator))):
        assert latest.interval(replicates=50)[NAME].value == value and len(latest.last.lone) == 20
    # The updates were not touched by that call, and a compute makes them the latest ones again.
    assert calculator.compute()[NAME] == fed(x, labels).compute()[NAME]
    assert calculator.interval(replicates=50)[NAME].value == calculator.compute()[NAME]


def test_groups_of_get_accuracy_are_those_of_intervals_and_comparisons(generator):
    x, labels = rows_of(generator)
    groups = torch.arange(len(x)) // 2
    calculators = []
    for rows in (x, x + torch.rand(x.shape, generator=generator)):
        grouped, updated = AccuracyCalculator((NAME,)), AccuracyCalculator((NAME,))
        grouped.get_accuracy(rows, labels, groups=groups)
        updated.update(rows, labels, groups=groups)
        calculators.append((grouped, updated))
    (grouped, updated), others = calculators
    plain = AccuracyCalculator((NAME,))
    plain.get_accuracy(x, labels)
    estimates = [grouped.interval(), plain.interval(groups=groups), updated.interval()]
    assert len({tuple(map(float, estimate[NAME])) for estimate in estimates}) == 1
    comparisons = [compare(*pair, rope=0.1)[NAME] for pair in ((grouped, others[0]), (updated, others[1]))]
    assert comparisons[0].to_dict() == comparisons[1].to_dict()
    assert comparisons[0].groups == len(groups.unique()) < comparisons[0].items
    with pytest.raises(ValueError, match=r"groups: got"):
        plain.get_accuracy(x, labels, groups=groups[:3])


def test_interval_after_a_failed_update_is_still_that_of_compute(generator):
    x, labels = rows_of(generator)
    for metric in (fed(x, labels), HitRate(1)):
        if not metric.update_called:
            metric.update(x, labels)
        before = metric.interval(replicates=50)
        metric.compute()
        with pytest.raises(ValueError, match="embeddings"):
            metric.update(x[:, :2], labels)
        after = metric.interval(replicates=50)
        pairs = zip(before.values(), after.values(), strict=True) if isinstance(before, dict) else [(before, after)]
        assert all(torch.equal(one.low, other.low) for one, other in pairs)


def test_nothing_is_left_of_a_call_after_reset(generator):
    calculator = fed(*rows_of(generator))
    calculator.compute()
    calculator.reset()
    assert calculator.last is None and calculator.class_labels is None
    with pytest.raises(ValueError, match="before update"):
        calculator.interval()
