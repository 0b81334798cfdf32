"""Metrics that store a row per item: ids and groups of items are consistent in updates, merges and checkpoints."""

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
PAIRS = [(name, other) for name in IDENTITIES for other in IDENTITIES if name != other]
every_metric = pytest.mark.parametrize("kind", METRICS)


def columns_of(kind, generator):
    """Return predictions and targets in the order of the arguments of the metric."""
    target = torch.arange(N) % 2
    if kind in (BinaryAUROC, BinaryAveragePrecision):
        return torch.rand(N, generator=generator) + 0.3 * target, target
    return target, torch.where(torch.rand(N, generator=generator) < 0.85, target, 1 - target)


def with_target(kind, columns, target):
    return (columns[0], target) if kind in (BinaryAUROC, BinaryAveragePrecision) else (target, columns[1])


def make_metric(kind, columns, **items):
    metric = kind()
    metric.update(*columns, **items)
    return metric


@every_metric
@pytest.mark.parametrize(("before", "after"), PAIRS, ids=str)
def test_update_with_other_identity_of_items_is_refused(kind, before, after, generator):
    columns = columns_of(kind, generator)
    metric, other = (make_metric(kind, columns, **IDENTITIES[name]) for name in (before, after))
    message = f"^ids, groups: got {after} after updates with {before}; give every update the same, or call reset"
    for change in (
        lambda: metric.update(*columns, **IDENTITIES[after]),
        lambda: metric(*columns, **IDENTITIES[after]),
        lambda: metric.merge_state(other),
    ):
        with pytest.raises(ValueError, match=message):
            change()
    assert {len(rows) for rows in metric.metric_state.values()} <= {0, N}
    metric.merge_state(make_metric(kind, columns, **IDENTITIES[before]))
    assert {len(rows) for rows in metric.metric_state.values()} <= {0, 2 * N}


@every_metric
def test_comparison_of_other_items_is_refused(kind, generator):
    columns, options = columns_of(kind, generator), IDENTITIES["ids and groups"]
    metric = make_metric(kind, columns, **options)
    assert compare(metric, make_metric(kind, columns, **options), replicates=50).difference == 0
    for other in (
        {**options, "ids": torch.arange(N) + 1},
        {**options, "groups": torch.arange(N) % 20},
        {"ids": options["ids"]},
        {"groups": options["groups"] + 1},
    ):
        with pytest.raises(ValueError, match="^a, b: their items differ"):
            compare(metric, make_metric(kind, columns, **other), replicates=50)
    other_target = with_target(kind, columns, 1 - torch.arange(N) % 2)
    with pytest.raises(ValueError, match="^a, b: their items differ"):
        compare(metric, make_metric(kind, other_target, **options), replicates=50)


@every_metric
def test_interval_of_state_with_missing_groups_is_refused(kind, generator):
    metric = make_metric(kind, columns_of(kind, generator), **IDENTITIES["groups"])
    metric.persistent(True)
    restored = kind()
    restored.load_state_dict({**metric.state_dict(), "groups": torch.arange(10)})
    with pytest.raises(ValueError, match="^groups: got some for a part of the items"):
        restored.interval(replicates=50)
