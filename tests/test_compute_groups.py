"""Metrics in a torchmetrics MetricCollection share one state exactly if their `update` does the same."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cases import METRICS, MetricCase
from test_conformance import assert_same, on
from torchmetrics import MetricCollection

from tensormetrics.association import ECT, RND
from tensormetrics.core.metric.base import Metric
from tensormetrics.core.metric.distributed import constructor_options
from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.retrieval import AccuracyCalculator, HitRate, PrecisionAtK
from tensormetrics.structured import SetMatch
from tensormetrics.uncertainty import BinaryAUROC, BinaryAveragePrecision

OTHER_VALUES: dict[str, tuple[Any, ...]] = {  # option -> values to try; a metric may reject some
    "average": ("micro", "macro"),
    "bins": (3, 15),
    "confidence": (0.5,),
    "constraint": ("->", "<-"),
    "correction": (0, 1),
    "distance": ("l2", "norm"),
    "ignore_index": (0,),
    "link": ("trigger", "order"),
    "normalize_direction": (False,),
    "objective": ("count", "iou"),
    "on_lone": ("zero",),
    "replicates": (3, 5),
    "return_effect_size": (True,),
    "scheme": ("partial", "exact"),
    "seed": (1,),
    "singletons": ("drop",),
    "store_dtype": (torch.float16,),
    "strictness": (0.5,),
    "threshold": (0.3, 0.7),
    "variance": ("population",),
    "weighting": ("plain",),
    "zero_division": (1.0,),
}
NEW_OBJECTS = {"Uncertain"}  # rows whose metrics hold distinct objects


def variants(case: MetricCase) -> Iterator[Metric]:
    """Yield the metric of the row, and metrics that differ from it in one option."""
    made = case.make()
    yield made
    args, kwargs = made._arguments
    for name, values in OTHER_VALUES.items():
        for value in values:
            options = constructor_options(made)
            try:
                if name in options and value != options[name] and "args" not in options:
                    yield type(made)(**{**options, name: value})
                else:
                    yield type(made)(*args, **{**kwargs, name: value})
            except (TypeError, ValueError):
                continue


def fed(metrics: Any, batches: list[tuple[Any, ...]]) -> Any:
    for batch in batches:
        metrics.update(*batch)
    return metrics


@pytest.mark.parametrize("name", METRICS)
def test_collection_of_two_variants_equals_separate_metrics(name, generator, device):
    """The first batch is empty, so that the states of all variants are equal after it."""
    case = METRICS[name]
    inputs = on(device, case.inputs(generator, 20))
    batches = [tuple(t[:0] for t in inputs), inputs]
    metrics = [metric.to(device) for metric in variants(case)]
    expected = [fed(copy.deepcopy(metric), batches).compute() for metric in metrics]
    for metric, value in zip(metrics[1:], expected[1:], strict=True):
        pair = fed(MetricCollection({"a": copy.deepcopy(metrics[0]), "b": copy.deepcopy(metric)}), batches)
        assert_same(pair["a"].compute(), expected[0], where=f"{metrics[0]} beside {metric}")
        assert_same(pair["b"].compute(), value, where=f"{metric} beside {metrics[0]}")


@pytest.mark.parametrize("name", METRICS)
def test_equal_metrics_form_one_compute_group(name, generator, device):
    case = METRICS[name]
    pair = MetricCollection({"a": case.make(), "b": case.make()}).to(device)
    pair.update(*on(device, case.inputs(generator, 20)))
    assert len(pair.compute_groups) == 1 + (name.rpartition(".")[2] in NEW_OBJECTS)


SCORES, TARGET = torch.tensor([0.1, 0.9, 0.2, 0.95]), torch.tensor([0, 1, 0, 1])


def test_metrics_with_other_threshold_keep_separate_counts():
    metrics = {
        "m": ConfusionPosterior(2, "acc", threshold=0.5),
        "n": ConfusionPosterior(2, "f1", threshold=0.7),
        "o": ConfusionPosterior(2, "f1", threshold=0.5, seed=3),
    }
    pair = fed(MetricCollection(metrics), [(SCORES, TARGET), (torch.tensor([0.6, 0.6]), torch.tensor([1, 0]))])
    assert pair["m"].counts.tolist() == pair["o"].counts.tolist() == [[2, 1], [0, 3]]
    assert pair["n"].counts.tolist() == [[3, 0], [1, 2]]
    assert list(pair.compute_groups.values()) == [["m", "o"], ["n"]]


@pytest.mark.parametrize(
    ("metrics", "groups"),
    [
        ((HitRate(1), PrecisionAtK(2), AccuracyCalculator(distance="l2", device="cpu")), 2),
        ((HitRate(1), PrecisionAtK(2), HitRate(1, store_dtype=torch.float64)), 2),
        ((BinaryAUROC(), BinaryAveragePrecision()), 1),
        ((RND(), ECT()), 2),
        ((SetMatch(), SetMatch("->"), SetMatch("<->")), 3),
    ],
)
def test_compute_groups_before_update_follow_options(metrics, groups):
    names = [f"{index}" for index in range(len(metrics))]
    collection = MetricCollection(dict(zip(names, metrics, strict=True)))
    collection._merge_compute_groups()
    assert len(collection.compute_groups) == groups


def test_object_option_is_compared_by_identity():
    rule = torch.eq
    one, two = HitRate(1, label_comparison_fn=rule), HitRate(1, label_comparison_fn=rule)
    assert one._defaults.keys() == two._defaults.keys()


def test_defaults_keys_behave_like_dictionary_keys():
    states = BinaryAUROC()._defaults
    assert {"preds", "more"} - states.keys() == {"more"} and list(states) == ["preds", "target", "ids", "groups"]
    assert len(states) == 4 and states.keys() != states.defaults.keys()
