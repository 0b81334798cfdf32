"""Tables of queries and models: equal to single calls, also with lost words, sub-queries and several chunks."""

import sys
import warnings

import numpy as np
import pytest
import torch
from metric_cases import ALL, GOLDEN, METRICS, Gap, OwnQuery, table
from raising import raises

from tensormetrics import association
from tensormetrics.association import RND, WEAT, Query, WordEmbeddingModel, run_queries

pd = pytest.importorskip("pandas")
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


@pytest.mark.parametrize("case", [c for c in GOLDEN["cases"] if c["kind"] == "run_queries"], ids=lambda c: c["id"])
def test_run_queries_equals_golden_values(case, device):
    queries = [Query(*(list(q[role].values()) for role in q), *(list(q[role]) for role in q)) for q in case["queries"]]
    models = [table(name, device) for name in case["models"]]
    for model, name in zip(models, case["models"], strict=True):
        model.name = name
    got = run_queries(METRICS[case["metric"]], queries, models, **case["options"])
    expected = case["expected"]
    assert (list(got.index), list(got.columns)) == (expected["index"], expected["columns"])
    np.testing.assert_allclose(got.to_numpy(), expected["values"], rtol=1e-10)


@pytest.mark.parametrize("metric", [*ALL, Gap, OwnQuery], ids=lambda metric: metric.__name__)
@pytest.mark.parametrize("budget", [2**22, 200])
def test_run_queries_equals_single_calls(metric, budget, query, models, monkeypatch):
    monkeypatch.setattr("tensormetrics.association.queries.scoring.BUDGET", budget)  # small chunks
    if metric.paired:  # lists of one length, except one
        word_sets = sets_of([4, 4, 4, 3], 0), sets_of([4, 4, 4], 1)
        query = Query(*word_sets, query.target_sets_names, query.attribute_sets_names)
    template = tuple(2 if n == "n" else n for n in metric.metric_template)
    queries = query.get_subqueries(template)
    params = {"normalize": True} if metric is not OwnQuery else {}
    got = run_queries(metric, queries, models, metric_params=params)
    assert got.dtypes.unique() == [np.float64] and got.index.name == "model_name"
    scored = 0
    for model in models:
        for single in queries:
            cell = got.loc[model.name, single.query_name]
            try:
                expected = metric().run_query(single, model, **params)["result"]
            except ValueError as error:
                assert np.isnan(cell) and got.attrs["reasons"][model.name, single.query_name] == str(error)
                continue
            assert cell == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True)
            assert np.isnan(cell) == ((model.name, single.query_name) in got.attrs["reasons"])
            scored += not np.isnan(cell)
    assert scored >= 2


@pytest.mark.parametrize("distance", ["norm", "cos", "cos_similarity"])
def test_run_queries_metric_options_and_metric_params_are_equivalent(distance, query, models):
    got = run_queries(RND(distance=distance), [query], models, generate_subqueries=True)
    options = {"generate_subqueries": True, "metric_params": {"distance": distance}}
    same = run_queries(RND, np.array([query]), models, **options)
    pd.testing.assert_frame_equal(got, same)
    single = query.get_subqueries((2, 1))[1]
    expected = RND(distance=distance).run_query(single, models[1])["result"]
    assert got.loc["second", single.query_name] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("value", ["weat", "effect_size", "p_value", "low"])
def test_run_queries_value_selects_other_results(value, query, models):
    metric = WEAT(calculate_p_value=True, replicates=20, correction=1)
    got = run_queries(metric, [query], models, generate_subqueries=True, value=value)
    for single in query.get_subqueries((2, 2))[:6]:
        expected = metric.run_query(single, models[0])[value]
        assert got.loc["first", single.query_name] == pytest.approx(expected, rel=1e-12)


def test_run_queries_nan_scores_have_reasons(query, models):
    got = run_queries(WEAT, [query], models[:1], generate_subqueries=True)
    lost = "T1 and T3 wrt A0 and A1"
    assert np.isnan(got.loc["first", lost])
    assert got.attrs["reasons"]["first", lost] == "'T3' lost 2 of 2 words (1 > 0.2)"
    assert run_queries(OwnQuery, [Query([["w0"], ["x"]], [["w1"]])], models[:1]).attrs["reasons"] == {
        ("first", "Target set 0 and Target set 1 wrt Attribute set 0"): "'Target set 1' lost 1 of 1 words (1 > 0.2)"
    }
    same = Query([["w0"], ["w0"]], [["w1"], ["w2"]])
    name = ("first", same.query_name)
    assert run_queries(WEAT, [same], models[:1], value="effect_size").attrs["reasons"] == {name: WEAT.no_score}
    assert run_queries(WEAT, [same], models[:1]).attrs["reasons"] == {}
    why = "the metric gives no 'p_value' by these options"
    assert run_queries(WEAT, [same], models[:1], value="p_value").attrs["reasons"] == {name: why}
    groups = Query([["w0"]], [["w1"]], ["T"], ["A"])
    message = "query: 'T wrt A' has 1 target and 1 attribute sets, wanted at least 2 attribute sets for the metric SAME"
    assert run_queries(association.SAME, [groups], models[:1]).attrs["reasons"] == {("first", "T wrt A"): message}
    lengths = Query([["w0", "w1"], ["w2"]], [["w3"]], ["T", "U"], ["A"])
    message = "query: 'T' has 2, 'U' has 1 words, wanted lists of one length, because they form tuples by position"
    assert run_queries(association.RIPA, [lengths], models[:1]).attrs["reasons"] == {
        ("first", "T and U wrt A"): message
    }
    far = Query([WORDS[:20], WORDS[20:40]], [["w99"]], ["T", "U"], ["A"])
    reasons = run_queries(
        RND, [far], models[:1], metric_params={"calculate_p_value": True, "p_value_method": "exact"}
    ).attrs["reasons"]
    assert list(reasons.values()) == [
        "method: got 'exact' with 137846528820 partitions, wanted at most 20000; write method='approximate'"
    ]


def test_run_queries_thousand_subqueries_equal_single_calls(models):
    set_names = [f"T{i}" for i in range(8)], [f"A{i}" for i in range(10)]
    query = Query(sets_of([6] * 8, 2), sets_of([6] * 10, 3), *set_names)
    got = run_queries(WEAT, [query], models[:1], generate_subqueries=True, as_dataframe=False)
    assert got.values.shape == (1, 28 * 45) and got.values.dtype == torch.float64 and not got.reasons
    assert got.values.device.type == models[0].vectors.device.type
    subqueries = query.get_subqueries((2, 2))
    assert got.query_names == [single.query_name for single in subqueries]
    for i in range(0, len(subqueries), 100):
        expected = WEAT().run_query(subqueries[i], models[0])["result"]
        assert got.values[0, i].item() == pytest.approx(expected, rel=1e-12, abs=1e-14)
    pd.testing.assert_frame_equal(got.to_dataframe(), run_queries(WEAT, [query], models[:1], generate_subqueries=True))


def test_run_queries_template_n_generates_subqueries(query, models):
    without_lost_set = Query(query.target_sets[:3], query.attribute_sets, ["T0", "T1", "T2"], ["A0", "A1", "A2"])
    got = run_queries(association.RNSB, [without_lost_set], models, generate_subqueries=True)
    assert list(got.columns) == [f"T0, T1 and T2 wrt {pair}" for pair in ("A0 and A1", "A0 and A2", "A1 and A2")]
    assert list(run_queries(association.MAC, [without_lost_set], models, generate_subqueries=True).columns) == [
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
    pd.testing.assert_frame_equal(got, run_queries(RND, [query], models, generate_subqueries=True))
    with (
        pytest.warns(UserWarning),
        raises(ValueError, "queries: got none with the sets that the template (2, 1) of the metric RND takes"),
    ):
        run_queries(RND, [small], models, generate_subqueries=True)


def first_column(frame):
    return frame.iloc[:, 0]


@pytest.mark.parametrize(
    ("function", "label", "expected"),
    [
        ("sum", "sum", lambda v: v.sum(1)),
        ("avg", "average", lambda v: v.mean(1)),
        ("abs_sum", "sum of abs values", lambda v: abs(v).sum(1)),
        ("abs_avg", "average of abs values", lambda v: abs(v).mean(1)),
        (first_column, "custom aggregation", lambda v: v[:, 0]),
    ],
)
def test_run_queries_aggregates_equal_numpy(function, label, expected, query, models):
    options = dict(aggregate_results=True, aggregation_function=function, queries_set_name="gender")
    queries = query.get_subqueries((2, 1))
    complete = [single for single in queries if "T3" not in single.query_name]
    got = run_queries(RND, complete, models, **options)
    assert got.columns[-1] == f"RND: gender {label} score"
    values = got.to_numpy()
    np.testing.assert_allclose(values[:, -1], expected(values[:, :-1]), rtol=1e-12)
    aggregate_only = run_queries(RND, complete, models, return_only_aggregation=True, **options)
    pd.testing.assert_frame_equal(aggregate_only, got.iloc[:, -1:])
    with pytest.warns(UserWarning) as caught:
        partly_missing = run_queries(RND, queries, models, **options)
    assert [str(w.message) for w in caught] == ["18 of 36 scores are NaN and left out of the aggregate"]
    np.testing.assert_allclose(partly_missing.iloc[:, -1], got.iloc[:, -1], rtol=1e-12)
    with pytest.warns(UserWarning):
        all_missing = run_queries(RND, [single for single in queries if single not in complete], models, **options)
    assert all_missing.iloc[:, -1].isna().all()


def test_run_queries_with_contexts_equals_single_calls(device):
    pools = {word: torch.randn(3, 4, device=device) for word in WORDS[:8]}
    model = WordEmbeddingModel.from_contexts(pools, "contexts")
    query = Query([["w0", "w1"], ["w2", "w3"]], [["w4", "w5"], ["w6", "w7"]])
    got = run_queries(association.CEAT(samples=20), [query], [model], value="p_value_random_effects")
    assert got.iloc[0, 0] == association.CEAT(samples=20).run_query(query, model)["p_value_random_effects"]
    got = run_queries(association.CEAT(samples=20, calculate_p_value=True), [query], [model], value="p_value")
    assert got.iloc[0, 0] == association.CEAT(samples=20).run_query(query, model, calculate_p_value=True)["p_value"]


def test_run_queries_subclass_uses_its_measure(query, models):
    class Twice(RND):
        def measure(self, *sets):
            return {"rnd": 2 * super().measure(*sets)["rnd"]}

    got = run_queries(Twice, [query], models, generate_subqueries=True)
    np.testing.assert_allclose(got, 2 * run_queries(RND, [query], models, generate_subqueries=True), rtol=1e-12)


def test_run_queries_metric_without_attributes_equals_single_calls(models):
    class Length(association.BaseMetric):
        metric_template, metric_name, metric_short_name = (1, 0), "Length", "LEN"

        def measure(self, t):
            vectors, mask, _ = association.WordSet.of(t)
            lengths = vectors.double().norm(dim=-1)
            return {"length": lengths.mean(-1) if mask is None else (lengths * mask).sum(-1) / mask.sum(-1)}

    queries = [Query([["w0", "w1"]], [], ["T"]), Query([["w2"]], [], ["U"])]
    got = run_queries(Length, queries, models)
    expected = [[Length().run_query(query, model)["length"] for query in queries] for model in models]
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_run_queries_custom_result_without_required_keys_raises(models):
    class Odd(association.BaseMetric):
        metric_template, metric_name, metric_short_name = (1, 0), "Odd", "ODD"

        def run_query(self, query, model, **options):
            return {"name": query.query_name, "score": 1}

    with raises(TypeError, "ODD.run_query: got ['name', 'score'], wanted 'query_name' and 'result'"):
        run_queries(Odd, [Query([["w0"]], [])], models)


TWO = Query([["w0"], ["w1"]], [["w2"]], ["T", "U"], ["A"])
OTHER = Query([["w3"], ["w1"]], [["w2"]], ["T", "U"], ["A"])


def test_run_queries_invalid_arguments_raise():
    def run(**change):
        run_queries(**{"metric": RND, "queries": [TWO], "models": [random_model("m")]} | change)

    with raises(TypeError, "metric: got 'WEAT', wanted a metric of this package or a subclass of BaseMetric"):
        run(metric="WEAT")
    with raises(TypeError, "queries: got a Query, wanted a list"):
        run(queries=TWO)
    with raises(ValueError, "queries: got an empty list, wanted at least one"):
        run(queries=[])
    with raises(TypeError, "queries[1]: query: got a int, wanted a Query"):
        run(queries=[TWO, 3])
    with raises(ValueError, "models: got an empty list, wanted at least one"):
        run(models=[])
    with raises(TypeError, "models: got a NoneType, wanted a list"):
        run(models=None)
    with raises(
        TypeError, "models[0]: model: got a dict, wanted a WordEmbeddingModel; write WordEmbeddingModel(model)"
    ):
        run(models=[{}])
    with raises(ValueError, "models: got ['same'] more than once, wanted distinct names"):
        run(models=[random_model("same"), random_model("same")])
    with raises(ValueError, "queries: got different queries named ['T and U wrt A'], wanted distinct names"):
        run(queries=[TWO, OTHER])
    with raises(
        ValueError,
        "queries: ['T and U wrt A'] do not have the sets that the template (2, 2) of the metric WEAT takes; write "
        "generate_subqueries=True to split larger ones",
    ):
        run(metric=WEAT)
    with raises(TypeError, "generate_subqueries: got 1, wanted True or False"):
        run(generate_subqueries=1)
    with raises(TypeError, "queries_set_name: got a NoneType, wanted a name"):
        run(queries_set_name=None)
    with raises(TypeError, "queries_set_name: got an empty str, wanted a name"):
        run(queries_set_name="")
    with raises(TypeError, "metric_params: got a NoneType, wanted a dict of options of run_query"):
        run(metric_params=None)
    with raises(TypeError, "preprocessors: got a NoneType, wanted a list of dicts of options"):
        run(metric_params={"preprocessors": None})
    with raises(ValueError, "queries: got an empty list, wanted at least one"):
        run(queries=np.array([]))
    with raises(ValueError, "aggregation_function: got 'mean', wanted one of 'sum', 'avg', 'abs_sum', 'abs_avg'"):
        run(aggregation_function="mean")
    with raises(
        ValueError, "aggregate_results: got True with as_dataframe=False, wanted a table to append a column to"
    ):
        run(aggregate_results=True, as_dataframe=False)
    with raises(ValueError, "return_only_aggregation: got True with as_dataframe=False, wanted as_dataframe=True"):
        run(return_only_aggregation=True, as_dataframe=False)
    with raises(TypeError, "metric_params: got a list, wanted a dict of options of run_query"):
        run(metric_params=["normalize"])
    with raises(TypeError, "metric_params: got ['warn_not_found_words'], which are arguments of run_queries"):
        run(metric_params={"warn_not_found_words": True})
    with raises(TypeError, "RND.run_query: got the unknown keyword 'distnce'; did you mean 'distance'?"):
        run(metric_params={"distnce": "cos"})
    with raises(TypeError, "value: got 'distance_by_word', wanted one of the numbers ['result', 'rnd'] of RND"):
        run(value="distance_by_word")
    with raises(TypeError, "GAP.measure: got ['gap', 'result', 'widest'], wanted also 'gaps'"):
        run(metric=Gap, value="gaps")


def test_run_queries_without_pandas_needs_as_dataframe_false(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with raises(ImportError, 'tables need pandas; write pip install "tensormetrics[tables]"'):
        run_queries(RND, [TWO], [random_model("m")])
    scores = run_queries(RND, [TWO], models=[random_model("m")], as_dataframe=False)
    assert scores.table()["m", scores.query_names[0]] == float(scores.values[0, 0])
    assert scores.values.shape == (1, 1) and scores.model_names == ["m"]


def test_run_queries_without_tqdm_shows_no_progress(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with warnings.catch_warnings():
        assert run_queries(RND, [TWO], [random_model("m")]).shape == (1, 1)


@pytest.mark.parametrize("metric", [WEAT, RND])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.filterwarnings("ignore:rnd of sets of")
def test_run_queries_intervals_equal_single_calls(metric, batched, query, models):
    class Unbatched(metric):
        def run_query(self, *args, **options):
            return metric(replicates=60, seed=3, confidence=0.8).run_query(*args[:2])

    queries = query.get_subqueries(metric.metric_template)
    params = {"replicates": 60, "seed": 3, "confidence": 0.8} if batched else {}
    kind = metric if batched else Unbatched
    got = run_queries(kind, queries, models, metric_params=params, intervals=True)
    assert list(got.columns.levels[1]) == sorted(["value", "low", "high"]) and got.columns.names[0] == "query_name"
    for model in models:
        for single in queries:
            cells = got.loc[model.name, single.query_name]
            expected = metric(replicates=60, seed=3, confidence=0.8).run_query(single, model)
            assert list(cells.index) == ["value", "low", "high"]
            bounds = [expected[key] for key in ("result", "low", "high")]
            assert cells.tolist() == pytest.approx(bounds, rel=1e-9, nan_ok=True)
    scores = run_queries(kind, queries, models, metric_params=params, intervals=True, as_dataframe=False)
    np.testing.assert_array_equal(scores.estimate.low.cpu(), got.xs("low", axis=1, level=1))
    np.testing.assert_array_equal(scores.estimate.value.cpu(), scores.values.cpu())


def test_run_queries_unavailable_intervals_raise(query, models):
    queries = query.get_subqueries((2, 2))
    for options, message in (
        ({}, "intervals: WEAT gives none so; write metric_params={'replicates': 1000} if it can"),
        ({"value": "low"}, "intervals: got True with another value or an aggregate, wanted value='result' alone"),
        ({"aggregate_results": True}, "intervals: got True with another value or an aggregate, wanted value='result' "
         "alone"),
    ):  # fmt: skip
        with raises(ValueError, message):
            run_queries(WEAT, queries, models, intervals=True, **options)


def test_run_queries_table_equals_dataframe():
    models = [random_model(name) for name in ("m", "n")]
    query = Query([["w0", "w1"], ["w2", "w3"]], [["w4", "w5"], ["w6", "w7"]])
    options = {"metric_params": {"replicates": 50}, "intervals": True}
    frame = run_queries(WEAT, [query], models, **options)
    table = run_queries(WEAT, [query], models, **options, as_dataframe=False).table()
    (name,) = table.columns
    assert table.rows == ("m", "n") and table.index == "model"
    for model in table.rows:
        assert [*map(float, table[model, name])] == frame.loc[model, name].tolist()
