# ruff: noqa: E501 (messages are not split)
import json
import re
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
from raising import raises

from tensormetrics.posterior import ConfigError, ConfigWarning, Experiment, Study, get_metric
from tensormetrics.posterior.extend import ConfMatIOError, UnknownNameError
from tensormetrics.posterior.functional import sample_metrics
from tensormetrics.posterior.metrics.quantity import ROOTS
from tensormetrics.posterior.study import config
from tensormetrics.uncertainty.statistics.samples import estimate

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
    values = study.samples("f1", "svm/fold_1")
    options = {"prevalence_prior": 1, "confusion_prior": "perks", "seed": 0, "names": ["svm/fold_1"]}
    counts = torch.tensor(OTHER, device=device) + 1
    (expected,) = sample_metrics(counts, ["f1"], 10_000, **options)
    assert torch.equal(values, expected[:, 0]) and values.device.type == device.type
    for method in "prior", "random", "input":
        (expected,) = sample_metrics(counts, ["f1"], 10_000, method=method, **options)
        assert torch.equal(study.samples("f1", "svm/fold_1", method), expected[:, 0])


def test_study_samples_do_not_depend_on_cache_or_order():
    full = make_study()
    names = [("mcc", "svm/fold_0"), ("acc", "mlp/aggregated"), ("f1", "svm/aggregated")]
    expected = [full.samples(*name) for name in names]
    small = make_study(memory_limit=200_000, metrics={**METRICS, "kappa": {}})  # nothing stays in the cache
    small.add_experiment("third", [[1, 2], [3, 4]], **PRIORS)
    for name, values in reversed(list(zip(names, expected, strict=True))):
        assert torch.equal(small.samples(*name), values)
        assert sum(cached.nbytes for cached in small._samples.values()) <= 3 * values.nbytes
        assert torch.equal(small.samples(*name), values)
    assert full.samples(*names[0]) is expected[0]
    other = make_study(seed=1)
    assert not torch.equal(other.samples(*names[1]), expected[1])


def test_study_changed_settings_change_samples():
    study = make_study()
    before = study.samples("acc", "mlp/aggregated")
    study.seed = 5
    assert not torch.equal(study.samples("acc", "mlp/aggregated"), before)
    study.seed = 0
    assert torch.equal(study.samples("acc", "mlp/aggregated"), before)
    with pytest.warns(ConfigWarning, match="^experiment 'mlp/fold_0' is there already; it is overwritten$"):
        study.add_experiment("mlp/fold_0", OTHER, **PRIORS)
    assert not torch.equal(study.samples("acc", "mlp/aggregated"), before)
    before = study.samples("acc", "mlp/aggregated")
    study.add_metric("acc", "hist", pseudo_count_weight=0.5)
    assert not torch.equal(study.samples("acc", "mlp/aggregated"), before)
    study.replicates = 500
    assert len(study.samples("acc", "mlp/aggregated")) == 500


def test_study_aggregates_need_an_aggregation():
    study = make_study()
    assert study.samples("f1", "mlp/aggregated").shape == (10_000, 3)
    single = Study(0, metrics={"acc": {}})
    single.add_experiment("h", TRI, **PRIORS)
    assert torch.equal(single.samples("acc", "h/aggregated"), single.samples("acc", "h"))
    with raises(
        ValueError,
        "group 'mlp' has 2 experiments and metric 'mcc' no aggregation; write add_metric('mcc', aggregation='fe')",
    ):
        study.samples("mcc", "mlp/aggregated")
    assert study.samples("mcc", "mlp/fold_0").shape == (10_000, 1)  # needs no aggregation
    with pytest.raises(
        ValueError, match="^group 'mlp': the input has no aggregate; ask for an experiment's own values$"
    ):
        study.samples("acc", "mlp/aggregated", "input")


def test_study_table_has_rows_of_pooled_posteriors():
    study = make_study()
    table = study.table("acc", experiments=["mlp/fold_0", "mlp/aggregated"])
    assert table.rows == ("mlp/fold_0", "mlp/aggregated")
    pooled = table["mlp/aggregated", "acc"]
    assert torch.equal(pooled.value, estimate(study.samples("acc", "mlp/aggregated")[:, 0]).value)
    assert pooled.high - pooled.low < table["mlp/fold_0", "acc"].high - table["mlp/fold_0", "acc"].low


def test_study_names_and_sizes_match_experiments():
    study = make_study()
    study.add_experiment("b", TRI, **PRIORS)
    assert study.list_experiments() == ["mlp/fold_0", "mlp/fold_1", "svm/fold_0", "svm/fold_1", "b/b"]
    assert (len(study), study.num_classes, study["mlp/fold_1"].num_predictions) == (3, 3, 66)
    assert isinstance(study["mlp/fold_0"], Experiment) and study["b"] is study["b/b"]
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
    study = make_study(confidence=0.9)
    study.add_experiment("array", torch.tensor([[0, 0.5], [1, 2]]), [1, 2], [[1.0, 0.5], [1, 1]], labels=["b", "a"])
    study.save(tmp_path / f"study.{suffix}")
    again = Study.load(tmp_path / f"study.{suffix}")
    assert again.to_dict() == study.to_dict() and again.fingerprint == study.fingerprint
    assert again["array"].labels == ("b", "a") and again["mlp/fold_1"].labels is None
    for name in "array", "mlp/fold_1", "mlp/aggregated":
        values = [values.samples("f1", name) for values in (study, again)]
        assert torch.equal(*values)
    other = Study.load(tmp_path / f"study.{suffix}", seed=3, dtype=torch.float64)
    assert other.seed == 3 and other.fingerprint != study.fingerprint
    assert other.samples("acc", "array").dtype == torch.float64
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


def test_experiment_without_study_samples_all_quantities(device):
    cells, tp = Experiment("g/a", TRI, 1, 1, device=device).samples(
        [ROOTS["norm_confusion_matrix"], ROOTS["tp"]], "posterior", 50, seed=3
    )
    assert cells.shape == (50, 3, 3) and torch.allclose(cells.sum((1, 2)), torch.ones(50, device=device))
    assert torch.allclose(cells.diagonal(dim1=1, dim2=2), tp)


EXPERIMENTS = [
    ("/a", {}, ConfigError, "experiment: got '/a', wanted 'group/experiment' or one name for both"),
    (3, {}, TypeError, "experiment: got 3, wanted a string 'group/experiment'"),
    ("a/aggregated", {}, ConfigError, "experiment 'a/aggregated': 'aggregated' is the name of the aggregate"),
    ("aggregated", {}, ConfigError, "experiment 'aggregated/aggregated': 'aggregated' is the name of the aggregate"),
    ("mlp/x", {"confusion_matrix": [[1, 2], [3, 4]]}, ConfigError, "experiment 'mlp/x' has 2 classes, the others of its group 3"),
    ("x", {"y_true": [0], "y_pred": [0]}, ValueError, "experiment 'x/x': got confusion_matrix, y_true, y_pred, wanted confusion_matrix alone, or y_true and y_pred"),
    ("x", {"confusion_matrix": None, "y_true": [0]}, ValueError, "experiment 'x/x': got y_true, wanted confusion_matrix alone, or y_true and y_pred"),
    ("x", {"confusion_matrix": [[1, -1], [1, 1]]}, ConfMatIOError, "experiment 'x/x': confusion_matrix: got -1.0 at [0, 1], wanted finite counts >= 0"),
    ("x", {"confusion_matrix": [[0, 0], [1, 1]], "confusion_prior": 0}, ConfMatIOError, "experiment 'x/x': confusion_matrix: row 0 is empty, so nothing is known of that class; leave the class out, or give a positive confusion_prior"),
    ("x", {"prevalence_prior": -1}, ConfigError, "experiment 'x/x': prevalence_prior: got entries from -1.0 to -1.0, wanted finite ones >= 0"),
    ("x", {"confusion_prior": float("nan")}, ConfigError, "experiment 'x/x': confusion_prior: got entries from nan to nan, wanted finite ones >= 0"),
    ("x", {"confusion_prior": [1, 2, 3]}, ConfigError, "experiment 'x/x': confusion_prior: got an array of shape (3,), wanted (3, 3)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "error", "message"), EXPERIMENTS)
def test_study_invalid_experiments_raise(name, arguments, error, message):
    study = make_study()
    before = study.to_dict()
    with raises(error, message):
        study.add_experiment(name, **{"confusion_matrix": TRI, **PRIORS, **arguments})
    assert study.to_dict() == before and len(study.list_experiments()) == 4


@pytest.mark.parametrize("change", [("experiments", {"g": {"e": {"confusion_matrix": TRI, **PRIORS}, "f": 5}}), ("metrics", {"mcc": {}, "acc": {"rho": 1}}), ("metrics", ["mcc", 5])])  # fmt: skip
def test_study_invalid_setting_changes_nothing(change):
    study = make_study()
    before = study.to_dict()
    with pytest.raises(ConfigError):
        setattr(study, *change)
    assert study.to_dict() == before and len(study.samples("acc", "mlp/aggregated"))


def test_study_invalid_metric_type_raises():
    study = make_study()
    for call in study.add_metric, study.compare:
        with pytest.raises(
            ValueError, match=r"^metric: got 5, wanted 'name', 'name\+option=value' or 'name@averaging'"
        ):
            call(5)


LOOKUPS = [
    (lambda s: s.samples("kappa", "mlp/fold_0"), UnknownNameError, "there is no metric 'kappa' in the study; it has 'acc', 'f1', 'mcc'"),
    (lambda s: s["mpl/a"], UnknownNameError, "there is no group 'mpl' in the study; the closest are 'mlp'"),
    (lambda s: s["svm/fold_2"], UnknownNameError, "there is no experiment 'svm/fold_2' in the study; the closest are 'svm/fold_1', 'svm/fold_0', 'mlp/fold_1'"),
    (lambda s: s.samples("acc", "cnn"), UnknownNameError, "there is no group 'cnn' in the study; it has 'mlp', 'svm'"),
    (lambda s: Study(0)["a"], UnknownNameError, "there is no group 'a' in the study; it has no group yet"),
    (lambda s: s[3], TypeError, "experiment: got 3, wanted a string 'group/experiment'"),
    (lambda s: s.samples("acc", "mlp/fold_0", "post"), ValueError, "method: got 'post', wanted one of 'posterior', 'prior', 'random', 'input'"),
    (lambda s: s.add_metric("acc", "mean"), ValueError, None),
    (lambda s: s.add_metric("acc", "fe", rho=1), ValueError, "aggregation 'fe' has no option 'rho'; it has none"),
    (lambda s: s.add_metric("acc", rho=1), ValueError, "metric 'acc': got ['rho'] without an aggregation, wanted both"),
    (lambda s: Study.from_dict({"seed": 0, "samples": 9}), TypeError, "Study: got the argument 'samples', wanted one of seed, replicates, confidence, experiments, metrics, device, dtype, memory_limit, zero_division"),
    (lambda s: Study(0, experiments={"g": {"e": {"matrix": TRI}}}), ConfigError, "experiment 'g/e': unknown key 'matrix', wanted some of confusion_matrix, prevalence_prior, confusion_prior, y_true, y_pred, num_classes, labels, items, groups"),
    (lambda s: setattr(s, "seed", None), ValueError, "seed: got None, wanted an integer >= 0"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), LOOKUPS)
def test_study_failed_lookups_raise(call, error, message):
    with pytest.raises(error) as caught:
        call(make_study())
    if message is None:
        assert str(caught.value).startswith("aggregation: there is no 'mean'; there are ")
    else:
        assert str(caught.value) == message
    assert error is not UnknownNameError or isinstance(caught.value, KeyError)


def test_study_prior_samples_of_improper_prior_raise():
    study = make_study()
    study.add_experiment("x", TRI, 0, 0)
    with pytest.raises(ValueError, match="^method: got 'prior' with an improper prior; give every row a concentration"):
        study.samples("acc", "x", "prior")


def test_study_without_seed_warns_and_default_aggregation_is_used():
    with pytest.warns(ConfigWarning, match=r"^seed: got None, \d+ is used; pass it to get the same draws again$"):
        study = Study()
    assert 0 <= study.seed < 2**63
    default = {"__default__": {"aggregation": "re"}, "acc": None, "mcc": {"aggregation": "fe"}}
    assert Study(0, metrics=default).metrics == {"acc": {"aggregation": "re"}, "mcc": {"aggregation": "fe"}}


def test_unneeded_class_label_warns_once():
    study = make_study()
    with pytest.warns(ConfigWarning) as caught:
        assert study.class_index("acc", 2, "mlp/fold_0") == 0
        study.table("acc", 2)
        study.compare("acc", 2)
    assert [str(w.message) for w in caught] == ["metric 'acc' has one value for all classes; class_label 2 is ignored"]
    assert study.class_index("acc", 0, "mlp/fold_0") == 0 == study.class_index("acc", None, "mlp/fold_0")


@pytest.mark.parametrize("metrics", [["acc", "mcc"], ("acc", "mcc"), {"acc": {}, "mcc": {}}])
def test_study_metrics_are_list_or_dictionary(metrics):
    assert [*Study(0, metrics=metrics).metrics] == ["acc", "mcc"] and [*Study(0, metrics="acc").metrics] == ["acc"]
