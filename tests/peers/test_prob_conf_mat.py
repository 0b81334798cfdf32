"""Agreement with prob_conf_mat 0.4.0, where it is right."""

import importlib
import inspect
import pkgutil
import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from tensormetrics.compat import prob_conf_mat as compat

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pcm = pytest.importorskip("prob_conf_mat")
    from prob_conf_mat.experiment_aggregation import get_experiment_aggregator
    from prob_conf_mat.experiment_aggregation.heterogeneity import heterogeneity_dl, heterogeneity_pm
    from prob_conf_mat.utils import RNG

pytestmark = pytest.mark.filterwarnings("ignore")
MATRICES = {"a": [[40, 3, 2], [5, 30, 6], [1, 4, 50]], "b": [[35, 8, 2], [9, 22, 10], [1, 14, 40]]}
PAIR = {"experiment_a": "g/a", "experiment_b": "g/b"}
METRICS = ["acc", "mcc", "kappa", "ba", "f1@macro", "f1", "ppv", "log_dor"]


NOT_SERVED = {  # names of functions and classes, and arguments -> why not
    **dict.fromkeys(("Config", "generate_metric_computation_schedule"), "a part of Study and of MetricCollection"),
    **dict.fromkeys(("odds", "wilson_score_interval", "fmt"), "a part of the results of comparisons"),
    **dict.fromkeys(("NestedCache", "InMemoryCache", "NotInCache"), "the cache of a study is bounded"),
    **{f"numpy_batched_{mean}": "averagings" for mean in ("arithmetic_mean", "geometric_mean", "harmonic_mean")},
    "numpy_batched_convex_combination": "an averaging",
    "truncated_sample": "takes distributions of SciPy; see uncertainty.statistics.truncated",
    "DistributionPlottingMethods": "methods are texts",
    "histogram_mode_estimator.bounds": "the bins span the samples",
    "compute_kde.bw_method": "Scott's rule",
    **{f"heterogeneity_pm.{name}": "found to the last bit" for name in ("init_tau2", "atol", "maxiter")},
    **{f"load_csv.{name}": "the file shows it" for name in ("dialect", "dtype", "lineterminator", "newline")},
    "validate_confusion_matrix.dtype": "float64",
}
PLOT_ARGUMENTS = {"axis_fontsize", "bw_method", "experiment_name_padding", "fontname"}  # that are not served


def test_every_function_class_and_argument_is_served():
    missing = []
    for module in pkgutil.walk_packages(pcm.__path__, "prob_conf_mat."):
        for name, theirs in vars(importlib.import_module(module.name)).items():
            if name.startswith("_") or not callable(theirs) or theirs.__module__ != module.name:
                continue
            if not hasattr(compat, name):
                missing.append(name)
            elif inspect.isfunction(theirs):
                missing += lacking(name, theirs, getattr(compat, name))
            elif name in ("Experiment", "ExperimentGroup", "MetricCollection", "RNG", "Study"):
                for method, function in vars(theirs).items():
                    if inspect.isfunction(function) and not method.startswith(("_", "plot_")):
                        missing += lacking(f"{name}.{method}", function, getattr(getattr(compat, name), method))
    assert sorted(missing) == sorted(NOT_SERVED)


def lacking(name, theirs, ours):
    names = [
        p.name
        for p in inspect.signature(theirs).parameters.values()
        if p.kind is not p.VAR_KEYWORD and p.name != "self"
    ]
    return [f"{name}.{argument}" for argument in names if argument not in inspect.signature(ours).parameters]


@pytest.mark.parametrize("plot", ["metric_summaries", "experiment_aggregation", "pairwise_comparison", "forest_plot"])
def test_plots_take_every_argument(plot, studies):
    pair = {"experiment_aggregation": {"experiment_group": "g"}, "pairwise_comparison": PAIR}.get(plot, {})
    arguments = inspect.signature(getattr(pcm.Study, f"plot_{plot}")).parameters.values()
    defaults = {p.name: p.default for p in arguments if p.default is not p.empty and p.name not in PLOT_ARGUMENTS}
    hidden = {name: False for name, default in defaults.items() if default is True}
    drawn, fewer = (
        sum(len(axes.lines) + len(axes.texts) for axes in getattr(studies[1], f"plot_{plot}")(**call).axes)
        for call in ({"metric": "acc", **pair, **defaults}, {"metric": "acc", **pair, **defaults, **hidden})
    )
    assert fewer < drawn


@pytest.fixture(scope="module")
def studies():
    found = []
    for package in pcm, compat:
        study = package.Study(seed=0, num_samples=20_000, ci_probability=0.95)
        for metric in METRICS:
            study.add_metric(metric, aggregation="fe")
        for name, matrix in MATRICES.items():
            study.add_experiment(f"g/{name}", np.array(matrix), prevalence_prior="ones", confusion_prior="ones")
        found.append(study)
    return found


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["g/a", "g/aggregated"])
def test_samples_have_the_same_distribution(metric, name, studies):
    theirs, ours = (study.get_metric_samples(metric, name, "posterior").values for study in studies)
    for c in range(ours.shape[1]):
        assert stats.ks_2samp(np.asarray(theirs).reshape(len(ours), -1)[:, c], ours[:, c].numpy()).pvalue > 1e-4


@pytest.mark.parametrize("metric", METRICS)
def test_observed_values(metric, studies):
    theirs, ours = (study.get_metric_samples(metric, "g/b", "input").values for study in studies)
    np.testing.assert_allclose(ours.numpy().ravel(), np.asarray(theirs).ravel(), rtol=1e-9)


def test_heterogeneity(generator):
    means, variances = torch.rand(2, 6, generator=generator, dtype=torch.float64)
    for scale in 0.01, 1.0:
        v = scale * variances
        ours = compat.heterogeneity_dl(means, v), compat.heterogeneity_pm(means, v)
        theirs = heterogeneity_dl(means.numpy(), v.numpy()), heterogeneity_pm(means.numpy(), v.numpy())
        np.testing.assert_allclose([float(x) for x in ours], theirs, atol=1e-4)


@pytest.mark.parametrize("aggregation", ["fe", "re", "beta", "gamma", "hist"])
def test_pooling(aggregation, generator):
    samples = torch.distributions.Beta(60, 20).sample((20_000, 3)) + torch.tensor([-0.02, 0, 0.02])
    samples = samples.clamp(0, 1).double()
    theirs = get_experiment_aggregator(aggregation, rng=RNG(0)).aggregate(samples.numpy(), bounds=(0.0, 1.0))
    ours = compat.get_experiment_aggregator(aggregation, rng=compat.RNG(0)).aggregate(samples, bounds=(0.0, 1.0))
    assert ours.mean().item() == pytest.approx(theirs.mean(), abs=2e-3)
    assert ours.std().item() == pytest.approx(theirs.std(), rel=0.05)
