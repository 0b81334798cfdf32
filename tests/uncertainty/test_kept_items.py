"""Metrics that keep a row of each item: who the items are is neither lost nor mixed."""

import pytest
import torch

from tensormetrics.retrieval import AdjustedRand, ClusterAccuracy
from tensormetrics.uncertainty import BinaryAUROC, BinaryAveragePrecision, compare

N = 40
METRICS = BinaryAUROC, BinaryAveragePrecision, AdjustedRand, ClusterAccuracy
IDENTITIES = {
    "neither": {},
    "ids": {"ids": torch.arange(N)},
    "groups": {"groups": torch.arange(N) // 2},
    "ids and groups": {"ids": torch.arange(N), "groups": torch.arange(N) // 2},
}
PAIRS = [(one, other) for one in IDENTITIES for other in IDENTITIES if one != other]
every_metric = pytest.mark.parametrize("kind", METRICS)


def columns_of(kind, generator):
    """What the metric scores, and what it is scored against, in the order of its arguments."""
    target = torch.arange(N) % 2
    if kind in (BinaryAUROC, BinaryAveragePrecision):
        return torch.rand(N, generator=generator) + 0.3 * target, target
    return target, torch.where(torch.rand(N, generator=generator) < 0.7, target, 1 - target)


def with_target(kind, columns, target):
    return (columns[0], target) if kind in (BinaryAUROC, BinaryAveragePrecision) else (target, columns[1])


def fed(kind, columns, **items):
    metric = kind()
    metric.update(*columns, **items)
    return metric


@every_metric
@pytest.mark.parametrize(("before", "after"), PAIRS, ids=str)
def test_items_identified_in_two_ways_are_refused(kind, before, after, generator):
    columns = columns_of(kind, generator)
    metric, other = (fed(kind, columns, **IDENTITIES[name]) for name in (before, after))
    message = f"^ids, groups: got {after} after updates with {before}; give every update the same, or call reset"
    for change in (
        lambda: metric.update(*columns, **IDENTITIES[after]),
        lambda: metric(*columns, **IDENTITIES[after]),
        lambda: metric.merge_state(other),
    ):
        with pytest.raises(ValueError, match=message):
            change()
    assert {len(rows) for rows in metric.metric_state.values()} <= {0, N}
    metric.merge_state(fed(kind, columns, **IDENTITIES[before]))
    assert {len(rows) for rows in metric.metric_state.values()} <= {0, 2 * N}


@every_metric
def test_comparison_of_other_items_is_refused(kind, generator):
    columns, options = columns_of(kind, generator), IDENTITIES["ids and groups"]
    metric = fed(kind, columns, **options)
    assert compare(metric, fed(kind, columns, **options), replicates=50).difference == 0
    for other in (
        {**options, "ids": torch.arange(N) + 1},
        {**options, "groups": torch.arange(N) % 20},
        {"ids": options["ids"]},
        {"groups": options["groups"] + 1},
    ):
        with pytest.raises(ValueError, match="^a, b: their items differ"):
            compare(metric, fed(kind, columns, **other), replicates=50)
    other_target = with_target(kind, columns, 1 - torch.arange(N) % 2)
    with pytest.raises(ValueError, match="^a, b: their items differ"):
        compare(metric, fed(kind, other_target, **options), replicates=50)


@every_metric
@pytest.mark.parametrize("name", IDENTITIES)
def test_state_with_one_column_for_ids_or_groups_is_read(kind, name, generator):
    # As earlier versions wrote it.
    metric = fed(kind, columns_of(kind, generator), **IDENTITIES[name])
    metric.persistent(True)
    state = metric.state_dict()
    ids, groups = state.pop("ids"), state.pop("groups")
    restored = kind()
    restored.load_state_dict({**state, "units": groups if len(groups) else ids})
    interval, expected = (scorer.interval(replicates=50) for scorer in (restored, metric))
    assert all(torch.equal(*ends) for ends in zip(interval, expected, strict=True))


@every_metric
def test_state_of_a_part_of_the_groups_is_refused(kind, generator):
    metric = fed(kind, columns_of(kind, generator), **IDENTITIES["groups"])
    metric.persistent(True)
    restored = kind()
    restored.load_state_dict({**metric.state_dict(), "groups": torch.arange(10)})
    with pytest.raises(ValueError, match="^groups: got some for a part of the items"):
        restored.interval(replicates=50)
