"""Every metric's `plot`: what stands in the axes is what `compute` answers; and `repr`."""

import math

import matplotlib.pyplot as plt
import pytest
import torch
from cases import METRICS
from torch import tensor
from torch.utils._pytree import tree_leaves
from torchmetrics import MetricCollection

from tensormetrics._plots import plot_values
from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.retrieval import AccuracyCalculator, HitRate, TorchKNN
from tensormetrics.uncertainty import Estimate


def points(ax, axis: int) -> list[float]:
    return [float(p) for line in ax.containers for p in line.lines[0].get_data()[axis]]


def middles(value):
    """Estimates stand as points at their medians."""
    if isinstance(value, dict):
        return {key: middles(part) for key, part in value.items()}
    return value.value if isinstance(value, Estimate) else value


@pytest.mark.parametrize("case", METRICS.values(), ids=METRICS.keys())
def test_every_metric_shows_its_values(case, generator):
    metric = case.make()
    metric.update(*case.inputs(generator, 60))
    values = [float(leaf) for leaf in tree_leaves(middles(metric.compute()))]
    figure, ax = metric.plot()
    assert figure is ax.figure and points(ax, 0) == pytest.approx(values, nan_ok=True)
    low, high = metric.plot_lower_bound, metric.plot_upper_bound
    assert all((low is None or value >= low) and (high is None or value <= high) for value in values)
    _, ax = metric.plot([metric.compute(), metric.compute()])
    assert points(ax, 1) == pytest.approx([value for value in values for _ in range(2)], nan_ok=True)


def test_intervals_gaps_and_classes():
    first = {"acc": Estimate(tensor(0.5), tensor(0.3), tensor(0.6)), "tpr": tensor([0.1, 0.2])}
    _, ax = plot_values([first], "x", (0.0, 1.0), True)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["acc", "tpr[0]", "tpr[1]"]
    (bar,) = ax.containers[0].lines[2][0].get_segments()
    assert bar[:, 0].tolist() == pytest.approx([0.3, 0.6]) and ax.get_xlabel() == "x, higher is better"
    assert ax.get_xlim() == pytest.approx((-0.03, 1.03))
    _, ax = plot_values([{"a": 1.0}, {"b": 2.0}], "x")  # a step without a value leaves a gap
    assert points(ax, 1) == pytest.approx([1.0, math.nan, math.nan, 2.0], nan_ok=True)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]


def test_intervals_of_a_confusion_posterior():
    metric = ConfusionPosterior(3, ["acc", "tpr"], num_samples=200)
    metric.update(torch.randint(0, 3, (60,)), torch.randint(0, 3, (60,)))
    found, (_, ax) = metric.compute(), metric.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["acc", "tpr[0]", "tpr[1]", "tpr[2]"]
    bars = [bar.lines[2][0].get_segments()[0][:, 0].tolist() for bar in ax.containers]
    low, high = (torch.cat([getattr(found[name], end).view(-1) for name in found]).tolist() for end in ("low", "high"))
    assert bars == [pytest.approx(ends) for ends in zip(low, high, strict=True)]


def test_given_axes_and_a_collection():
    inputs = torch.randn(30, 3), torch.randint(0, 3, (30,))
    figure, ax = plt.subplots()
    metric = HitRate(2)
    assert metric.plot(metric(*inputs), ax=ax) == (figure, ax)
    plt.close(figure)
    collection = MetricCollection({"a": HitRate(1), "b": HitRate(3)})
    collection.update(*inputs)
    for (_, ax), value in zip(collection.plot(), collection.compute().values(), strict=True):
        assert points(ax, 0) == pytest.approx([float(value)])


def test_repr_shows_what_was_given():
    assert repr(HitRate(2)) == "HitRate(k=2)" and repr(HitRate(k=1, distance="l2")) == "HitRate(k=1, distance='l2')"
    assert repr(AccuracyCalculator(k=None, avg_of_avgs=True)) == "AccuracyCalculator(avg_of_avgs=True)"
    assert repr(AccuracyCalculator(["ndcg"], gains=torch.ones(2, 3))) == (
        "AccuracyCalculator(include=['ndcg'], gains=tensor of (2, 3))"
    )
    assert repr(AccuracyCalculator(kmeans_func=TorchKNN.indices)) == "AccuracyCalculator(kmeans_func=TorchKNN.indices)"
