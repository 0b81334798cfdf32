"""Intervals, comparisons and audits cover the same rows as values, by ids, groups and labels of queries."""

import copy
import pickle
from collections.abc import Mapping

import pytest
import torch
from test_sampled_queries import TwoCellIndex

from tensormetrics.retrieval import AccuracyCalculator, FirstRank, HitRate
from tensormetrics.uncertainty import compare

NAME, N = "precision_at_1", 60


def make_calculator(**options):
    return AccuracyCalculator(include=(NAME,), **options)


@pytest.fixture
def rows(generator):
    return torch.randn(N, 4, generator=generator), torch.randint(6, (N,), generator=generator)


def make_updated(x, labels, **options):
    calculator = make_calculator(**options)
    calculator.update(x, labels)
    return calculator


def load_all(calculator, *rows):
    stored = make_updated(*rows)
    stored.persistent(True)
    calculator.load_state_dict(stored.state_dict())


def update_after_get_accuracy(calculator, x, labels):
    calculator.get_accuracy(x[:20], labels[:20])
    calculator.update(x[20:], labels[20:])


CHANGES = {  # of a calculator of the first 20 rows, to one of all
    "update": lambda calculator, x, labels: calculator.update(x[20:], labels[20:]),
    "merge": lambda calculator, x, labels: calculator.merge_state(make_updated(x[20:], labels[20:])),
    "load": load_all,
    "forward": lambda calculator, x, labels: calculator(x[20:], labels[20:]),
    "get_accuracy": update_after_get_accuracy,
}


def changed(change, x, labels):
    calculator = make_updated(x[:20], labels[:20])
    calculator.compute()
    CHANGES[change](calculator, x, labels)
    return calculator


@pytest.mark.parametrize("change", CHANGES)
def test_interval_and_compare_after_state_change_cover_all_rows(change, rows):
    calculator, expected = changed(change, *rows), make_updated(*rows)
    assert calculator.last is None and calculator.class_labels is None
    interval, expected_interval = (metric.interval(replicates=50)[NAME] for metric in (calculator, expected))
    assert interval.value == expected_interval.value == calculator.compute()[NAME]
    assert interval.low == expected_interval.low and interval.high == expected_interval.high
    assert interval.items == 60
    assert len(calculator.last.lone) == 60 and torch.equal(calculator.class_labels, expected.class_labels)
    x, labels = rows
    assert compare(changed(change, x, labels), make_updated(x, labels), replicates=50)[NAME].difference == 0
    with pytest.raises(ValueError, match="^a, b: their items differ"):
        compare(changed(change, x, labels), make_updated(x[:20], labels[:20]), replicates=50)


def test_audit_after_more_updates_covers_all_rows(rows):
    x, labels = rows
    search = {"knn_func": TwoCellIndex(), "k": 5, "audit": 60}
    calculator = make_updated(x[:20], labels[:20], **search)
    calculator.audit_report()
    calculator.update(x[20:], labels[20:])
    assert torch.equal(
        calculator.audit_report()[NAME].value, make_updated(x, labels, **search).audit_report()[NAME].value
    )


def test_interval_after_get_accuracy_describes_that_call(rows):
    x, labels = rows
    calculator = make_updated(x, labels)
    calculator.compute()
    value = calculator.get_accuracy(x[:20], labels[:20])[NAME]
    for latest in (calculator, copy.deepcopy(calculator), pickle.loads(pickle.dumps(calculator))):
        assert latest.interval(replicates=50)[NAME].value == value and len(latest.last.lone) == 20
    # That call does not change the accumulated updates; compute makes them the latest result again.
    assert calculator.compute()[NAME] == make_updated(x, labels).compute()[NAME]
    assert calculator.interval(replicates=50)[NAME].value == calculator.compute()[NAME]


def test_get_accuracy_groups_are_used_by_interval_and_compare(rows):
    x, labels = rows
    groups = torch.arange(len(x)) // 2
    calculators = []
    for embeddings in (x, x + torch.rand(x.shape)):
        grouped, updated = make_calculator(), make_calculator()
        grouped.get_accuracy(embeddings, labels, groups=groups)
        updated.update(embeddings, labels, groups=groups)
        calculators.append((grouped, updated))
    (grouped, updated), others = calculators
    ungrouped = make_calculator()
    ungrouped.get_accuracy(x, labels)
    estimates = [grouped.interval(), ungrouped.interval(groups=groups), updated.interval()]
    assert len({tuple(map(float, estimate[NAME])) for estimate in estimates}) == 1
    comparisons = [compare(*pair, rope=0.1)[NAME] for pair in ((grouped, others[0]), (updated, others[1]))]
    assert comparisons[0].to_dict() == comparisons[1].to_dict()
    assert comparisons[0].groups == len(groups.unique()) < comparisons[0].items
    with pytest.raises(ValueError, match=r"groups: got"):
        ungrouped.get_accuracy(x, labels, groups=groups[:3])


def test_reset_discards_results_of_previous_call(rows):
    calculator = make_updated(*rows)
    calculator.compute()
    calculator.reset()
    assert calculator.last is None and calculator.class_labels is None
    with pytest.raises(ValueError, match="before update"):
        calculator.interval()


@pytest.fixture
def permutation(generator):
    return torch.randperm(N, generator=generator)


def updated_of(make, embeddings, labels, **items):
    metric = make()
    metric.update(embeddings, labels, **items)
    return metric


def make_hit_rate():
    return HitRate(1)


def interval_bounds(metric, **options):
    estimate = metric.interval(replicates=100, **options)[NAME]
    return float(estimate.low), float(estimate.high)


class TestGroups:
    def test_groups_of_shuffled_rows_follow_ids(self, rows, permutation):
        embeddings, labels = rows
        expected = interval_bounds(updated_of(make_calculator, *rows, groups=labels, ids=torch.arange(N)))
        shuffled = updated_of(make_calculator, embeddings[permutation], labels[permutation], ids=permutation)
        assert interval_bounds(shuffled, groups=labels[permutation]) == expected
        assert interval_bounds(shuffled, groups=dict(enumerate(labels.tolist()))) == expected
        assert (
            interval_bounds(shuffled, groups={i: f"class {label}" for i, label in enumerate(labels.tolist())})
            != expected
        )

    def test_groups_of_repeated_ids_need_one_entry_per_row(self, rows, permutation):
        embeddings, labels = rows
        order = torch.cat([permutation, permutation[:4]])  # samplers fill the last batch by repeating items
        metric = updated_of(make_calculator, embeddings[order], labels[order], ids=order)
        expected = interval_bounds(updated_of(make_calculator, *rows, groups=labels, ids=torch.arange(N)))
        assert interval_bounds(metric, groups=labels[order]) == expected
        with pytest.raises(ValueError, match=r"^groups: got shape \(60,\).*pass a mapping from id to group$"):
            metric.interval(groups=labels)

    def test_groups_of_string_ids_may_be_mapping(self, rows):
        labels = rows[1].tolist()
        names = [f"query {i}" for i in range(N)]
        metric = updated_of(make_calculator, *rows, ids=names)
        groups = {name: f"class {label}" for name, label in zip(names, labels, strict=True)}
        expected = updated_of(make_calculator, *rows, ids=names, groups=[*groups.values()])
        assert interval_bounds(metric, groups={"another": "one", **groups}) == interval_bounds(expected)

    @pytest.mark.parametrize("groups", [{}, {0: 1, 1: 1}], ids=str)
    def test_groups_mapping_with_missing_ids_raises(self, groups, rows):
        metric = updated_of(make_calculator, *rows, ids=torch.arange(N))
        with pytest.raises(ValueError, match=rf"^groups: got none for {N - len(groups)} of 60 ids"):
            metric.interval(groups=groups)

    def test_groups_mapping_for_rows_without_ids_raises(self, rows):
        metric = updated_of(make_calculator, *rows)
        with pytest.raises(ValueError, match="^groups: got a mapping, but the items have no ids"):
            metric.interval(groups=dict(enumerate(rows[1].tolist())))

    def test_groups_of_queries_in_two_roles_follow_ids(self, rows, permutation):
        embeddings, labels = rows
        metric, expected = make_calculator(), make_calculator()
        for subset, options in ((permutation[:40], {}), (permutation[40:], {"role": "query"})):
            metric.update(embeddings[subset], labels[subset], ids=subset, **options)
            expected.update(embeddings[subset], labels[subset], ids=subset, groups=labels[subset], **options)
        assert interval_bounds(metric, groups=labels[permutation]) == interval_bounds(expected)


class TestInfinities:
    @pytest.mark.parametrize("average", [{}, {"avg_of_avgs": True}, {"return_per_class": True}], ids=str)
    def test_interval_of_infinite_mean_rank_is_nan(self, average, generator):
        # The classes are separate except for one item, whose three nearest neighbors have the other label.
        labels = torch.arange(40) % 2
        embeddings = 10.0 * labels[:, None] + torch.rand(40, 1, generator=generator)
        embeddings[0] = 10.5
        metric = AccuracyCalculator(include=("mean_rank",), k=3, **average)
        metric.update(embeddings, labels)
        value, (center, low, high) = metric.compute()["mean_rank"], metric.interval(replicates=50)["mean_rank"]
        assert torch.equal(value, center) and value.isinf().any()
        assert low[value.isinf()].isnan().all() and high[value.isinf()].isnan().all()
        assert (low <= value)[value.isfinite()].all() and (value <= high)[value.isfinite()].all()

    def test_interval_without_scored_query_has_shape_of_value(self):
        for metric in (
            AccuracyCalculator(include=(NAME,), return_per_class=True),
            HitRate(1, average="class"),
            FirstRank("median", average="class"),
        ):
            metric.update(torch.rand(9, 2), torch.arange(9))  # no query has a relevant reference
            interval = metric.interval(replicates=20)
            estimate = interval[NAME] if isinstance(interval, Mapping) else interval
            assert {part.shape for part in estimate} == {(0,)}


IDENTITIES = {
    "neither": {},
    "ids": {"ids": torch.arange(N)},
    "groups": {"groups": torch.arange(N) // 3},
    "ids and groups": {"ids": torch.arange(N), "groups": torch.arange(N) // 3},
}
PAIRS = [(before, after) for before in IDENTITIES for after in IDENTITIES if before != after]


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=str)
def test_update_with_different_identifiers_raises(before, after, rows):
    metric, other_metric = (
        updated_of(make_hit_rate, *rows, **IDENTITIES[before]),
        updated_of(make_hit_rate, *rows, **IDENTITIES[after]),
    )
    state = {name: value.clone() for name, value in metric.metric_state.items()}
    message = f"^ids, groups: got {after} after updates with {before}; give every update the same, or call reset"
    for change in (
        lambda: metric.update(*rows, **IDENTITIES[after]),
        lambda: metric(*rows, **IDENTITIES[after]),
        lambda: metric.merge_state(other_metric),
    ):
        with pytest.raises(ValueError, match=message):
            change()
    assert all(torch.equal(value, state[name]) for name, value in metric.metric_state.items())
    metric.update(*(tensor[:0] for tensor in rows))  # an update without items needs no identifiers
    metric.reset()
    metric.update(*rows, **IDENTITIES[after])


def test_compute_with_different_identifiers_per_role_raises(rows):
    metric = updated_of(make_hit_rate, *rows, ids=torch.arange(N))
    metric.update(*rows, role="reference")  # references need no identifiers
    metric.compute()
    metric.update(*rows, role="query", groups=torch.arange(N))
    with pytest.raises(ValueError, match="^ids, groups: got groups after updates with ids"):
        metric.compute()


def test_loaded_state_with_incomplete_groups_raises(rows):
    metric = updated_of(make_hit_rate, *rows, **IDENTITIES["ids and groups"])
    metric.persistent(True)
    other_metric = HitRate(1)
    other_metric.load_state_dict({**metric.state_dict(), "groups": torch.arange(10)})
    with pytest.raises(ValueError, match="^groups: got some for a part of the items"):
        other_metric.compute()


def test_compare_of_different_queries_raises(rows):
    embeddings, labels = rows
    options = IDENTITIES["ids and groups"]
    metric = updated_of(make_hit_rate, *rows, **options)
    for other_options in ({**options, "groups": torch.arange(N) % 20}, {"ids": options["ids"]}):
        with pytest.raises(ValueError, match="^a, b: their items differ"):
            compare(metric, updated_of(make_hit_rate, *rows, **other_options), replicates=50)
    with pytest.raises(ValueError, match="^a, b: their items differ"):
        compare(metric, updated_of(make_hit_rate, embeddings, (labels + 1) % 6, **options), replicates=50)


def test_compare_of_reordered_ids_has_no_difference(rows, permutation):
    embeddings, labels = rows
    a = updated_of(make_calculator, *rows, ids=torch.arange(N))
    b = updated_of(make_calculator, embeddings[permutation], labels[permutation], ids=permutation)
    assert compare(a, b, replicates=50)[NAME].difference == 0
