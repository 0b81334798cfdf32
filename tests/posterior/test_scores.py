import json
import math
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics
import torch
from metric_oracle import scores
from posterior_oracle import as_float64

from tensormetrics.posterior import get_metric
from tensormetrics.posterior.extend import METRIC_REGISTRY
from tensormetrics.posterior.functional import sample_metrics
from tensormetrics.posterior.metrics.classification import SCORES

GOLDEN = json.loads((Path(__file__).parent / "golden_metrics.json").read_text())
NAMES = [score.aliases[0] for score in SCORES]
MATRICES = torch.randint(1, 30, (4, 3, 5, 5), generator=torch.Generator().manual_seed(3))
ORACLE = [[scores(matrix.numpy()) for matrix in row] for row in MATRICES]


def evaluate(metric, matrix):
    return get_metric(metric)(torch.as_tensor(matrix))


@pytest.mark.parametrize("name", GOLDEN["matrices"])
def test_metrics_golden_values_match(name, device):
    matrix = torch.tensor(GOLDEN["matrices"][name], device=device, dtype=torch.float64)
    for metric, expected in GOLDEN["values"][name].items():
        values, expected = evaluate(metric, matrix), as_float64(expected)
        assert values.dtype == torch.float64 and values.shape == expected.shape
        np.testing.assert_allclose(values.cpu(), expected, 1e-9, 1e-12, err_msg=metric)


@pytest.mark.parametrize("metric", ORACLE[0][0])
def test_metrics_batch_equals_loop_of_textbook_formulas(metric, device):
    values = evaluate(metric, MATRICES.to(device)).cpu()
    expected = [[oracle[metric] for oracle in row] for row in ORACLE]
    np.testing.assert_allclose(values, expected, 1e-9, 1e-12)
    assert get_metric(metric).name == metric


def test_metrics_all_have_oracle():
    missing = [name for name in NAMES if name not in ORACLE[0][0]]
    assert missing == [], "write their textbook forms in tests/posterior/metric_oracle.py"


def test_metric_aliases_give_their_metric():
    aliases = [alias for score in SCORES for alias in score.aliases]
    assert len(aliases) == len(set(aliases))
    for score in SCORES:
        assert {get_metric(alias) for alias in score.aliases} == {get_metric(score.aliases[0])}
        metric, cls = get_metric(score.aliases[0]), METRIC_REGISTRY[score.aliases[-1]]
        assert isinstance(metric, cls) and metric.aliases == list(score.aliases)
        assert (metric.full_name, metric.is_multiclass) == (score.full_name, not score.per_class)
        assert metric.higher_is_better is score.higher_is_better


def test_bounds_depend_on_options_and_num_classes():
    assert get_metric("ba").bounds == (0, 1) and get_metric("ba+adjusted=True").bounds == (-1, 1)
    assert get_metric("mae").bounds == (0, math.inf) and get_metric("mae").bounds_of(5) == (0, 4)
    assert get_metric("mse").bounds == (0, math.inf) and get_metric("mse").bounds_of(5) == (0, 16)
    assert get_metric("rmse").bounds_of(5) == (0, 4) and get_metric("offby1").bounds_of(5) == (0, 1)


@pytest.mark.parametrize("metric", [name for name in NAMES if get_metric(name).sklearn_equivalent])
def test_metrics_equal_scikit_learn(metric):
    preds, target = np.random.default_rng(1).integers(0, 4, (2, 200))
    matrix = sklearn.metrics.confusion_matrix(target, preds)
    function = getattr(sklearn.metrics, get_metric(metric).sklearn_equivalent)
    if get_metric(metric).sklearn_equivalent == "class_likelihood_ratios":
        matrix = sklearn.metrics.confusion_matrix(target > 1, preds > 1)
        ratios = function(target > 1, preds > 1)
        assert float(evaluate(metric, matrix)[1]) == pytest.approx(ratios[metric.startswith("negative")])
        return
    options = {"average": None} if not get_metric(metric).is_multiclass else {}
    options |= {"beta": 2.0} if metric == "fbeta" else {}
    values = evaluate(metric + ("+beta=2.0" if metric == "fbeta" else ""), matrix)
    np.testing.assert_allclose(values, np.atleast_1d(function(target, preds, **options)), 1e-12)


def test_metric_options_equal_scikit_learn():
    preds, target = np.random.default_rng(2).integers(0, 4, (2, 200))
    matrix = sklearn.metrics.confusion_matrix(target, preds)
    adjusted = sklearn.metrics.balanced_accuracy_score(target, preds, adjusted=True)
    assert float(evaluate("ba+adjusted=True", matrix)) == pytest.approx(adjusted)
    for power, weights in (1, "linear"), (2, "quadratic"):
        kappa = sklearn.metrics.cohen_kappa_score(target, preds, weights=weights)
        assert float(evaluate(f"pwkappa+power={power}", matrix)) == pytest.approx(kappa)


def test_metrics_perfect_classifier_has_exact_values(device):
    perfect = "acc", "mcc", "kappa", "tpr", "ppv", "f1", "p4", "f1@macro", "f1@weighted", "f1@micro", "jaccard"
    perfect += (
        "informedness",
        "ba",
        "ba+adjusted=True",
        "offby1",
        "pwkappa",
        "fbeta+beta=3",
        "f1_gain",
        "jaccard@harmonic",
    )
    wrong = "fnr", "fpr", "fdr", "for", "prev_thresh", "mae", "mse", "rmse", "nlr"
    counts = torch.diag(torch.tensor([7, 1, 30], device=device))
    samples = sample_metrics(counts, perfect + wrong, 500, prevalence_prior=0, confusion_prior=0)
    for metric, values in zip(perfect + wrong, samples, strict=True):
        assert (values == (metric in perfect)).all(), metric


def test_metrics_undefined_values_are_nan_or_conventional():
    never_true = [[3.0, 1, 0], [0, 0, 0], [1, 2, 5]]
    assert evaluate("tpr", never_true)[1].isnan() and evaluate("f1", never_true)[1] == 0
    assert float(evaluate("ba", never_true)) == pytest.approx((3 / 4 + 5 / 8) / 2)
    assert float(evaluate("ba+adjusted=True", never_true)) == pytest.approx(3 / 4 + 5 / 8 - 1)
    assert evaluate("ba+adjusted=True", [[3.0, 1], [0, 0]]).isnan()
    assert evaluate("f1_gain", never_true)[1].isnan() and evaluate("precision_gain", never_true)[1] == 0
    assert evaluate("fbeta_gain+beta=0", never_true)[1].isnan() and evaluate("recall_gain", never_true)[1].isnan()
    assert evaluate("fbeta_gain+beta=0", [[0.0, 3], [0, 2]])[0] == 0
    assert evaluate("recall_gain", [[0.0, 3], [1, 2]])[0] == 0
    assert evaluate("precision_gain", [[0.0, 3], [0, 2]])[0].isnan()
    assert evaluate("dor", [[3.0, 0], [1, 2]]).tolist() == [math.inf, math.inf]
    assert evaluate("log_dor", [[3.0, 1], [0, 0]]).isnan().all()
    assert evaluate("p4", [[4.0, 0], [2, 0]])[1] == 0
    assert evaluate("prev_thresh", [[2.0, 2], [3, 3]]).tolist() == [0.5, 0.5]
    assert evaluate("mcc", [[4.0, 0], [2, 0]]).isnan() and evaluate("kappa", [[4.0, 0], [2, 0]]) == 0
    for metric in NAMES:
        assert evaluate(metric, torch.zeros(3, 3)).isnan().all(), metric


def test_clamped_ratios_use_smallest_rate_of_matrix():
    matrices = torch.tensor([[[9.0, 0, 0], [0, 9, 1], [0, 3, 7]], [[5, 0, 5], [0, 10, 0], [5, 0, 5]]])
    assert evaluate("plr", matrices)[0, 0] == math.inf
    ratios = evaluate("plr+clamp=True", matrices)
    torch.testing.assert_close(ratios[0], torch.tensor([1 / (1 / 19), 0.9 / (3 / 19), 0.7 / (1 / 19)]).double())
    torch.testing.assert_close(ratios[1], torch.tensor([2, 4, 2.0]).double())
    assert torch.equal(ratios[1:], evaluate("plr+clamp=True", matrices[1:]))
    torch.testing.assert_close(evaluate("lplr+clamp=True", matrices), ratios.log())
    diagonal = torch.eye(2)
    assert evaluate("plr+clamp=True", diagonal).tolist() == [math.inf, math.inf]
    certain = torch.tensor([[0.0, 3], [4, 0]])
    assert evaluate("nlr+clamp=True", certain).tolist() == [math.inf, math.inf]
    assert evaluate("lnlr+clamp=true", certain).tolist() == [math.inf, math.inf]


def test_metrics_float32_agrees_with_float64(device):
    counts = torch.randint(1, 50, (2, 6, 6), device=device)
    metrics = [*NAMES, "plr+clamp=True", "pwkappa+power=2", "f1@macro", "f1@micro", "p4@harmonic"]
    single, double = (sample_metrics(counts, metrics, 30, dtype=dtype) for dtype in (torch.float32, torch.float64))
    for metric, x, y in zip(metrics, single, double, strict=True):
        assert x.dtype == torch.float32
        torch.testing.assert_close(x.double(), y, rtol=1e-5, atol=1e-6, msg=lambda text, metric=metric: metric + text)


def test_metrics_of_unseen_classes_float32_agrees_with_float64(device):
    counts = torch.eye(120, device=device) * 30
    counts[-2:] = 0
    counts[-2, 0] = 5  # the last class but one is never predicted, the last is not even true
    metrics = ["precision", "recall", "f1", "jaccard", "ba", "f1@macro", "precision@macro"]
    single, double = (sample_metrics(counts, metrics, 500, dtype=dtype) for dtype in (torch.float32, torch.float64))
    for x, y in zip(single, double, strict=True):
        x, y = x[:, 0, -2:].double(), y[:, 0, -2:]
        assert x.isclose(y, rtol=1e-3, atol=1e-6, equal_nan=True).double().mean() > 0.99
    assert double[0].isnan().double().mean() < 0.01
