import copy
import pickle

import pytest
import torch
from raising import raises

from tensormetrics.posterior import get_metric
from tensormetrics.posterior.extend import AveragedMetric, RootMetric
from tensormetrics.posterior.metrics.parse import ConfusionMetricCollection
from tensormetrics.posterior.metrics.quantity import compute_order


@pytest.mark.parametrize(
    "spellings",
    [
        ("acc", "accuracy", " acc "),
        ("fbeta", "fbeta+beta=1.0", "fbeta + beta = 1", "fbeta+beta=1e0"),
        ("ba", "ba+adjusted=false", "balanced_accuracy+adjusted=False", "ba+adjusted=FALSE"),
        ("precision@mean", " ppv @ macro ", "ppv@macro+skip_nan=False"),
        ("fbeta+beta=2@binary+positive_class=0", "fbeta+beta=2.0@select+positive_class=0"),
        ("p_pred", " p_pred "),
        ("jaccard", "jaccard+zero_division=nan", "jaccard_index + zero_division = NaN"),
        ("f1", "f1+zero_division=0", "f1+zero_division=0.0"),
        ("tpr+zero_division=1@macro", "recall+zero_division=1.0@mean"),
    ],
)
def test_get_metric_equal_spellings_give_one_object(spellings):
    assert len({get_metric(spelling) for spelling in spellings}) == 1


def test_get_metric_different_options_give_different_metrics():
    names = "fbeta", "fbeta+beta=2", "fbeta+beta=2@macro", "fbeta+beta=2@macro+skip_nan=true", "f1@macro", "f1"
    assert len({get_metric(name) for name in names}) == len(names)


def test_metric_names_are_canonical():
    assert get_metric("accuracy").name == "acc" and get_metric("tpr").name == "true_positive_rate"
    name = "fbeta+beta=2.0@select_positive+positive_class=0"
    assert get_metric("fbeta+beta=2@binary+positive_class=0").name == name
    assert isinstance(get_metric(name), AveragedMetric) and get_metric(name).base_metric is get_metric("fbeta+beta=2")
    assert get_metric("plr+clamp=TRUE").name == "plr+clamp=True"


@pytest.mark.parametrize(
    "name", ["tp", "p_pred", "acc", "fbeta+beta=2.0", "mae", "f1@micro", "tpr@binary+positive_class=0"]
)
def test_metric_copies_and_pickles_are_same_object(name):
    metric = get_metric(name)
    assert copy.deepcopy(metric) is metric and pickle.loads(pickle.dumps(metric)) is metric


FORMS = "wanted 'name', 'name+option=value' or 'name@averaging', such as 'acc', 'fbeta+beta=2.0' or 'f1@macro'"
NO_VALUE = "has no value; write '+option=value', and numbers without '+', such as 10.0 or 1e1"


AVERAGINGS = "there are macro, weighted, micro, select_positive, harmonic, geometric, min, max"


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("", f"metric: got '', {FORMS}"),
        ("  ", f"metric: got '  ', {FORMS}"),
        (None, f"metric: got None, {FORMS}"),
        ("f1@macro@macro", f"metric: got 'f1@macro@macro', {FORMS}"),
        ("recal", "metric 'recal': there is no metric 'recal'; the closest are recall, recall_gain"),
        ("f1@makro", "metric 'f1@makro': there is no averaging 'makro'; the closest are macro, micro"),
        ("f1@", "metric 'f1@': there is no averaging ''; " + AVERAGINGS),
        ("ACC", "metric 'ACC': there is no metric 'ACC'; write 'acc'"),
        ("accuracy_score", "metric 'accuracy_score': there is no metric 'accuracy_score'; write 'accuracy'"),
        ("acc@macro", "metric 'acc@macro': 'acc' is one number already; leave out '@macro'"),
        ("p_pred@macro", "metric 'p_pred@macro': 'p_pred' is a root quantity, not a metric; leave out '@macro'"),
        ("f1+beta=2", "metric 'f1+beta=2': 'f1' has no option 'beta'; it has zero_division"),
        ("fbeta+gamma=2", "metric 'fbeta+gamma=2': 'fbeta' has no option 'gamma'; it has beta, zero_division"),
        ("f1+zero_division=2", "metric 'f1+zero_division=2': zero_division: got 2, wanted 0, 1 or nan"),
        ("f1+zero_division=True", "metric 'f1+zero_division=True': zero_division: got True, wanted 0, 1 or nan"),
        ("tp+zero_division=0", "metric 'tp+zero_division=0': 'tp' has no option 'zero_division'; it has none"),
        (["acc"], f"metric: got ['acc'], {FORMS}"),
        ("tp+x=1", "metric 'tp+x=1': 'tp' has no option 'x'; it has none"),
        ("f1@macro+x=1", "metric 'f1@macro+x=1': 'macro' has no option 'x'; it has skip_nan"),
        ("fbeta+beta", f"metric 'fbeta+beta': option 'beta' {NO_VALUE}"),
        ("fbeta+beta=1e+1", f"metric 'fbeta+beta=1e+1': option '1' {NO_VALUE}"),
        ("fbeta+beta=1+beta=2", "metric 'fbeta+beta=1+beta=2': option 'beta' is given twice"),
        ("fbeta+beta=-1", "metric 'fbeta+beta=-1': beta: got -1, wanted a finite number >= 0"),
        ("fbeta+beta=two", "metric 'fbeta+beta=two': beta: got 'two', wanted a finite number >= 0"),
        ("pwkappa+power=1e999", "metric 'pwkappa+power=1e999': power: got inf, wanted a finite number >= 0"),
        ("ba+adjusted=1", "metric 'ba+adjusted=1': adjusted: got 1, wanted True or False"),
        ("f1@macro+skip_nan=no", "metric 'f1@macro+skip_nan=no': skip_nan: got 'no', wanted True or False"),
        (
            "f1@binary+positive_class=1.5",
            "metric 'f1@binary+positive_class=1.5': positive_class: got 1.5, wanted an integer",
        ),
    ],
)
def test_get_metric_invalid_names_raise(metric, message):
    with raises(ValueError, message):
        get_metric(metric)


@pytest.mark.parametrize(
    ("other_name", "suggestion"),
    [
        ("macro_f1", "'f1@macro'"),
        ("f1_macro", "'f1@macro'"),
        ("macro f1", "'f1@macro'"),
        ("F1-macro", "'f1@macro'"),
        ("f1macro", "'f1@macro'"),
        ("MicroPrecision", "'precision@micro'"),
        ("macro_avg_f1", "'f1@macro'"),
        ("recall_micro", "'recall@micro'"),
        ("precision_weighted", "'precision@weighted'"),
        ("macro true positive rate", "'true_positive_rate@macro'"),
        ("f1-score", "'f1@macro', or 'f1' for each class"),
        ("f1_score", "'f1@macro', or 'f1' for each class"),
        ("F1", "'f1@macro', or 'f1' for each class"),
        ("jaccard_score", "'jaccard@macro', or 'jaccard' for each class"),
        ("macro_acc", "'acc'"),
    ],
)
def test_get_metric_names_of_other_libraries_get_suggestion(other_name, suggestion):
    with raises(ValueError, f"metric {other_name!r}: there is no metric {other_name!r}; write {suggestion}"):
        get_metric(other_name)
    for name in suggestion.split("'")[1::2]:
        get_metric(name)


def test_metric_collection_has_names_and_order():
    collection = ConfusionMetricCollection(["f1@macro", "accuracy", get_metric("tpr"), "acc"])
    collection.add("f1")
    assert len(collection) == 5 and list(dict(collection.items())) == [
        "f1@macro",
        "accuracy",
        "true_positive_rate",
        "acc",
        "f1",
    ]
    assert collection["acc"] is collection["accuracy"] is get_metric("acc") and collection["recall"] is get_metric(
        "tpr"
    )
    assert tuple(collection)[1] is tuple(collection)[3]
    order = compute_order(collection)
    assert len(order) == len(set(order)) and set(collection) <= set(order)
    for index, quantity in enumerate(order):
        assert set(quantity.parents.values()) <= set(order[:index])
    assert order[-1] is get_metric("tpr") and order.index(get_metric("f1")) < order.index(get_metric("f1@macro"))
    for one in "acc", {"acc"}, get_metric("acc"):
        assert len(ConfusionMetricCollection(one)) == 1
    assert tuple(ConfusionMetricCollection(collection)) == tuple(collection) and len(ConfusionMetricCollection()) == 0
    with pytest.raises(KeyError) as error:
        collection["mcc"]
    assert error.value.args == (
        "metric 'mcc' is not in the collection, which has f1@macro, accuracy, true_positive_rate, acc, f1",
    )


def test_root_quantities_match_by_hand(device):
    matrix = torch.tensor([[4, 0, 1], [2, 0, 1], [0, 0, 2]], device=device)
    expected = {
        "tp": [0.4, 0, 0.2],
        "fp": [0.2, 0, 0.2],
        "fn": [0.1, 0.3, 0],
        "tn": [0.3, 0.7, 0.6],
        "p_condition": [0.5, 0.3, 0.2],
        "p_pred": [0.6, 0, 0.4],
        "norm_confusion_matrix": [[0.4, 0, 0.1], [0.2, 0, 0.1], [0, 0, 0.2]],
        "p_pred_given_condition": [[0.8, 0, 0.2], [2 / 3, 0, 1 / 3], [0, 0, 1]],
        "p_condition_given_pred": [[2 / 3, torch.nan, 0.25], [1 / 3, torch.nan, 0.25], [0, torch.nan, 0.5]],
    }
    for name, value in expected.items():
        root, value = get_metric(name), torch.tensor(value, dtype=torch.float64, device=device)
        assert isinstance(root, RootMetric)
        torch.testing.assert_close(root(matrix), value, equal_nan=True)
        torch.testing.assert_close(root(matrix.expand(2, 3, -1, -1)), value.expand(2, 3, *value.shape), equal_nan=True)
        for attribute in "is_multiclass", "bounds", "sklearn_equivalent":
            message = f"'{name}' is a root quantity, not a metric: it can be sampled but not reported"
            with raises(TypeError, message):
                getattr(root, attribute)
