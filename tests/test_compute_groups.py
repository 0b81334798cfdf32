"""Metrics in a torchmetrics MetricCollection keep one state for all where `update` does the same, and nowhere else."""

import copy
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
import torch
from cases import METRICS, MetricCase
from test_conformance import assert_same, on
from torchmetrics import MetricCollection

from tensormetrics._distributed import constructor_options
from tensormetrics._metric import Metric
from tensormetrics.association import ECT, RND
from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.retrieval import AccuracyCalculator, HitRate, PrecisionAtK
from tensormetrics.structured import SetMatch
from tensormetrics.uncertainty import BinaryAUROC, BinaryAveragePrecision

OTHER_VALUES: dict[str, tuple[Any, ...]] = {  # of options, by their names; a metric may refuse some
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
NEW_OBJECTS = {"Uncertain"}  # rows that make an object for each metric


def variants(case: MetricCase) -> Iterator[Metric]:
    """Yield the metric of the row, and those that differ from it in one option each."""
    made = case.make()
    yield made
    args, kwargs = made._arguments
    for name, values in OTHER_VALUES.items():
        for value in values:
            given = constructor_options(made)
            try:
                if name in given and value != given[name] and "args" not in given:
                    yield type(made)(**{**given, name: value})
                else:
                    yield type(made)(*args, **{**kwargs, name: value})
            except (TypeError, ValueError):
                continue


def fed(metrics: Any, batches: list[tuple[Any, ...]]) -> Any:
    for batch in batches:
        metrics.update(*batch)
    return metrics


@pytest.mark.parametrize("name", METRICS)
def test_a_pair_scores_as_each_alone(name, generator, device):
    """Even where the states are equal after the first batch, because it is empty."""
    case = METRICS[name]
    inputs = on(device, case.inputs(generator, 20))
    batches = [tuple(t[:0] for t in inputs), inputs]
    metrics = [metric.to(device) for metric in variants(case)]
    alone = [fed(copy.deepcopy(metric), batches).compute() for metric in metrics]
    for i, j in combinations(range(len(metrics)), 2):
        pair = fed(MetricCollection({"a": copy.deepcopy(metrics[i]), "b": copy.deepcopy(metrics[j])}), batches)
        for side, k in (("a", i), ("b", j)):
            assert_same(pair[side].compute(), alone[k], where=f"{metrics[i]} and {metrics[j]}")


@pytest.mark.parametrize("name", METRICS)
def test_equal_metrics_share_a_state(name, generator, device):
    case = METRICS[name]
    pair = MetricCollection({"a": case.make(), "b": case.make()}).to(device)
    pair.update(*on(device, case.inputs(generator, 20)))
    assert len(pair.compute_groups) == 1 + (name.rpartition(".")[2] in NEW_OBJECTS)


SCORES, TARGET = torch.tensor([0.1, 0.9, 0.2, 0.95]), torch.tensor([0, 1, 0, 1])


def test_two_thresholds_count_apart():
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
def test_which_metrics_share_before_any_value_tells_them_apart(metrics, groups):
    names = [f"{number}" for number in range(len(metrics))]
    collection = MetricCollection(dict(zip(names, metrics, strict=True)))
    collection._merge_compute_groups()
    assert len(collection.compute_groups) == groups


def test_an_option_that_is_an_object_is_the_same_only_where_it_is_one():
    rule = torch.eq
    one, two = HitRate(1, label_comparison_fn=rule), HitRate(1, label_comparison_fn=rule)
    assert one._defaults.keys() == two._defaults.keys()


def test_the_names_of_states_serve_as_any_keys():
    states = BinaryAUROC()._defaults
    assert {"preds", "more"} - states.keys() == {"more"} and list(states) == ["preds", "target", "ids", "groups"]
    assert len(states) == 4 and states.keys() != states.defaults.keys()
