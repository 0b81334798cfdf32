"""Intervals, comparisons and audits of a calculator cover the same rows as its values."""

import copy
import pickle

import pytest
import torch
from test_audit import TwoCellIndex

from tensormetrics.retrieval import AccuracyCalculator, HitRate
from tensormetrics.uncertainty import compare

NAME = "precision_at_1"


def make_calculator(**options):
    return AccuracyCalculator(include=(NAME,), **options)


def make_rows(generator, count=60):
    return torch.randn(count, 4, generator=generator), torch.randint(4, (count,), generator=generator)


def make_updated(x, labels, **options):
    calculator = make_calculator(**options)
    calculator.update(x, labels)
    return calculator


def after_update(x, labels):
    calculator = make_updated(x[:20], labels[:20])
    calculator.compute()
    calculator.update(x[20:], labels[20:])
    return calculator


def after_merge(x, labels):
    calculator = make_updated(x[:20], labels[:20])
    calculator.compute()
    calculator.merge_state(make_updated(x[20:], labels[20:]))
    return calculator


def after_load(x, labels):
    calculator, stored = make_updated(x[:20], labels[:20]), make_updated(x, labels)
    calculator.compute()
    stored.persistent(True)
    calculator.load_state_dict(stored.state_dict())
    return calculator


def after_forward(x, labels):
    calculator = make_updated(x[:20], labels[:20])
    calculator.compute()
    calculator(x[20:], labels[20:])
    return calculator


def after_get_accuracy(x, labels):
    calculator = make_calculator()
    calculator.get_accuracy(x[:20], labels[:20])
    calculator.update(x, labels)
    return calculator


@pytest.mark.parametrize(
    "change",
    [after_update, after_merge, after_load, after_forward, after_get_accuracy],
    ids=lambda change: change.__name__,
)
def test_interval_and_compare_after_state_change_cover_all_rows(change, generator):
    rows = make_rows(generator)
    calculator, expected = change(*rows), make_updated(*rows)
    assert calculator.last is None and calculator.class_labels is None
    interval, expected_interval = (metric.interval(replicates=50)[NAME] for metric in (calculator, expected))
    assert interval.value == expected_interval.value == calculator.compute()[NAME]
    assert interval.low == expected_interval.low and interval.high == expected_interval.high
    assert interval.items == 60
    assert len(calculator.last.lone) == 60 and torch.equal(calculator.class_labels, expected.class_labels)
    x, labels = rows
    assert compare(change(x, labels), make_updated(x, labels), replicates=50)[NAME].difference == 0
    with pytest.raises(ValueError, match="^a, b: their items differ"):
        compare(change(x, labels), make_updated(x[:20], labels[:20]), replicates=50)


def test_interval_between_updates_equals_that_of_hit_rate(generator):
    x, labels = make_rows(generator)
    calculator, metric = make_calculator(), HitRate(1)
    for batch in torch.arange(60).split(20):
        for scorer in (calculator, metric):
            scorer.update(x[batch], labels[batch])
        intervals = calculator.interval(replicates=50)[NAME], metric.interval(replicates=50)
        assert all(torch.equal(*bounds) for bounds in zip(*intervals, strict=True))


def test_audit_after_more_updates_covers_all_rows(generator):
    x, labels = make_rows(generator)
    search = {"knn_func": TwoCellIndex(), "k": 5, "audit": 60}
    calculator = make_updated(x[:20], labels[:20], **search)
    calculator.audit_report()
    calculator.update(x[20:], labels[20:])
    assert torch.equal(
        calculator.audit_report()[NAME].value, make_updated(x, labels, **search).audit_report()[NAME].value
    )


def test_interval_after_get_accuracy_describes_that_call(generator):
    x, labels = make_rows(generator)
    calculator = make_updated(x, labels)
    calculator.compute()
    value = calculator.get_accuracy(x[:20], labels[:20])[NAME]
    for latest in (calculator, copy.deepcopy(calculator), pickle.loads(pickle.dumps(calculator))):
        assert latest.interval(replicates=50)[NAME].value == value and len(latest.last.lone) == 20
    # That call does not change the accumulated updates; compute makes them the latest result again.
    assert calculator.compute()[NAME] == make_updated(x, labels).compute()[NAME]
    assert calculator.interval(replicates=50)[NAME].value == calculator.compute()[NAME]


def test_get_accuracy_groups_are_used_by_interval_and_compare(generator):
    x, labels = make_rows(generator)
    groups = torch.arange(len(x)) // 2
    calculators = []
    for rows in (x, x + torch.rand(x.shape, generator=generator)):
        grouped, updated = AccuracyCalculator((NAME,)), AccuracyCalculator((NAME,))
        grouped.get_accuracy(rows, labels, groups=groups)
        updated.update(rows, labels, groups=groups)
        calculators.append((grouped, updated))
    (grouped, updated), others = calculators
    ungrouped = AccuracyCalculator((NAME,))
    ungrouped.get_accuracy(x, labels)
    estimates = [grouped.interval(), ungrouped.interval(groups=groups), updated.interval()]
    assert len({tuple(map(float, estimate[NAME])) for estimate in estimates}) == 1
    comparisons = [compare(*pair, rope=0.1)[NAME] for pair in ((grouped, others[0]), (updated, others[1]))]
    assert comparisons[0].to_dict() == comparisons[1].to_dict()
    assert comparisons[0].groups == len(groups.unique()) < comparisons[0].items
    with pytest.raises(ValueError, match=r"groups: got"):
        ungrouped.get_accuracy(x, labels, groups=groups[:3])


def test_interval_after_failed_update_is_unchanged(generator):
    x, labels = make_rows(generator)
    for metric in (make_updated(x, labels), HitRate(1)):
        if not metric.update_called:
            metric.update(x, labels)
        before = metric.interval(replicates=50)
        metric.compute()
        with pytest.raises(ValueError, match="embeddings"):
            metric.update(x[:, :2], labels)
        after = metric.interval(replicates=50)
        pairs = zip(before.values(), after.values(), strict=True) if isinstance(before, dict) else [(before, after)]
        assert all(torch.equal(interval_before.low, interval_after.low) for interval_before, interval_after in pairs)


def test_reset_discards_results_of_previous_call(generator):
    calculator = make_updated(*make_rows(generator))
    calculator.compute()
    calculator.reset()
    assert calculator.last is None and calculator.class_labels is None
    with pytest.raises(ValueError, match="before update"):
        calculator.interval()
