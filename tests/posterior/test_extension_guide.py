"""The snippets of prob_conf_mat's guide "Extend the Library", with imports of this library instead."""

import numpy as np
import pytest
import torch

from tensormetrics.posterior import get_experiment_aggregator, get_metric, sample_metrics, temporary_registrations

IMPORTS = (
    "from tensormetrics.posterior import Averaging, ExperimentAggregator\n"
    "from tensormetrics.posterior.metrics.registry import ConfusionMetric\n"
    "from tensormetrics.posterior.sampling.rng import RNG\n"
)

FOWLKES_MALLOWS = """
class FowlkesMallows(ConfusionMetric):
    full_name = "Fowlkes Mallows Index"
    is_multiclass = False
    bounds = (0.0, 1.0)
    dependencies = ("ppv", "tpr")
    sklearn_equivalent = "fowlkes_mallows_index"
    aliases = ["fowlkes_mallows", "fm"]
"""

COMPUTE_METRIC = """
    def compute_metric(
        self,
        ppv: jtyping.Float[np.ndarray, " num_samples num_classes"],
        tpr: jtyping.Float[np.ndarray, " num_samples num_classes"],
    ) -> jtyping.Float[np.ndarray, " num_samples num_classes"]:
        return np.sqrt(ppv * tpr)
"""

TAKE_2ND_CLASS = """
class Take2ndClass(Averaging):
    full_name = "Takes 2nd Class Value"
    dependencies = ()
    sklearn_equivalent = "binary, with positive_class=1"
    aliases = ["2nd_class", "two"]
"""

COMPUTE_AVERAGE = """
    def compute_average(self, metric_values):
        scalar_array = metric_values[:, 1]

        return scalar_array
"""

FOO_BAR = """
class FooBar(ConfusionMetric):
    full_name = "FooBar Index"
    is_multiclass = False
    bounds = (0.0, 1.0)
    dependencies = ("tpr",)
    sklearn_equivalent = None
    aliases = ["foobar"]

    def __init__(self, foo: bool = False, bar: int = 1) -> None:
        super().__init__()

        self.foo = foo
        self.bar = bar

    def compute_metric(self, tpr):
        return tpr**self.bar if self.foo else tpr
"""

TAKE_1ST_EXPERIMENT = """
class Take1stExperiment(ExperimentAggregator):
    full_name: str = "Always Takes 1st Experiment Result as Aggregate"
    aliases: list[str] = ("first", "1st")
"""

INIT_OF_THE_AGGREGATOR = """
    def __init__(self, rng: RNG, foo: bool = True, bar: int = 1)  -> None:
        super().__init__(rng=rng)

        self.foo = foo
        self.bar = bar
"""

AGGREGATE = """
    def aggregate(
        self,
        experiment_samples: jtyping.Float[np.ndarray, " num_samples num_experiments"],
        bounds: tuple[float, float],
    ) -> jtyping.Float[np.ndarray, " num_samples"]:
        return experiment_samples[:, 1]
"""


class Subscripted:
    def __class_getitem__(cls, item):
        return cls


class jtyping:  # noqa: N801
    Float = Subscripted


@pytest.fixture
def guide():
    with temporary_registrations():
        yield lambda *parts: exec(IMPORTS + "".join(parts), {"np": np, "jtyping": jtyping})


@pytest.fixture
def counts(device):
    return torch.tensor([[[13, 2, 1], [3, 20, 4], [1, 5, 9]], [[4, 1, 1], [1, 7, 1], [1, 1, 9]]], device=device)


def test_guide_metric_equals_formula(guide, counts):
    guide(FOWLKES_MALLOWS)  # no compute_metric so far
    guide(FOWLKES_MALLOWS, COMPUTE_METRIC)
    fowlkes_mallows, ppv, tpr = sample_metrics(counts, ["fowlkes_mallows", "ppv", "tpr"], 100)
    torch.testing.assert_close(fowlkes_mallows, (ppv * tpr).sqrt())
    assert get_metric("fm") is get_metric("fowlkes_mallows") and fowlkes_mallows.device == counts.device


def test_guide_averaging_selects_second_class(guide, counts):
    guide(FOWLKES_MALLOWS, COMPUTE_METRIC)
    guide(TAKE_2ND_CLASS)
    guide(TAKE_2ND_CLASS, COMPUTE_AVERAGE)
    tpr_of_two, fm_of_two, tpr, fm = sample_metrics(counts, ["tpr@two", "fm@2nd_class", "tpr", "fm"], 100)
    assert torch.equal(tpr_of_two, tpr[..., 1:2]) and torch.equal(fm_of_two, fm[..., 1:2])


def test_guide_metric_parameters_are_options(guide, counts):
    guide(FOO_BAR)
    assert torch.equal(get_metric("foobar+foo=True+bar=2")(counts), get_metric("tpr")(counts) ** 2)
    assert torch.equal(get_metric("foobar")(counts), get_metric("tpr")(counts))


def test_guide_aggregation_selects_second_experiment(guide, device):
    samples = torch.rand(6, 3, device=device)
    guide(TAKE_1ST_EXPERIMENT)
    guide(TAKE_1ST_EXPERIMENT, AGGREGATE)
    assert torch.equal(get_experiment_aggregator("first").aggregate(samples, (0.0, 1.0)), samples[:, 1])
    assert torch.equal(get_experiment_aggregator("1st")(samples, bounds=(0.0, 1.0)), samples[:, 1])


def test_guide_aggregation_parameters_are_options(guide):
    guide(TAKE_1ST_EXPERIMENT, INIT_OF_THE_AGGREGATOR, AGGREGATE)
    aggregator = get_experiment_aggregator("first", foo=False, bar=2)
    assert (aggregator.foo, aggregator.bar) == (False, 2)
