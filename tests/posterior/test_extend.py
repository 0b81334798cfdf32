import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics.posterior import (
    AGGREGATION_REGISTRY,
    AVERAGING_REGISTRY,
    METRIC_REGISTRY,
    Averaging,
    ExperimentAggregator,
    get_experiment_aggregator,
    get_metric,
    sample_metrics,
    temporary_registrations,
)
from tensormetrics.posterior.metrics.registry import ConfusionMetric
from tensormetrics.posterior.sampling.rng import RNG

REGISTRIES = METRIC_REGISTRY, AVERAGING_REGISTRY, AGGREGATION_REGISTRY
ABSENT = object()
COUNTS = torch.tensor([[[13, 2, 1], [3, 20, 4], [1, 5, 9]], [[4, 1, 1], [1, 7, 1], [1, 1, 9]]])


@pytest.fixture(autouse=True)
def registrations():
    with temporary_registrations():
        yield


def metric(base=ConfusionMetric, method="compute_metric", **attributes):
    """Define a class with all that a metric needs; `attributes` replace entries, ABSENT removes one."""
    body = {
        "full_name": "Fancy Index",
        "is_multiclass": False,
        "bounds": (0.0, 1.0),
        "dependencies": ("ppv", "tpr"),
        "sklearn_equivalent": None,
        "aliases": ["fancy"],
        "compute_metric": lambda self, ppv, tpr: ppv * tpr,
        **attributes,
    }
    return type("Fancy", (base,), {name: value for name, value in body.items() if value is not ABSENT})


def averaging(**attributes):
    return metric(Averaging, **{"compute_metric": ABSENT, "dependencies": (), "aliases": ["odd"], **attributes})


def test_new_metric_is_available_by_name(device):
    cls = metric(compute_metric=lambda self, ppv, tpr: np.sqrt(ppv * tpr))
    assert METRIC_REGISTRY["fancy"] is cls
    counts = COUNTS.to(device)
    product = get_metric("ppv")(counts) * get_metric("tpr")(counts)
    torch.testing.assert_close(get_metric("fancy")(counts), product.sqrt())
    torch.testing.assert_close(get_metric("fancy@macro")(counts), product.sqrt().mean(-1, keepdim=True))
    samples, precision, recall = sample_metrics(counts, ["fancy", "ppv", "tpr"], 50)
    torch.testing.assert_close(samples, (precision * recall).sqrt())
    assert type(samples) is torch.Tensor and samples.dtype == torch.float32


def test_micro_average_of_user_metric_uses_pooled_counts():
    metric()
    metric(aliases=["by_roots"], dependencies=("p_pred", "tp"), compute_metric=lambda self, p_pred, tp: tp / p_pred)
    accuracy = get_metric("acc")(COUNTS)
    torch.testing.assert_close(get_metric("fancy@micro")(COUNTS), accuracy**2)
    torch.testing.assert_close(get_metric("by_roots@micro")(COUNTS), accuracy)
    metric(
        aliases=["cells"],
        dependencies=("p_pred_given_condition",),
        compute_metric=lambda self, p_pred_given_condition: p_pred_given_condition.amax(-1),
    )
    metric(aliases=["costly"], dependencies=("mae", "tpr"), compute_metric=lambda self, mae, tpr: tpr - mae)
    for name in "cells", "costly":
        with raises(
            ValueError,
            f"metric '{name}@micro': '{name}' needs the cells of the confusion matrix, which 'micro' does not have; "
            "write '@macro' or '@weighted'",
        ):
            get_metric(f"{name}@micro")


def test_metric_dependency_is_evaluated_once():
    calls = []

    def compute(self, fn):
        calls.append(fn.shape)
        return fn

    metric(dependencies=("fn",), compute_metric=compute, aliases=["counted"])
    metric(dependencies=("counted",), compute_metric=lambda self, counted: counted + 1, aliases=["more"])
    metric(dependencies=("mae", "counted"), compute_metric=lambda self, mae, counted: counted + mae, aliases=["most"])
    sample_metrics(COUNTS, ["more", "counted", "counted@macro", "more@max"], 7)
    assert calls == [(14, 3)]
    torch.testing.assert_close(get_metric("most")(COUNTS), get_metric("mae")(COUNTS) + get_metric("counted")(COUNTS))


def test_metric_options_are_part_of_name():
    class Powered(ConfusionMetric):
        full_name = "Powered"
        is_multiclass = False
        bounds = (0.0, 1.0)
        dependencies = ("tpr",)
        sklearn_equivalent = None
        aliases = ["powered"]

        def __init__(self, power: float = 1.0, invert: bool = False):
            super().__init__()
            self.power, self.invert = power, invert

        def compute_metric(self, tpr):
            return (1 - tpr if self.invert else tpr) ** self.power

    tpr = get_metric("tpr")(COUNTS)
    torch.testing.assert_close(get_metric("powered+invert=True+power=2")(COUNTS), (1 - tpr) ** 2)
    assert get_metric("powered+power=2+invert=true") is get_metric("powered+invert=True+power=2.0")
    assert get_metric("powered+power=1") is get_metric("powered") and Powered(3).name == "powered+power=3.0"
    message = "metric 'powered+exponent=2': 'powered' has no option 'exponent'; it has power, invert"
    with raises(ValueError, message):
        get_metric("powered+exponent=2")


def test_user_averaging_receives_dependencies():
    averaging(compute_average=lambda self, values: values[:, 1])
    averaging(
        aliases=["by_prediction"],
        dependencies=("p_pred",),
        compute_average=lambda self, values, p_pred: np.sum(values * p_pred, axis=1, keepdims=True),
    )
    tpr, q = get_metric("tpr")(COUNTS), get_metric("p_pred")(COUNTS)
    assert torch.equal(get_metric("tpr@odd")(COUNTS), tpr[:, 1:2])
    torch.testing.assert_close(get_metric("tpr@by_prediction")(COUNTS), (tpr * q).sum(-1, keepdim=True))


def test_incomplete_classes_are_not_registered():
    before = [dict(registry) for registry in REGISTRIES]
    metric(compute_metric=ABSENT), averaging(), type("Half", (ExperimentAggregator,), {"aliases": ["half"]})
    type("Bare", (ConfusionMetric,), {})
    assert [dict(registry) for registry in REGISTRIES] == before


@pytest.mark.parametrize(
    ("names", "message"),
    [
        *(
            (names, f"got {names!r}, wanted a list of distinct names without blanks, @, +, = and /")
            for names in ([], "fancy", ["new", "a b"], ["new", "a@b"], ["new", "new"])
        ),
        *(
            (["new", name], f"{name!r} belongs to {owner} already; choose another name")
            for name, owner in {
                "recall": "TruePositiveRate",
                "harm": "HarmonicMeanAveraging",
                "p_pred": "a root quantity",
            }.items()
        ),
    ],
)
def test_invalid_aliases_change_no_registry(names, message):
    before = [dict(registry) for registry in REGISTRIES]
    with raises(ValueError, f"Fancy.aliases: {message}"):
        metric(aliases=names)
    assert [dict(registry) for registry in REGISTRIES] == before


def test_invalid_definition_changes_no_registry():
    before = [dict(registry) for registry in REGISTRIES]
    for lacking in ["bounds"], ["aliases"], ["full_name", "is_multiclass"]:
        with raises(TypeError, f"Fancy lacks {', '.join(lacking)}; define them as class attributes"):
            metric(**dict.fromkeys(lacking, ABSENT))
    names = "takes ['ppv', 'tpr'] but dependencies are ['f1', 'ppv']; name the same in both"
    with raises(TypeError, f"Fancy.compute_metric {names}"):
        metric(dependencies=("ppv", "f1"))
    with raises(ValueError, "Fancy.dependencies: there is no metric 'ppw'; the closest are ppv"):
        metric(dependencies=("ppw",), compute_metric=lambda self, ppw: ppw)
    with raises(TypeError, "Fancy.compute_average takes ['tpr'] but dependencies are []; name the same in both"):
        averaging(compute_average=lambda self, values, tpr: values)
    with raises(ValueError, "Fancy.aliases: 'f1' belongs to F1Score already; choose another name"):
        averaging(compute_average=lambda self, values: values, aliases=["f1"])
    assert [dict(registry) for registry in REGISTRIES] == before


def test_metric_results_are_converted_or_raise(device):
    counts = COUNTS.to(device)
    metric(aliases=["host"], compute_metric=lambda self, ppv, tpr: np.asarray(ppv) + np.asarray(tpr))
    scores = get_metric("host")(counts)
    torch.testing.assert_close(scores, get_metric("ppv")(counts) + get_metric("tpr")(counts))
    assert scores.device == counts.device and type(scores) is torch.Tensor
    metric(aliases=["flat"], is_multiclass=True, compute_metric=lambda self, ppv, tpr: np.mean(ppv, axis=1))
    torch.testing.assert_close(get_metric("flat")(counts), get_metric("ppv@macro")(counts))
    metric(aliases=["thin"], compute_metric=lambda self, ppv, tpr: ppv[:, 0])
    metric(aliases=["wide"], is_multiclass=True)
    averaging(compute_average=lambda self, values: values)
    for name, message in {
        "thin": "Fancy.compute_metric: got a result of shape (2,), wanted (2, 3)",
        "wide": "Fancy.compute_metric: got a result of shape (2, 3), wanted (2, 1) or (2,)",
        "f1@odd": "Fancy.compute_average: got a result of shape (2, 3), wanted (2, 1) or (2,)",
    }.items():
        with raises(ValueError, message):
            get_metric(name)(counts)


def test_temporary_registrations_are_removed_at_exit():
    tpr = get_metric("tpr")
    with temporary_registrations():
        metric()
        get_metric("fancy@macro")
    assert "fancy" not in METRIC_REGISTRY and get_metric("tpr") is tpr
    for name in "fancy", "fancy@macro":
        with pytest.raises(ValueError, match="there is no metric 'fancy'"):
            get_metric(name)


def test_user_aggregator_is_available_by_name(device):
    class Scaled(ExperimentAggregator):
        full_name = "Scaled Mean"
        aliases = ["scaled"]

        def __init__(self, rng, factor=1.0):
            super().__init__(rng=rng)
            self.factor = factor

        def aggregate(self, experiment_samples, bounds):
            assert experiment_samples.ndim == 2
            return np.clip(self.factor * np.mean(experiment_samples, axis=1), *bounds)

    samples = torch.rand(5, 3, 2, device=device)
    aggregator = get_experiment_aggregator("scaled", RNG(3), factor=2.0)
    assert isinstance(aggregator, Scaled) and aggregator.rng.seed == 3
    torch.testing.assert_close(aggregator(samples, (0, 1)), (2 * samples.mean(1)).clamp(0, 1))
    torch.testing.assert_close(aggregator(samples[..., 0], (0, 1)), (2 * samples.mean(1)).clamp(0, 1)[:, 0])
    assert aggregator(samples[..., :0], (0, 1)).shape == (5, 0)
    array = samples[..., 0].cpu().numpy()
    torch.testing.assert_close(aggregator(array, (0, 1)), torch.from_numpy(2 * array.mean(1)).clamp(0, 1))
    for name, options, message in (
        ("scales", {}, "aggregation: there is no 'scales'; the closest are scaled"),
        ("scaled", {"shift": 1}, "aggregation 'scaled' has no option 'shift'; it has factor"),
    ):
        with pytest.raises(ValueError) as error:
            get_experiment_aggregator(name, **options)
        assert str(error.value).startswith(message)
    body = {"full_name": "x", "aliases": ["y"], "aggregate": lambda self, samples, bounds: samples}
    with raises(TypeError, "Wrong.aggregate takes ['samples', 'bounds'], wanted ['experiment_samples', 'bounds']"):
        type("Wrong", (ExperimentAggregator,), body)
    assert "y" not in AGGREGATION_REGISTRY
