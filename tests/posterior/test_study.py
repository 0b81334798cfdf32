# ruff: noqa: E501 (messages are not split)
import json
import re
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics.posterior import (
    ConfigError,
    ConfigWarning,
    ConfMatIOError,
    Experiment,
    ExperimentGroup,
    Study,
    UnknownNameError,
    get_experiment_aggregator,
    get_metric,
    sample_metrics,
)
from tensormetrics.posterior.metrics.quantity import ROOTS
from tensormetrics.posterior.sampling.rng import RNG
from tensormetrics.posterior.study import config

TRI = [[13, 2, 1], [3, 20, 4], [0, 5, 9]]
OTHER = [[10, 5, 1], [3, 22, 2], [2, 3, 9]]
PRIORS = {"prevalence_prior": 1, "confusion_prior": "perks"}
METRICS = {"acc": {"aggregation": "fe"}, "f1": {"aggregation": "beta", "estimation_method": "mm"}, "mcc": {}}


def make_study(**options):
    study = Study(**{"seed": 0, "metrics": METRICS, **options})
    for group, matrix in ("mlp", TRI), ("svm", OTHER):
        for fold in 0, 1:
            study.add_experiment(f"{group}/fold_{fold}", (torch.tensor(matrix) + fold).tolist(), **PRIORS)
    return study


def test_study_samples_equal_sample_metrics(device):
    study = make_study(device=device)
    result = study.get_metric_samples("f1", "svm/fold_1")
    options = {"prevalence_prior": 1, "confusion_prior": "perks", "seed": 0, "names": ["svm/fold_1"]}
    counts = torch.tensor(OTHER, device=device) + 1
    (expected,) = sample_metrics(counts, ["f1"], 10_000, **options)
    assert torch.equal(result.values, expected[:, 0]) and result.values.device.type == device.type
    assert (result.num_classes, result.num_samples, result.is_multiclass, result.bounds) == (3, 10_000, False, (0, 1))
    assert result.experiment is study["svm/fold_1"] and result.metric is get_metric("f1")
    assert result.numpy().shape == (10_000, 3)
    for method in "prior", "random", "input":
        (expected,) = sample_metrics(counts, ["f1"], 10_000, method=method, **options)
        assert torch.equal(study.get_metric_samples("f1", "svm/fold_1", method).values, expected[:, 0])


def test_study_samples_do_not_depend_on_cache_or_order():
    full = make_study()
    names = [("mcc", "svm/fold_0"), ("acc", "mlp/aggregated"), ("f1", "svm/aggregated")]
    expected = [full.get_metric_samples(*name).values for name in names]
    small = make_study(memory_limit=200_000, metrics={**METRICS, "kappa": {}})  # nothing stays in the cache
    small.add_experiment("third", [[1, 2], [3, 4]], **PRIORS)
    for name, values in reversed(list(zip(names, expected, strict=True))):
        assert torch.equal(small.get_metric_samples(*name).values, values)
        assert sum(cached.nbytes for cached in small._samples.values()) <= 3 * values.nbytes
        assert torch.equal(small.get_metric_samples(*name).values, values)
    assert full.get_metric_samples(*names[0]).values is expected[0]
    other = make_study(seed=1)
    assert not torch.equal(other.get_metric_samples(*names[1]).values, expected[1])


def test_study_changed_settings_change_samples():
    study = make_study()
    before = study.get_metric_samples("acc", "mlp/aggregated").values
    study.seed = 5
    assert not torch.equal(study.get_metric_samples("acc", "mlp/aggregated").values, before)
    study.seed = 0
    assert torch.equal(study.get_metric_samples("acc", "mlp/aggregated").values, before)
    with pytest.warns(ConfigWarning, match="^experiment 'mlp/fold_0' is there already; it is overwritten$"):
        study.add_experiment("mlp/fold_0", OTHER, **PRIORS)
    assert not torch.equal(study.get_metric_samples("acc", "mlp/aggregated").values, before)
    study.add_metric("acc", "hist", pseudo_count_weight=0.5)
    assert study.get_metric_samples("acc", "mlp/aggregated").aggregator.pseudo_count_weight == 0.5
    with pytest.warns(ConfigWarning, match="^num_samples: got 500; at least 10000 are advised"):
        study.num_samples = 500
    assert len(study.get_metric_samples("acc", "mlp/aggregated").values) == 500


def test_study_aggregates_have_heterogeneity():
    study = make_study()
    result = study.get_metric_samples("f1", "mlp/aggregated")
    assert result.values.shape == (10_000, 3) and result.experiment_group is study["mlp"]
    assert result.heterogeneity_results.i2.shape == (3,) and result.num_classes == 3
    assert result.aggregator.estimation_method == "mm"
    single = Study(0, metrics={"acc": {}})
    single.add_experiment("h", TRI, **PRIORS)
    aggregate = single.get_metric_samples("acc", "h/aggregated")
    assert torch.equal(aggregate.values, single.get_metric_samples("acc", "h").values)
    assert aggregate.heterogeneity_results.i2_interpretation == ["not applicable"]
    with raises(
        ValueError,
        "group 'mlp' has 2 experiments and metric 'mcc' no aggregation; write add_metric('mcc', aggregation='fe')",
    ):
        study.get_metric_samples("mcc", "mlp/aggregated")
    assert study.get_metric_samples("mcc", "mlp/fold_0").values.shape == (10_000, 1)  # needs no aggregation
    with pytest.raises(
        ValueError, match="^group 'mlp': the input has no aggregate; ask for an experiment's own values$"
    ):
        study.get_metric_samples("acc", "mlp/aggregated", "input")


def test_study_names_and_sizes_match_experiments():
    study = make_study()
    study.add_experiment("b", TRI, **PRIORS)
    assert study.all_experiments() == ["b/b", "mlp/fold_0", "mlp/fold_1", "svm/fold_0", "svm/fold_1"]
    assert (len(study), study.num_experiment_groups, study.num_experiments, study.num_classes) == (3, 3, 5, 3)
    assert isinstance(study["mlp"], ExperimentGroup) and isinstance(study["mlp/fold_0"], Experiment)
    assert len(study["mlp"]) == study["mlp"].num_experiments == 2 and study["mlp"]["fold_1"].num_predictions == 66
    assert study.find_metric("accuracy") is get_metric("acc")
    study.add_experiment("two", [[1, 2], [3, 4]], **PRIORS)
    with pytest.raises(
        ConfigError, match=r"^num_classes: experiments have \[2, 3\] classes, wanted one number for all$"
    ):
        study.num_classes  # noqa: B018
    with pytest.raises(ConfigError, match="^num_classes: experiments have no classes, wanted one number for all$"):
        Study(0).num_classes  # noqa: B018


def test_study_labels_give_confusion_matrix():
    study = Study(0, metrics={"acc": {}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also none about a matrix
        study.add_experiment("a", y_true=[0, 2, 2], y_pred=torch.tensor([0, 2, 0]), **PRIORS)
        study.add_experiment("b", y_true=[0, 1, 2], y_pred=[1, 2, 0], num_classes=3, **PRIORS)
    assert study["a/a"].confusion_matrix.tolist() == [[1, 0], [1, 1]] and study["b/b"].num_classes == 3


@pytest.mark.parametrize("suffix", ["json", "toml", "yaml", "yml"])
def test_study_files_give_equal_samples(suffix, tmp_path):
    study = make_study(ci_probability=0.9)
    study.add_experiment("array", torch.tensor([[0, 0.5], [1, 2]]), [1, 2], [[1.0, 0.5], [1, 1]])
    study.save(tmp_path / f"study.{suffix}")
    again = Study.load(tmp_path / f"study.{suffix}")
    assert again.to_dict() == study.to_dict() and again.fingerprint == study.fingerprint
    for name in "array", "mlp/fold_1", "mlp/aggregated":
        values = [values.get_metric_samples("f1", name).values for values in (study, again)]
        assert torch.equal(*values)
    other = Study.load(tmp_path / f"study.{suffix}", seed=3, dtype=torch.float64)
    assert other.seed == 3 and other.fingerprint != study.fingerprint
    assert other.get_metric_samples("acc", "array").values.dtype == torch.float64
    json.dumps(study.to_dict())


def test_study_data_frame_gives_confusion_matrix():
    frame = pytest.importorskip("pandas").DataFrame({"cat": [3, 1], "dog": [0, 2]}, index=["cat", "dog"])
    study = Study(0)
    study.add_experiment("e", frame, 0, 0)
    assert study["e/e"].confusion_matrix.tolist() == [[3, 0], [1, 2]]
    assert json.loads(json.dumps(study.to_dict()))["experiments"]["e"]["e"]["confusion_matrix"] == [[3, 0], [1, 2]]


def test_study_save_other_suffixes_raise(tmp_path, monkeypatch):
    study = make_study()
    with pytest.raises(
        ValueError, match=r"^path: got 'study.txt', wanted a name that ends in .json, .toml, .yaml, .yml$"
    ):
        study.save("study.txt")
    for package, suffix in ("tomli_w", ".toml"), ("yaml", ".yaml"):
        monkeypatch.setitem(__import__("sys").modules, package, None)
        expected = f'{suffix} files need {package}: pip install "tensormetrics[files]", or use a .json file'
        with raises(ImportError, expected):
            study.save(tmp_path / f"study{suffix}")


def test_study_load_toml_needs_tomli_before_python_3_11(tmp_path, monkeypatch):
    (tmp_path / "study.toml").write_text("seed = 5")
    monkeypatch.setattr(config, "sys", SimpleNamespace(version_info=(3, 10)))
    monkeypatch.setitem(sys.modules, "tomli", None)
    expected = '.toml files need tomli: pip install "tensormetrics[files]", or use a .json file'
    with pytest.raises(ImportError, match=f"^{re.escape(expected)}$"):
        Study.load(tmp_path / "study.toml")
    monkeypatch.setitem(sys.modules, "tomli", SimpleNamespace(loads=lambda text: {"seed": int(text[-1])}))
    assert Study.load(tmp_path / "study.toml").seed == 5


def test_experiment_and_group_without_study_sample(device):
    group = ExperimentGroup("g", RNG(3))
    first = group.add_experiment("a", TRI, 1, 1, device=device)
    group.add_experiment("b", OTHER, 1, 1, device=device)
    roots = first.sample_posterior(50)
    assert [metric.name for metric in roots] == list(ROOTS)
    cells = roots[ROOTS["norm_confusion_matrix"]].values
    assert cells.shape == (50, 3, 3) and torch.allclose(cells.sum((1, 2)), torch.ones(50, device=device))
    assert first.sample_input()[ROOTS["tp"]].values.shape == (1, 3)
    for sample in first.sample_prior, first.sample_random_model:
        assert not torch.equal(sample(50)[ROOTS["tp"]].values, roots[ROOTS["tp"]].values)
    acc = get_metric("acc")
    both = group.sample_metrics(["acc", "f1"], "posterior", 50, {acc: get_experiment_aggregator("fe")})
    assert both.aggregation_result[acc].values.shape == (50, 1)
    assert [len(results) for results in both.individual_experiment_results.values()] == [2, 2]
    assert torch.equal(
        both.individual_experiment_results[acc][0].values, first.sample_metrics("acc", "posterior", 50)[acc].values
    )


EXPERIMENTS = [
    ("a/b/c", {}, ConfigError, "experiment: got 'a/b/c', wanted 'group/experiment' or one name for both"),
    ("/a", {}, ConfigError, "experiment: got '/a', wanted 'group/experiment' or one name for both"),
    (3, {}, TypeError, "experiment: got 3, wanted a string 'group/experiment'"),
    ("a/aggregated", {}, ConfigError, "experiment 'a/aggregated': 'aggregated' is the name of the aggregate"),
    ("aggregated", {}, ConfigError, "experiment 'aggregated/aggregated': 'aggregated' is the name of the aggregate"),
    ("mlp/x", {"confusion_matrix": [[1, 2], [3, 4]]}, ConfigError, "experiment 'mlp/x' has 2 classes, the others of its group 3"),
    ("x", {"confusion_matrix": None}, ValueError, "experiment 'x/x': got nothing, wanted confusion_matrix alone, or y_true and y_pred"),
    ("x", {"y_true": [0], "y_pred": [0]}, ValueError, "experiment 'x/x': got confusion_matrix, y_true, y_pred, wanted confusion_matrix alone, or y_true and y_pred"),
    ("x", {"confusion_matrix": None, "y_true": [0]}, ValueError, "experiment 'x/x': got y_true, wanted confusion_matrix alone, or y_true and y_pred"),
    ("x", {"confusion_matrix": [[1, -1], [1, 1]]}, ConfMatIOError, "experiment 'x/x': confusion_matrix: got -1.0 at [0, 1], wanted finite counts >= 0"),
    ("x", {"confusion_matrix": [[0, 0], [1, 1]], "confusion_prior": 0}, ConfMatIOError, "experiment 'x/x': confusion_matrix: row 0 is empty, so nothing is known of that class; leave the class out, or give a positive confusion_prior"),
    ("x", {"prevalence_prior": -1}, ConfigError, "experiment 'x/x': prevalence_prior: got entries from -1.0 to -1.0, wanted finite ones >= 0"),
    ("x", {"prevalence_prior": {}}, ConfigError, "experiment 'x/x': prevalence_prior: got {}, wanted a word, a number or an array of shape (3,)"),
    ("x", {"confusion_prior": float("nan")}, ConfigError, "experiment 'x/x': confusion_prior: got entries from nan to nan, wanted finite ones >= 0"),
    ("x", {"confusion_prior": [1, 2, 3]}, ConfigError, "experiment 'x/x': confusion_prior: got an array of shape (3,), wanted (3, 3)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "error", "message"), EXPERIMENTS)
def test_study_invalid_experiments_raise(name, arguments, error, message):
    study = make_study()
    before = study.to_dict()
    with raises(error, message):
        study.add_experiment(name, **{"confusion_matrix": TRI, **PRIORS, **arguments})
    assert study.to_dict() == before and study.num_experiments == 4


@pytest.mark.parametrize("change", [("experiments", {"g": {"e": {"confusion_matrix": TRI, **PRIORS}, "f": 5}}), ("metrics", {"mcc": {}, "acc": {"rho": 1}}), ("metrics", ["mcc", 5])])  # fmt: skip
def test_study_invalid_setting_changes_nothing(change):
    study = make_study()
    before = study.to_dict()
    with pytest.raises(ConfigError):
        setattr(study, *change)
    assert study.to_dict() == before and study.get_metric_samples("acc", "mlp/aggregated").num_samples


def test_study_invalid_metric_type_raises():
    study = make_study()
    for call in study.add_metric, study.report_metric_summaries:
        with pytest.raises(
            ValueError, match=r"^metric: got 5, wanted 'name', 'name\+option=value' or 'name@averaging'"
        ):
            call(5)


def test_study_unknown_names_and_keys_raise():
    study = make_study()
    with pytest.raises(
        ConfigError, match="^experiment 'x/x': prevalence_prior: got 'flat', wanted one of 'perks', 'balanced', "
    ):
        study.add_experiment("x", TRI, "flat", 0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        study.add_experiment("x", TRI, 0, 0, weights=3)
    with raises(
        ConfigError,
        "experiment 'g/e': unknown key 'matrix', wanted some of confusion_matrix, prevalence_prior, confusion_prior, "
        "y_true, y_pred, num_classes, labels, items, groups",
    ):
        Study(0, experiments={"g": {"e": {"matrix": TRI}}})
    for wrong, what in (({"g": 3}, "experiments: group 'g': got 3"), (3, "experiments: got 3")):
        with pytest.raises(ConfigError, match=f"^{what}, wanted a dictionary$"):
            Study(0, experiments=wrong)


LOOKUPS = [
    (lambda s: s.get_metric_samples("kappa", "mlp/fold_0"), UnknownNameError, "there is no metric 'kappa' in the study; the closest are 'acc', 'mcc', 'f1'"),
    (lambda s: s["mpl"], UnknownNameError, "there is no group 'mpl' in the study; the closest are 'mlp', 'svm'"),
    (lambda s: s["svm/fold_2"], UnknownNameError, "there is no experiment 'svm/fold_2' in the study; the closest are 'svm/fold_1', 'svm/fold_0', 'mlp/fold_1'"),
    (lambda s: s.get_metric_samples("acc", "cnn"), UnknownNameError, "there is no group 'cnn' in the study; the closest are 'svm', 'mlp'"),
    (lambda s: Study(0)["a"], UnknownNameError, "there is no group 'a' in the study; it has no group yet"),
    (lambda s: s[3], TypeError, "study[...]: got 3, wanted a string 'group' or 'group/experiment'"),
    (lambda s: s.get_metric_samples("acc", "mlp/fold_0", "post"), ValueError, "sampling_method: got 'post', wanted one of 'posterior', 'prior', 'random', 'input'"),
    (lambda s: s.add_metric("acc", "mean"), ValueError, None),
    (lambda s: s.add_metric("acc", "fe", rho=1), ValueError, "aggregation 'fe' has no option 'rho'; it has none"),
    (lambda s: s.add_metric("acc", rho=1), ValueError, "metric 'acc': got ['rho'] without an aggregation, wanted both"),
    (lambda s: Study(0, metrics={"acc": {"rho": 1}}), ConfigError, "metric 'acc': got ['rho'] without 'aggregation', wanted that key too"),
    (lambda s: Study(0, metrics=[1]), ConfigError, "metrics: got [1], wanted a dictionary such as {'acc': {}}"),
    (lambda s: Study.from_dict({"seed": 0, "samples": 9}), ConfigError, "study: unknown key 'samples', wanted some of seed, num_samples, ci_probability, experiments, metrics, device, dtype, memory_limit, zero_division"),
    (lambda s: Study(0, dtype=torch.float16), ValueError, "dtype: got torch.float16, wanted one of torch.float32, torch.float64"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), LOOKUPS)
def test_study_failed_lookups_raise(call, error, message):
    with pytest.raises(error) as caught:
        call(make_study())
    if message is None:
        assert str(caught.value).startswith("aggregation: there is no 'mean'; the closest are ")
    else:
        assert str(caught.value) == message
    assert error is not UnknownNameError or isinstance(caught.value, KeyError)


def test_study_prior_samples_of_improper_prior_raise():
    study = make_study()
    study.add_experiment("x", TRI, 0, 0)
    with pytest.raises(ValueError, match="^method: got 'prior' with an improper prior; give every row a concentration"):
        study.get_metric_samples("acc", "x", "prior")


def test_study_default_settings_warn():
    with pytest.warns(ConfigWarning, match=r"^seed: got None, \d+ is used; pass it to get the same draws again$"):
        study = Study()
    assert 0 <= study.seed < 2**63
    for name, default in ("num_samples", 10_000), ("ci_probability", 0.95):
        with pytest.warns(ConfigWarning, match=f"^{name}: got None, {default} is used$"):
            setattr(study, name, None)
        assert getattr(study, name) == default
    for name, argument, value in ("seed", "7", 7), ("num_samples", 2e4, 20_000), ("ci_probability", "0.5", 0.5):
        with pytest.warns(ConfigWarning, match=f"^{name}: got {argument!r}, {value!r} is used$"):
            setattr(study, name, argument)
        assert getattr(study, name) == value
    for argument in np.array(0.75), torch.tensor(0.75):
        with pytest.warns(ConfigWarning) as caught:
            study.ci_probability = argument
        assert [str(w.message) for w in caught] == [f"ci_probability: got {argument!r}, 0.75 is used"]
        assert study.ci_probability == 0.75
    with pytest.raises(TypeError, match="^ci_probability: got array.*, wanted a number$"):
        study.ci_probability = np.array([0.5])
    default = {"__default__": {"aggregation": "re"}, "acc": {}, "mcc": {"aggregation": "fe"}}
    assert Study(0, metrics=default).metrics == {"acc": {"aggregation": "re"}, "mcc": {"aggregation": "fe"}}


def test_study_invalid_settings_raise():
    for kind, name, value, wanted in (
        (ConfigError, "seed", -1, "an integer >= 0"),
        (TypeError, "seed", 1.5, "an integer"),
        (TypeError, "seed", True, "an integer"),
        (ConfigError, "num_samples", 0, "an integer > 0"),
        (TypeError, "num_samples", [1], "an integer"),
        (ConfigError, "ci_probability", 0.0, "a number in (0, 1]"),
        (ConfigError, "ci_probability", 1.5, "a number in (0, 1]"),
        (TypeError, "ci_probability", "x", "a number"),
    ):
        with raises(kind, f"{name}: got {value!r}, wanted {wanted}"):
            Study(**{"seed": 0, name: value})


@pytest.mark.parametrize("metrics", [["acc", "mcc"], ("acc", "mcc"), {"acc": {}, "mcc": {}}])
def test_study_metrics_are_list_or_dictionary(metrics):
    assert [*Study(0, metrics=metrics).metrics] == ["acc", "mcc"] and [*Study(0, metrics="acc").metrics] == ["acc"]
