"""Tables of queries and models: equal to single calls, also with lost words, sub-queries and several chunks."""

import math
import sys
import warnings

import numpy as np
import pytest
import torch
from metric_cases import ALL, Gap, OwnQuery
from raising import raises

from tensormetrics import association
from tensormetrics.association import RND, WEAT, Query, WordEmbeddingModel, run_queries

WORDS = [f"w{i}" for i in range(120)]


def random_model(name, device="cpu", dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(len(WORDS), 6, generator=generator).to(device, dtype)
    return WordEmbeddingModel.from_tensor(vectors, WORDS, name)


@pytest.fixture
def models(device):
    return [random_model("first", device), random_model("second", device, torch.float64, 1)]


def sets_of(sizes, seed):
    draw = np.random.default_rng(seed)
    return [list(draw.choice(WORDS, size, replace=False)) for size in sizes]


@pytest.fixture
def query():
    """Return a query of ragged sets; all words of T3 and one of five words of A2 are missing."""
    targets, attributes = sets_of([4, 5, 3, 4], 0), sets_of([5, 3, 4], 1)
    targets[3], attributes[2] = ["x", "y"], ["x", *attributes[2]]
    return Query(targets, attributes, ["T0", "T1", "T2", "T3"], ["A0", "A1", "A2"])


def numbers(table):
    """Return the number of each cell of a table."""
    return [[float(cell) for cell in row] for row in table.cells]


@pytest.mark.parametrize("metric", [*ALL, Gap, OwnQuery], ids=lambda metric: metric.__name__)
@pytest.mark.parametrize("budget", [2**22, 200])
def test_run_queries_equals_single_calls(metric, budget, query, models, monkeypatch):
    monkeypatch.setattr("tensormetrics.association.queries.scoring.BUDGET", budget)  # small chunks
    if metric.paired:  # lists of one length, except one
        word_sets = sets_of([4, 4, 4, 3], 0), sets_of([4, 4, 4], 1)
        query = Query(*word_sets, query.target_sets_names, query.attribute_sets_names)
    queries = query.get_subqueries(tuple(2 if n == "n" else n for n in metric.metric_template))
    metric = metric(normalize=metric is not OwnQuery)
    got = run_queries(metric, queries, models)
    assert got.rows == ("first", "second") and got.index == "model"
    scored = 0
    for model in models:
        for single in queries:
            cell = got[model.name, single.query_name]
            try:
                expected = metric.run_query(single, model)
            except ValueError as error:
                reason = str(error)
            else:
                assert cell == pytest.approx(float(expected), rel=1e-12, abs=1e-12, nan_ok=True)
                scored += not math.isnan(cell)
                reason = expected.details.get("reason")
            assert math.isnan(cell) == (f"{model.name}, {single.query_name}: {reason}" in (got.caption or ""))
    assert scored >= 2


@pytest.mark.parametrize("value", ["weat", "effect_size", "p_value"])
def test_run_queries_value_selects_other_results(value, query, models):
    metric = WEAT(p_value=True, replicates=20, correction=1)
    got = run_queries(metric, np.array([query]), models, generate_subqueries=True, value=value)
    for single in query.get_subqueries((2, 2))[:6]:
        expected = metric.run_query(single, models[0]).details[value]
        assert got["first", single.query_name] == pytest.approx(float(expected), rel=1e-12)


def test_run_queries_nan_scores_have_reasons(query, models):
    got = run_queries(WEAT, [query], models[:1], generate_subqueries=True)
    lost = "T1 and T3 wrt A0 and A1"
    assert math.isnan(got["first", lost])
    assert f"first, {lost}: 'T3' lost 2 of 2 words (1 > 0.2)" in got.caption

    def caption(metric, targets, attributes, names="TU", value=None):
        query = Query(targets, attributes, [*names[: len(targets)]], [*"AB"[: len(attributes)]])
        return run_queries(metric, [query], models[:1], value=value).caption

    reason = "first, T and U wrt A: 'U' lost 1 of 1 words (1 > 0.2)"
    assert caption(OwnQuery, [["w0"], ["x"]], [["w1"]]) == reason
    same = [["w0"], ["w0"]], [["w1"], ["w2"]]
    assert caption(WEAT, *same) is None
    assert caption(WEAT, *same, value="effect_size") == f"first, T and U wrt A and B: {WEAT.no_score}"
    reason = "query: 'T wrt A' has 1 target and 1 attribute sets, wanted at least 2 attribute sets for the metric SAME"
    assert caption(association.SAME, [["w0"]], [["w1"]]) == f"first, T wrt A: {reason}"
    reason = "query: 'T' has 2, 'U' has 1 words, wanted lists of one length, because they form tuples by position"
    assert caption(association.RIPA, [["w0", "w1"], ["w2"]], [["w3"]]) == f"first, T and U wrt A: {reason}"
    reason = "method: got 'exact' with 137846528820 partitions, wanted at most 20000; write method='approximate'"
    far = [WORDS[:20], WORDS[20:40]], [["w99"]]
    assert caption(RND(p_value=True, method="exact"), *far) == f"first, T and U wrt A: {reason}"


def test_run_queries_thousand_subqueries_equal_single_calls(models):
    set_names = [f"T{i}" for i in range(8)], [f"A{i}" for i in range(10)]
    query = Query(sets_of([6] * 8, 2), sets_of([6] * 10, 3), *set_names)
    got = run_queries(WEAT, [query], models[:1], generate_subqueries=True)
    subqueries = query.get_subqueries((2, 2))
    assert got.caption is None and [*got.columns] == [single.query_name for single in subqueries]
    assert len(subqueries) == 28 * 45
    for single in subqueries[::100]:
        assert got["first", single.query_name] == pytest.approx(
            float(WEAT().run_query(single, models[0])), rel=1e-12, abs=1e-14
        )


def test_run_queries_template_n_generates_subqueries(query, models):
    without_lost_set = Query(query.target_sets[:3], query.attribute_sets, ["T0", "T1", "T2"], ["A0", "A1", "A2"])
    got = run_queries(association.RNSB, [without_lost_set], models, generate_subqueries=True)
    assert [*got.columns] == [f"T0, T1 and T2 wrt {pair}" for pair in ("A0 and A1", "A0 and A2", "A1 and A2")]
    assert [*run_queries(association.MAC, [without_lost_set], models, generate_subqueries=True).columns] == [
        without_lost_set.query_name
    ]


def test_run_queries_duplicate_subqueries_warn(query, models):
    other = Query([*query.target_sets[:2], ["w1", "w2"]], query.attribute_sets[:1], ["T0", "T1", "T2"], ["A0"])
    small = Query(query.target_sets[:1], query.attribute_sets[:1], ["T0"], ["A0"])
    with pytest.warns(UserWarning) as caught:
        got = run_queries(RND, [query, other, small, query], models, generate_subqueries=True)
    assert [str(warning.message) for warning in caught] == [
        "queries: ['T0 wrt A0'] have fewer sets than the template (2, 1) of the metric RND, and are left out",
        "queries: different sub-queries are named ['T0 and T2 wrt A0', 'T1 and T2 wrt A0']; the first of each name is "
        "kept",
    ]
    assert got == run_queries(RND, [query], models, generate_subqueries=True)
    with (
        pytest.warns(UserWarning),
        raises(ValueError, "queries: got none with the sets that the template (2, 1) of the metric RND takes"),
    ):
        run_queries(RND, [small], models, generate_subqueries=True)


def test_run_queries_with_contexts_equals_single_calls(device):
    pools = {word: torch.randn(3, 4, device=device) for word in WORDS[:8]}
    model = WordEmbeddingModel.from_contexts(pools, "contexts")
    query = Query([["w0", "w1"], ["w2", "w3"]], [["w4", "w5"], ["w6", "w7"]])
    metric = association.CEAT(samples=20, p_value=True)
    expected = metric.run_query(query, model)
    for value in ("p_value_random_effects", "p_value"):
        ((cell,),) = run_queries(metric, [query], [model], value=value).cells
        assert cell == expected.details[value]


def test_run_queries_subclass_uses_its_measure(query, models):
    class Twice(RND):
        def measure(self, *sets):
            return {"rnd": 2 * super().measure(*sets)["rnd"]}

    got, single = (numbers(run_queries(kind, [query], models, generate_subqueries=True)) for kind in (Twice, RND))
    np.testing.assert_allclose(got, 2 * np.array(single), rtol=1e-12)


def test_run_queries_metric_without_attributes_equals_single_calls(models):
    class Length(association.extend.BaseMetric):
        metric_template, metric_name, metric_short_name = (1, 0), "Length", "LEN"

        def measure(self, t):
            vectors, mask, _ = association.functional.WordSet.of(t)
            lengths = vectors.double().norm(dim=-1)
            return {"length": lengths.mean(-1) if mask is None else (lengths * mask).sum(-1) / mask.sum(-1)}

    queries = [Query([["w0", "w1"]], [], ["T"]), Query([["w2"]], [], ["U"])]
    expected = [[float(Length().run_query(query, model)) for query in queries] for model in models]
    np.testing.assert_allclose(numbers(run_queries(Length, queries, models)), expected, rtol=1e-12)


def test_run_queries_custom_result_that_is_no_estimate_raises(models):
    class Odd(association.extend.BaseMetric):
        metric_template, metric_name, metric_short_name = (1, 0), "Odd", "ODD"

        def run_query(self, query, model):
            return {"name": query.query_name, "score": 1}

    with raises(TypeError, "ODD.run_query: got a dict, wanted an Estimate"):
        run_queries(Odd, [Query([["w0"]], [])], models)


TWO = Query([["w0"], ["w1"]], [["w2"]], ["T", "U"], ["A"])
OTHER = Query([["w3"], ["w1"]], [["w2"]], ["T", "U"], ["A"])


def test_run_queries_invalid_arguments_raise():
    def run(metric=RND, queries=[TWO], models=[random_model("m")], **change):  # noqa: B006, B008
        run_queries(metric, queries, models, **change)

    metric = "got 'WEAT', wanted a metric of this package or a subclass of BaseMetric"
    model = "got a dict, wanted a WordEmbeddingModel; write WordEmbeddingModel(model)"
    sets = "['T and U wrt A'] do not have the sets that the template (2, 2) of the metric WEAT takes"
    two, value = "got different queries named ['T and U wrt A']", "got 'rnd' with correction='holm', wanted 'p_value'"
    empty, same = "got an empty list, wanted at least one", [random_model("same"), random_model("same")]
    for change, kind, message in (
        ({"metric": "WEAT"}, TypeError, f"metric: {metric}"),
        ({"queries": TWO}, TypeError, "queries: got a Query, wanted a list"),
        ({"queries": []}, ValueError, f"queries: {empty}"),
        ({"queries": np.array([])}, ValueError, f"queries: {empty}"),
        ({"queries": [TWO, 3]}, TypeError, "queries[1]: query: got a int, wanted a Query"),
        ({"models": []}, ValueError, f"models: {empty}"),
        ({"models": None}, TypeError, "models: got a NoneType, wanted a list"),
        ({"models": [{}]}, TypeError, f"models[0]: model: {model}"),
        ({"models": same}, ValueError, "models: got ['same'] more than once, wanted distinct names"),
        ({"queries": [TWO, OTHER]}, ValueError, f"queries: {two}, wanted distinct names"),
        ({"metric": WEAT}, ValueError, f"queries: {sets}; write generate_subqueries=True to split larger ones"),
        ({"generate_subqueries": 1}, TypeError, "generate_subqueries: got 1, wanted True or False"),
        ({"value": "distance_by_word"}, ValueError, "value: got 'distance_by_word', wanted one of rnd of RND"),
        ({"value": "rnd", "correction": "holm"}, ValueError, f"value: {value}"),
    ):
        with raises(kind, message):
            run(**change)


def test_run_queries_without_tqdm_shows_no_progress(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with warnings.catch_warnings():
        assert run_queries(RND, [TWO], [random_model("m")]).rows == ("m",)


@pytest.mark.parametrize("metric", [WEAT, RND])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.filterwarnings("ignore:rnd of sets of")
def test_run_queries_intervals_equal_single_calls(metric, batched, query, models):
    class Unbatched(metric):
        def run_query(self, query, model):
            return super().run_query(query, model)

    queries = query.get_subqueries(metric.metric_template)
    options = {"replicates": 60, "seed": 3, "confidence": 0.8}
    got = run_queries((metric if batched else Unbatched)(**options), queries, models)
    for model in models:
        for single in queries:
            cell, expected = got[model.name, single.query_name], metric(**options).run_query(single, model)
            assert [*map(float, cell)] == pytest.approx([*map(float, expected)], rel=1e-9, nan_ok=True)
            assert cell.confidence == 0.8
