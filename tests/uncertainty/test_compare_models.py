"""Comparison of several models in one table."""

import pytest
import torch

from tensormetrics import Comparison, Estimate, Table, compare
from tensormetrics.retrieval import FirstRank, HitRate, evaluate_run
from tensormetrics.uncertainty import UncertaintyWarning, correct_p_values


def metric(kind, noise, seed, items=60):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(items) % 3
    result = kind(1) if kind is HitRate else kind("mean")
    result.update(torch.eye(3)[labels] + noise * torch.randn(items, 3, generator=generator), labels)
    return result


@pytest.fixture(scope="module")
def models():
    noises = {"small": 0.9, "large": 0.45, "middle": 0.6}
    return {name: {"hits": metric(HitRate, x, 0), "rank": metric(FirstRank, x, 0)} for name, x in noises.items()}


def test_compare_several_models_equals_pairwise_compare(models):
    hit_rates = {name: metrics["hits"] for name, metrics in models.items()}
    table = compare(hit_rates, rope=0.01)
    assert table.rows == ("small - large", "small - middle", "large - middle")
    rope = ["p_rope", "p_not_worse", "p_equivalent"]
    assert [*table.columns] == ["difference", "p", "corrected p", "p_better", *rope, "verdict"]
    assert table.best == ("large",)
    for row in table.rows:
        one = compare(*(hit_rates[name] for name in row.split(" - ")), rope=0.01)
        cell = table[row, "difference"]
        assert [*map(float, (cell, cell.p_better, cell.p_rope))] == [*map(float, (one, one.p_better, one.p_rope))]
        assert [table[row, name] for name in rope] == [float(getattr(one, name)) for name in rope]
        assert cell.low <= one.low and cell.high >= one.high and table[row, "verdict"] == cell.verdict
        assert table[row, "p"] == float(one.p_value) <= table[row, "corrected p"] == float(cell.p_corrected)
        assert ((cell.low > 0) | (cell.high < 0)) == (cell.p_corrected <= 0.05)


def test_compare_with_baseline_adds_differences_to_scores(models):
    table = compare(models, baseline="small", correction="bh", rope=0.01)
    assert table.rows == ("small", "large", "middle") and table.index == "model"
    assert [*table.columns] == [
        f"{score}{field}" for score in ("hits", "rank") for field in ("", " - small", " p", " p_not_worse", " verdict")
    ]
    assert table.higher_is_better["hits"] is True and table.higher_is_better["rank"] is False
    for name, metrics in models.items():
        for score, metric_of in metrics.items():
            assert [*map(float, table[name, score])] == [*map(float, metric_of.interval())]
            if name != "small":
                one = compare(metric_of, models["small"][score], rope=0.01)
                assert table[name, f"{score} p_not_worse"] == float(one.p_not_worse)
                cell = table[name, f"{score} - small"]
                assert table[name, f"{score} verdict"] == cell.verdict
                assert cell.difference == one.difference and cell.low <= one.low and cell.high >= one.high
    p_values = [compare(models[name]["hits"], models["small"]["hits"]).p_value for name in ("large", "middle")]
    expected = correct_p_values(torch.stack(p_values), "bh")
    assert [table["large", "hits p"], table["middle", "hits p"]] == expected.tolist()
    assert "corrected over 2 models (bh)" in str(table) and Table.from_json(table.to_json()) == table


def test_corrected_p_does_not_depend_on_order_of_models(generator):
    scores = {name: torch.rand(20, generator=generator) + shift for name, shift in (("a", 0), ("b", 0.1), ("c", 0.2))}
    table, turned = compare(scores), compare(dict(reversed(scores.items())))
    for a, b in ("ab", "ac", "bc"):
        assert table[f"{a} - {b}", "difference"].p_corrected == turned[f"{b} - {a}", "difference"].p_corrected


def test_table_sort_and_tied_agree_with_pairwise_p_values(models):
    table = compare(models, baseline="small")
    assert table.sort("hits").rows[0] == table.sort("rank").rows[0] == table.tied("hits")[0] == "large"
    pairs = table.compare()
    assert pairs.rows == ("small - large", "small - middle", "large - middle")
    tied = [name for name in ("small", "middle") if pairs[pair_of(pairs, name, "large"), "hits p"] > 0.05]
    assert set(table.tied("hits")) == {"large", *tied}
    assert table.to_latex(bold="tied").count(r"\textbf") >= table.to_latex().count(r"\textbf") == 2
    with pytest.raises(ValueError, match="column: got 'hits p', for which neither high nor low is better"):
        table.tied("hits p")
    with pytest.raises(KeyError, match="column: got 'misses', wanted one of hits, hits - small"):
        table.tied("misses")


def pair_of(table, *names):
    return next(row for row in table.rows if set(row.split(" - ")) == set(names))


def test_many_clearly_different_models_are_significant_in_all_tables():
    """No pair has an item on which the worse model is right: McNemar's p-values are below 1e-30."""
    hard = torch.rand(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    models = {f"m{i}": (hard < 0.2 + 0.6 * i / 7).double() for i in range(8)}
    table = compare(models)
    assert table.best == ("m7",) and table.ranks == {f"m{i}": (8 - i, 8 - i) for i in range(8)}
    assert {*table.columns["verdict"]} == {"worse"} and float(table.columns["corrected p"].max()) < 0.002
    others = {f"m{i}": (hard < 0.2 + 0.6 * i / 26).double() for i in range(1, 27)} | {"base": models["m0"]}
    with_baseline = compare(others, baseline="base")
    assert with_baseline.tied("score") == ("m26",) and with_baseline["m1", "score p"] < 0.01
    with pytest.warns(UncertaintyWarning, match="^correction: 1000 replicates show no p-value below 0.0559 of 28"):
        assert float(compare(models, correction="holm").columns["corrected p"].max()) > 0.05


def test_table_after_metric_reset_keeps_its_scores(models):
    metrics = {name: metric(HitRate, 0.6, seed) for seed, name in enumerate("ab")}
    table = compare(metrics, baseline="a")
    before = table["b", "HitRate - a"].difference
    metrics["b"].reset()
    assert table.compare()["a - b", "difference"] == -float(before)


def test_comparison_reports_direction_and_both_estimates(models):
    rank = compare(models["large"]["rank"], models["small"]["rank"])
    assert rank.name == "FirstRank" and rank.higher_is_better is False and rank.verdict == "better"
    assert isinstance(rank, Comparison) and isinstance(rank.a, Estimate)
    for estimate, name in ((rank.a, "large"), (rank.b, "small")):
        assert [*map(float, estimate)] == [*map(float, models[name]["rank"].interval())]
    with_number = compare(models["large"]["hits"], 0.5)
    assert rank.test == "paired swaps" and with_number.test == "exact binomial"
    assert with_number.b is None and float(with_number.a) == float(models["large"]["hits"].compute())


def test_compare_small_sample_warns_once():
    metrics = {name: metric(HitRate, 0.6, seed, items=4) for seed, name in enumerate("abc")}
    with pytest.warns(UserWarning) as warned:
        compare(metrics)
    assert len([warning for warning in warned if warning.category is UncertaintyWarning]) == 1


def test_compare_runs_in_tables():
    right = torch.rand(2, 40, generator=torch.Generator().manual_seed(1)) < torch.tensor([[0.8], [0.6]])
    qrels = {f"q{i}": {"a": 1} for i in range(40)}
    runs = [
        {f"q{i}": {"a": 2.0, "b": 1.0 + 2.0 * (not r)} for i, r in enumerate(answers.tolist())} for answers in right
    ]
    a, b = (evaluate_run(run, qrels, ["P_1", "num_rel"]) for run in runs)
    table = compare({"a": a, "b": b}, baseline="b")
    assert [*table.columns] == ["P_1", "P_1 - b", "P_1 p"] and table["a", "P_1"] == float(a.summary()["P_1"])
    row = a.table("bm25")
    assert row.rows == ("bm25",) and row["bm25", "num_rel"] == 40 and a.plot()
    with pytest.raises(ValueError, match="relevance_level: got 2 for a and 1 for b"):
        compare(evaluate_run(runs[0], {q: {"a": 2} for q in qrels}, ["P_1"], relevance_level=2), b)
    grouped = a.interval(groups=[i // 4 for i in range(40)])["P_1"]
    assert grouped.groups == 10 and grouped.items == 40
