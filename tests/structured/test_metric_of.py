"""`metric_of`, the attribute `metric` with a type."""

from dataclasses import dataclass

import pytest

from tensormetrics.structured import StructuredMetric, metametric, metric_of


@metametric(normalizer="f1")
@dataclass
class Bag:
    items: list[str]


def test_metric_of_returns_the_attribute():
    metric = metric_of(Bag)
    assert type(metric) is StructuredMetric and metric is Bag.metric
    assert metric.score(Bag(["a", "b"]), Bag(["a", "b", "c"])) == pytest.approx(0.8)  # 2 * 2 / (2 + 3)


@pytest.mark.parametrize("tp", [int, "Bag"])
def test_metric_of_class_without_metric_raises(tp):
    with pytest.raises(TypeError, match=r"^metric_of: got .*, which has no metric; write @metametric above it, or use"):
        metric_of(tp)
