import math

import pytest
import torch
from posterior_oracle import GOLDEN, numbers

from tensormetrics.posterior import sample_sums, sums_from_matrices
from tensormetrics.posterior.averaging import AVERAGINGS
from tensormetrics.posterior.scores import SCORES
from tensormetrics.posterior.syntax import resolve

NAMES = [score.aliases[0] for score in SCORES]
AVERAGED = [f"{score.aliases[0]}@{a.aliases[0]}" for score in SCORES if score.per_class for a in AVERAGINGS]


def evaluate(metric, matrix):
    return resolve(metric).formula(sums_from_matrices(torch.as_tensor(matrix)))


@pytest.mark.parametrize("name", GOLDEN["matrices"])
def test_known_values(name, device):
    matrix = torch.tensor(GOLDEN["matrices"][name], device=device, dtype=torch.float64)
    for metric, expected in GOLDEN["values"][name].items():
        for dtype, tolerance in (torch.float64, {"rtol": 1e-9, "atol": 1e-12}), (torch.float32, {"rtol": 1e-5}):
            sums = sums_from_matrices(matrix)
            found = resolve(metric).formula(type(sums)(*(x.to(dtype) for x in sums)))
            close = {"atol": 1e-6, **tolerance, "equal_nan": True, "msg": lambda text, metric=metric: metric + text}
            torch.testing.assert_close(found.cpu().double(), numbers(expected), **close)


def test_every_score_has_a_known_value():
    known = {resolve(metric) for metric in GOLDEN["values"]["tri"]}
    assert known >= set(SCORES)


@pytest.mark.parametrize("metric", NAMES + AVERAGED)
def test_batches_bounds_and_need(metric, device):
    score = resolve(metric)
    sums = sample_sums(torch.randint(0, 20, (2, 4, 4), device=device), 30, dtype=torch.float64, need=score.need)
    values = score.formula(sums)
    assert values.shape == (30, 2, 4 if score.per_class else 1)
    for s, e in (0, 0), (17, 1), (29, 0):
        one = score.formula(type(sums)(*(None if x is None else x[s, e] for x in sums)))
        torch.testing.assert_close(values[s, e], one, rtol=1e-12, atol=1e-12, equal_nan=True)
    low, high = score.bounds
    assert ((values >= low - 1e-12) & (values <= high + 1e-12) | values.isnan()).all()


def test_a_perfect_classifier_is_exactly_perfect(device):
    sums = sample_sums(torch.diag(torch.tensor([7, 1, 30], device=device)), 2_000)
    for metric in "acc", "mcc", "kappa", "tpr", "ppv", "f1", "p4", "f1@macro", "f1@weighted", "jaccard", "informedness":
        assert (resolve(metric).formula(sums) == 1).all(), metric
    for metric in "fnr", "fpr", "fdr", "for", "prev_thresh":
        assert (resolve(metric).formula(sums) == 0).all(), metric


def test_undefined_values():
    never_predicted = [[4.0, 0], [2, 0]]
    assert evaluate("ppv", never_predicted)[1].isnan() and evaluate("ppv@macro", never_predicted).isnan()
    assert evaluate("f1", never_predicted)[1] == 0 and evaluate("p4", never_predicted)[1] == 0
    never_true = [[3.0, 1, 0], [0, 0, 0], [1, 2, 5]]
    assert evaluate("tpr", never_true)[1].isnan() and evaluate("tpr@macro", never_true).isnan()
    torch.testing.assert_close(evaluate("tpr@weighted", never_true), torch.tensor([8 / 12], dtype=torch.float64))
    assert evaluate("f1_gain", never_true)[1].isnan() and evaluate("precision_gain", never_true)[1] == 0
    assert evaluate("recall_gain", [[0.0, 3], [1, 2]])[0] == 0
    assert evaluate("precision_gain", [[0.0, 3], [0, 2]])[0].isnan()
    assert evaluate("dor", [[3.0, 0], [1, 2]]).tolist() == [math.inf, math.inf]
    assert evaluate("log_dor", [[3.0, 1], [0, 0]]).isnan().all()
    for metric in NAMES + AVERAGED:
        assert evaluate(metric, torch.zeros(3, 3)).isnan().all(), metric


def test_aliases():
    aliases = [alias for row in (*SCORES, *AVERAGINGS) for alias in row.aliases]
    assert len(aliases) == len(set(aliases))
    for score in SCORES:
        assert all(resolve(alias) is score for alias in score.aliases)
    averaged = resolve("precision@mean")
    assert averaged is resolve(" ppv @ macro ") and "ppv@macro" in averaged.aliases and not averaged.per_class
    assert averaged.full_name == "Positive Predictive Value with Macro Averaging"


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("", "metric: got '', wanted 'name' or 'name@averaging', such as 'acc' or 'f1@macro'"),
        (None, "metric: got None, wanted 'name' or 'name@averaging'"),
        ("f1@macro@macro", "metric: got 'f1@macro@macro', wanted 'name' or 'name@averaging'"),
        ("recal", "metric 'recal': there is no metric 'recal'; the closest are recall, "),
        ("f1@makro", "metric 'f1@makro': there is no averaging 'makro'; the closest are macro, "),
        ("f1@", "metric 'f1@': there is no averaging ''"),
        ("ACC", "metric 'ACC': there is no metric 'ACC'"),
        ("acc@macro", "metric 'acc@macro': 'acc' is one number already; leave out '@macro'"),
        ("f1+beta=2", r"metric 'f1\+beta=2': options are not available for 'f1'; write 'f1' alone"),
        ("f1@macro+x=1", r"metric 'f1@macro\+x=1': options are not available for 'macro'; write 'macro' alone"),
    ],
)
def test_errors(metric, message):
    with pytest.raises(ValueError, match=message):
        resolve(metric)
