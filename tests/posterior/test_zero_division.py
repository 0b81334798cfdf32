"""Undefined values are `zero_division`, as in scikit-learn where it has the metric."""

import json
import math
import warnings
from inspect import signature

import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics.posterior import ConfusionPosterior, Study, get_metric, sample_metrics, temporary_registrations
from tensormetrics.posterior.metrics.parse import ConfusionMetricCollection
from tensormetrics.posterior.metrics.registry import ConfusionMetric

sklearn = pytest.importorskip("sklearn.metrics")

SHAPES = {
    "perfect": [[4, 0, 0], [0, 3, 0], [0, 0, 5]],
    "all wrong": [[0, 4, 0], [0, 0, 3], [5, 0, 0]],
    "a class neither true nor predicted": [[4, 1, 0], [2, 3, 0], [0, 0, 0]],
    "a class that is never true": [[4, 1, 2], [2, 3, 1], [0, 0, 0]],
    "a class that is never predicted": [[4, 1, 0], [2, 3, 0], [1, 2, 0]],
    "one class alone": [[0, 0, 0], [0, 6, 0], [0, 0, 0]],
    "one true class": [[0, 0, 0], [1, 6, 2], [0, 0, 0]],
    "a constant answer": [[0, 3, 0], [0, 2, 0], [0, 4, 0]],
    "a constant wrong answer": [[0, 3, 0], [0, 0, 0], [0, 4, 0]],
}
BY_CLASS = {
    "ppv": (sklearn.precision_score, {}),
    "tpr": (sklearn.recall_score, {}),
    "f1": (sklearn.f1_score, {}),
    "fbeta+beta=2": (sklearn.fbeta_score, {"beta": 2}),
    "jaccard": (sklearn.jaccard_score, {}),
}


def labels_of(matrix):
    counts = np.array(matrix)
    cells = np.arange(counts.size).repeat(counts.ravel())
    return cells // len(counts), cells % len(counts)


def equal(actual, expected):
    np.testing.assert_allclose(actual.cpu().numpy().ravel(), np.ravel(expected), rtol=1e-12, atol=1e-15)


ANSWERED = [(name, value) for name in BY_CLASS for value in (0, 1, math.nan)]
ANSWERED.remove(("jaccard", math.nan))  # not supported by jaccard_score of scikit-learn


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("name", "zero_division"), ANSWERED)
def test_values_and_averages_equal_scikit_learn(name, shape, zero_division, device):
    function, options = BY_CLASS[name]
    truth, answer = labels_of(SHAPES[shape])
    matrix = torch.tensor(SHAPES[shape], device=device)

    def expected(average):
        options["labels"] = [0, 1, 2]
        return function(truth, answer, average=average, zero_division=zero_division, **options)

    equal(get_metric(name, zero_division)(matrix), expected(None))
    macro = f"{name}@macro+skip_nan={zero_division != zero_division}"
    equal(get_metric(macro, zero_division)(matrix), expected("macro"))
    if zero_division == zero_division:  # scikit-learn leaves nan out of weighted averages too
        equal(get_metric(f"{name}@weighted", zero_division)(matrix), expected("weighted"))
    equal(get_metric(f"{name}@micro", zero_division)(matrix), expected("micro"))


@pytest.mark.parametrize("shape", SHAPES)
def test_multiclass_values_equal_scikit_learn(shape):
    truth, answer = labels_of(SHAPES[shape])
    matrix = torch.tensor(SHAPES[shape])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is undefined
        mcc, kappa = sklearn.matthews_corrcoef(truth, answer), sklearn.cohen_kappa_score(truth, answer)
        accuracy = sklearn.balanced_accuracy_score(truth, answer)
    equal(get_metric("mcc", 0)(matrix), mcc)
    equal(get_metric("kappa")(matrix), kappa)
    for value in (0.0, 1.0) if "replace_undefined_by" in signature(sklearn.cohen_kappa_score).parameters else ():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = sklearn.cohen_kappa_score(truth, answer, labels=[0, 1, 2], replace_undefined_by=value)
        equal(get_metric("kappa", value)(matrix), expected)
    equal(get_metric("ba", 1)(matrix), accuracy)


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_zero_division_replaces_exactly_nan_values(shape, value):
    """With nan the undefined values are visible; another value replaces these and no others."""
    matrix = torch.tensor(SHAPES[shape])
    for name in sorted({cls.aliases[0] for cls in map(type, ConfusionMetricCollection(ALL))}):
        bare, filled = get_metric(name, math.nan)(matrix), get_metric(name, value)(matrix)
        assert torch.equal(filled, torch.where(bare.isnan(), value, bare)), name


ALL = "acc ba mcc kappa f1 fbeta ppv tpr npv tnr fdr fnr for fpr p4 jaccard informedness markedness plr nlr dor".split()
ALL += "log_plr lnlr log_dor prev_thresh precision_gain recall_gain f1_gain fbeta_gain mae rmse offby1 pwkappa".split()


def test_default_zero_division_follows_documentation():
    absent = torch.tensor(SHAPES["a class neither true nor predicted"])
    for name, expected in {"f1": 0, "fbeta": 0, "jaccard": math.nan, "tpr": math.nan}.items():
        np.testing.assert_equal(float(get_metric(name)(absent)[2]), expected)
    always = torch.tensor([[5, 0], [0, 0]])
    assert get_metric("p4")(always).tolist() == [0, 0] and get_metric("p4", math.nan)(always).isnan().all()
    assert get_metric("p4", 1)(torch.tensor([[0, 3], [2, 0]])).tolist() == [0, 0]  # all wrong is 0, and defined
    assert get_metric("f1", 1)(torch.zeros(2, 2)).isnan().all()  # no data have no values


def test_zero_division_entry_points_use_option(tmp_path, device):
    counts = torch.tensor(SHAPES["a class neither true nor predicted"], device=device)
    none = {"prevalence_prior": 0, "confusion_prior": 0}
    (samples,) = sample_metrics(counts, ConfusionMetricCollection("jaccard", 1), 50, **none)
    assert (samples[..., 2] == 1).all() and not samples.isnan().any()
    truth, answer = (torch.from_numpy(x).to(device) for x in labels_of(counts.tolist()))
    metrics = ["jaccard", "jaccard+zero_division=1", "jaccard@macro", "jaccard_index"]
    metric = ConfusionPosterior(3, metrics, zero_division=0, replicates=50, **none).to(device)
    points = metric(answer, truth)
    computed = metric.compute()
    assert list(computed)[::3] == list(points) == metrics and torch.equal(*(computed[m] for m in metrics[::3]))
    for values in points["jaccard"], computed["jaccard"], computed["jaccard/high"]:
        assert values[2] == 0 and values[0] > 0
    assert computed["jaccard+zero_division=1/low"][2] == 1 and not computed["jaccard@macro"].isnan()
    study = Study(0, metrics={"ppv": {}, "mcc": {}}, zero_division=0.0)
    with pytest.warns(UserWarning, match="never predicted"):
        study.add_experiment("a", SHAPES["a class that is never predicted"], **none)
    (score,) = study.table("ppv", 2).cells[0]
    assert float(score) == score.details["median"] == 0
    study.save(tmp_path / "study.json")
    assert json.loads((tmp_path / "study.json").read_text())["zero_division"] == 0
    with pytest.warns(UserWarning, match="never predicted"):
        again = Study.load(tmp_path / "study.json")
    assert again.to_dict() == study.to_dict() and again.fingerprint == study.fingerprint
    assert float(again.table("ppv", 2).cells[0][0]) == 0
    assert "zero_division" not in Study(0).to_dict()


@pytest.mark.parametrize("wrong", [0.5, True, "0", math.inf, [0]])
def test_zero_division_other_values_raise(wrong):
    message = f"zero_division: got {wrong!r}, wanted 0, 1 or nan"
    for call in (
        lambda: get_metric("f1", wrong),
        lambda: ConfusionPosterior(3, "f1", zero_division=wrong),
        lambda: Study(0, zero_division=wrong),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value).endswith(message)


def test_zero_division_of_metric_without_option_raises():
    with raises(ValueError, "metric 'tp': 'tp' has no option 'zero_division'; ask for it without"):
        get_metric("tp", 0)
    with temporary_registrations():

        class Ratio(ConfusionMetric):
            full_name, is_multiclass, bounds = "Ratio", False, (0.0, math.inf)
            dependencies, sklearn_equivalent, aliases = ("tp", "fn"), None, ["ratio"]

            def __init__(self, zero_division: float = math.nan):
                super().__init__()
                self.value = zero_division

            def compute_metric(self, tp, fn):
                return np.where((tp == 0) & (fn == 0), self.value, tp / fn)

        matrix = torch.tensor([[2, 1], [0, 0]])
        assert get_metric("ratio", 1)(matrix).tolist() == [2, 1]
