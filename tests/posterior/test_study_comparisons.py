"""Comparisons of the experiments of a study: by common items if there are any, else by posteriors."""

import pytest
import torch

from tensormetrics.posterior import ConfusionPosterior, Study
from tensormetrics.uncertainty import compare, compare_samples, correct_p_values
from tensormetrics.uncertainty.functional import hdi

N, C = 40, 3


def labels(generator):
    truth = torch.randint(C, (N,), generator=generator)
    rates = {"a": 0.9, "b": 0.6}
    return truth, {name: truth.where(torch.rand(N, generator=generator) < rate, 0) for name, rate in rates.items()}


def study_of(truth, preds, items, groups=None):
    study = Study(seed=3, confidence=0.9, metrics={"acc": {}, "fnr": {}, "f1@macro": {}}, zero_division=1)
    for name, answers in preds.items():
        study.add_experiment(name, y_true=truth, y_pred=answers, num_classes=C, items=items, groups=groups)
    return study


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("metric", "label"), [("acc", None), ("fnr", 1), ("f1@macro", None)])
def test_study_compare_same_items_equals_paired_comparison(metric, label, grouped, generator):
    truth, preds = labels(generator)
    groups = torch.arange(N) // 3 if grouped else None
    study = study_of(truth, preds, "test", groups)
    metrics = []
    for answers in preds.values():
        metrics.append(ConfusionPosterior(C, metric, zero_division=1))
        identity = {"ids": torch.arange(N)} | ({"groups": groups} if grouped else {})
        metrics[-1].update(answers, truth, **identity)
    expected = compare(*metrics, confidence=0.9, rope=0.05, seed=3)[metric]
    table = study.compare(metric, label, rope=0.05)
    comparison = table["a - b", "difference"]
    assert table.rows == ("a - b",) and comparison.items == N and comparison.groups == (14 if grouped else N)
    for name in expected.tensors:
        of_all = getattr(expected, name)
        assert torch.equal(getattr(comparison, name), of_all if label is None else of_all[label]), name


def test_study_compare_other_items_equals_posterior_comparison(generator):
    truth, preds = labels(generator)
    study = study_of(truth, preds, False)
    study.add_experiment("c", [[9, 1, 0], [2, 8, 0], [0, 1, 9]])
    table = study.compare("fnr", 1)
    assert table.rows == ("a - b", "a - c", "b - c")
    p_values = torch.tensor(table.columns["p"].tolist(), dtype=torch.float64)
    assert table.columns["corrected p"].tolist() == correct_p_values(p_values).tolist()
    for row, comparison in ((row, table[row, "difference"]) for row in table.rows):
        pair = [f"{name}/{name}" for name in row.split(" - ")]
        a, b = (study.column("fnr", 1, name) for name in pair)
        observed = (study.column("fnr", 1, pair[0], "input") - study.column("fnr", 1, pair[1], "input"))[0]
        expected = compare_samples(a, b, observed=observed, confidence=0.9, higher_is_better=False)
        torch.testing.assert_close(comparison.difference, expected.difference, rtol=1e-6, atol=1e-6)
        assert comparison.verdict == expected.verdict and (float(comparison) < 0) == (float(comparison.p_better) > 0.5)
        assert comparison.test == "draws" and comparison.higher_is_better is False
        for name in ("low", "high", "p_value", "p_better"):
            assert torch.equal(getattr(comparison, name), getattr(expected, name)), name


def test_compare_samples_is_more_certain_than_paired_items():
    """The numbers that the docstring of `compare_samples` states."""
    truth = torch.tensor([0, 1] * 15)
    preds = {"a": truth, "b": torch.cat([1 - truth[:1], truth[1:]])}
    study = Study(seed=0, metrics={"acc": {}})
    for name, answers in preds.items():
        study.add_experiment(name, y_true=truth, y_pred=answers, items="test")
    by_items = study.compare("acc")["a - b", "difference"]
    by_draws = compare_samples(*(study.column("acc", None, name) for name in preds), observed=1 / 30)
    assert [round(float(x), 3) for x in (by_items.p_value, by_items.p_better)] == [1, 0.75]
    assert [round(float(x), 2) for x in (by_draws.p_value, by_draws.p_better)] == [0.36, 0.82]
    ends = torch.stack([by_items.low, by_items.high, by_draws.low, by_draws.high])
    torch.testing.assert_close(ends, ends.new_tensor([-0.05, 0.13, -0.05, 0.13]), rtol=0, atol=0.006)


@pytest.mark.filterwarnings("ignore:.*never predicted")
def test_study_compare_uses_zero_division_of_study():
    study = Study(seed=0, metrics={"ppv": {}}, zero_division=1)
    for name, answers in {"a": torch.tensor([0, 1] * 6), "b": torch.zeros(12).long()}.items():
        study.add_experiment(name, y_true=torch.tensor([0, 1] * 6), y_pred=answers, num_classes=2, items="test")
    result = study.compare("ppv", 1)["a - b", "difference"]  # b never answers 1: its precision is 1 by definition
    assert float(result) == 0 == float(study.table("ppv", 1)["a", "ppv/1"]) - float(study.table("ppv", 1)["b", "ppv/1"])


def test_study_table_lists_values_and_intervals(generator):
    truth, preds = labels(generator)
    study = study_of(truth, preds, "test")
    study.add_experiment("pooled/first", [[9, 1, 0], [2, 8, 0], [0, 1, 9]])
    table = study.table()
    assert table.rows == ("a", "b", "pooled/first")
    assert [*table.columns] == ["acc", "fnr/0", "fnr/1", "fnr/2", "f1@macro"]
    assert [table.higher_is_better[name] for name in ("acc", "fnr/1")] == [True, False]
    for row in table.rows:
        value, low, high = map(float, table[row, "acc"])
        ends = [float(end) for end in hdi(study.column("acc", None, row), 0.9)]
        assert value == pytest.approx(study.column("acc", None, row, "input").item()) and low <= value <= high
        assert [low, high] == pytest.approx([min(ends[0], value), max(ends[1], value)])
    assert table["a", "acc"].confidence == 0.9 and study.table("fnr", 1).select("fnr/1")["a"]
    assert [*study.table(["acc", "fnr"], 1).columns] == ["acc", "fnr/1"]
    compared = study.compare(baseline="b")
    assert compared.rows == ("a - b", "pooled/first - b")
    assert [*compared.columns] == [part for name in table.columns for part in (name, f"{name} p")]
    for row, column in (("a", "acc"), ("pooled/first", "fnr/2")):
        observed = float(table[row, column]) - float(table["b", column])
        assert float(compared[f"{row} - b", column]) == pytest.approx(observed, nan_ok=True)
    with pytest.raises(ValueError, match="^baseline: got 'c/c', wanted one of 'a/a', 'b/b', 'pooled/first'$"):
        study.compare("acc", baseline="c")
    with pytest.raises(ValueError, match="the study has no experiments"):
        Study(0, metrics={"acc": {}}).table()
    with pytest.raises(ValueError, match="a comparison needs at least 2"):
        Study(0, metrics={"acc": {}}).compare("acc")
