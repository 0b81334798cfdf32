"""Programs written for WEFE run with imports from `compat.wefe`; its arguments, their order, and its functions."""

import doctest
import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from documents import code_blocks, with_our_imports
from raising import raises
from scipy.spatial.distance import cosine

from tensormetrics import association
from tensormetrics.association import Query, WordEmbeddingModel
from tensormetrics.compat import wefe
from tensormetrics.compat.wefe import (
    get_embeddings_from_query,
    get_embeddings_from_set,
    get_embeddings_from_tuples,
)
from tensormetrics.core.arguments import checks

pd = pytest.importorskip("pandas")

ASSOCIATION = Path(__file__).parent.parent / "association"
GOLDEN = json.loads((ASSOCIATION / "golden_doors.json").read_text())
CASING = GOLDEN["casing"]
SCORES = json.loads((ASSOCIATION / "golden.json").read_text())
LOWER = {"lowercase": True}
METRICS = ["WEAT", "RND", "RNSB", "RIPA", "ECT", "MAC"]
CANNOT_RUN = {  # number of a block of the guide: its error, because it
    2: RuntimeError,  # is a part of a method
    3: NameError,  # is a part of a method
    4: IndentationError,  # has one space more in its first lines
    5: SyntaxError,  # is an abbreviated output
    6: SyntaxError,  # is an abbreviated output
}


def run_guide(blocks=range(10)):
    """Run blocks of WEFE's guide to metrics, one after another, and return what they define."""
    names = {"__name__": "guide"}
    for number, block in enumerate(code_blocks("wefe_custom_metric.rst")):
        if number in blocks and number not in CANNOT_RUN:
            exec(with_our_imports(block, "wefe"), names)
    return names


@pytest.fixture(scope="module")
def guides_metric():
    return run_guide(range(9))["ExampleMetric"]


def table(name, device):
    words = SCORES["models"]["tiny"]
    if name == "tinyB":
        words = {word: [y, x, -z] for word, (x, y, z) in words.items()}
    vectors = torch.tensor(list(words.values()), dtype=torch.float64, device=device)
    return wefe.WordEmbeddingModel.from_tensor(vectors, list(words))


@pytest.fixture
def tiny(device):
    return table("tiny", device)


@pytest.fixture
def model():
    return WordEmbeddingModel.from_numpy(np.array(list(CASING.values()), np.float32), list(CASING), "casing")


def query_of(metric):
    targets, attributes = (n if isinstance(n, int) else 2 for n in metric.metric_template)
    sets = [["T1A", "t1b"], ["t2a", "T2B"], ["a1a", "A1B"], ["a2a", "a2b"]]
    return Query(sets[:targets], sets[2 : 2 + attributes])


def published_vectors():
    """Return WEFE's file of vectors, of the installed package or of a copy, or None."""
    package = importlib.util.find_spec("wefe")
    paths = [] if package is None else Path(package.origin).parent.rglob("weat_w2v*.txt")
    return os.environ.get("TENSORMETRICS_WEAT_W2V") or next(iter(paths), None)


@pytest.mark.parametrize("source", ["drawn", "published"])
def test_guide_with_our_imports_runs_and_gives_its_result(source, monkeypatch, capsys):
    sets = association.load_weat()
    if source == "drawn":
        words = dict.fromkeys(word for words in sets.values() for word in words)
        draw = np.random.default_rng(0)
        lines = [" ".join([word, *map(str, draw.standard_normal(8))]) for word in words]
        content = "\n".join(lines).encode()
    elif published_vectors() is None:
        pytest.skip("needs wefe")
    else:
        content = Path(published_vectors()).read_bytes()
    monkeypatch.setattr("tensormetrics.association.embeddings.datasets.read_file", lambda *args: content)
    names = run_guide()
    assert names["template_3"] == ("n", 1)
    results = names["results"]
    vectors = names["model"]
    means = [
        np.mean([vectors[word] for word in sets[name] if word in vectors], axis=0)
        for name in ("flowers", "weapons", "pleasant_5")
    ]
    expected = cosine(means[0], means[2]) - cosine(means[1], means[2]) if source == "drawn" else -0.1021017
    assert results == {"query_name": "Flowers and Weapons wrt Pleasant", "result": results["em"], "em": results["em"]}
    assert results["em"] == pytest.approx(expected, abs=5e-8)
    assert capsys.readouterr().out == f"{results}\n"


def test_blocks_of_the_guide_that_cannot_run_raise():
    blocks = code_blocks("wefe_custom_metric.rst")
    assert len(blocks) == 10
    for number, error in CANNOT_RUN.items():
        with pytest.raises(error):
            exec(with_our_imports(blocks[number], "wefe"), {})


def test_guides_metric_gives_golden_score_and_checks_arguments(guides_metric, tiny):
    (case,) = (case for case in SCORES["cases"] if case["id"] == "tiny/example")
    query = Query(list(case["targets"].values()), list(case["attributes"].values()), ["T1", "T2"], ["A1"])
    em = pytest.approx(case["expected"]["em"], rel=1e-12)
    assert guides_metric().run_query(query, tiny) == {"query_name": "T1 and T2 wrt A1", "result": em, "em": em}
    assert np.isnan(guides_metric().run_query(Query([["x"], ["t2a"]], [["a1a"]]), tiny)["result"])
    with pytest.raises(TypeError, match="^BaseMetric: got the argument 'lowercase', wanted "):
        guides_metric().run_query(query, tiny, lowercase=True)
    with raises(ValueError, "query: 'T1 wrt A1' has 1 target sets, wanted 2 for the metric EM"):
        guides_metric().run_query(Query([["t1a"]], [["a1a"]], ["T1"], ["A1"]), tiny)


def test_guides_metric_in_run_queries_equals_single_calls(guides_metric, tiny):
    queries = [query_of(association.RND), Query([["?"], ["t2a"]], [["a1a"]], ["lost", "T2"])]
    params = {"secondary_preprocessor_args": LOWER}
    table = wefe.run_queries(guides_metric, queries, [tiny], metric_params=params)
    expected = guides_metric().run_query(queries[0], tiny, secondary_preprocessor_args=LOWER)["result"]
    assert table.iloc[0, 0] == expected and np.isnan(table.iloc[0, 1])


@pytest.mark.parametrize("name", METRICS)
def test_run_query_arguments_of_wefe_give_same_result(name, tiny):
    ours, metric = getattr(association, name)(preprocessors=[{}, LOWER]), getattr(wefe, name)()
    query, short = query_of(ours), metric.metric_short_name
    expected = metric.run_query(query, tiny, preprocessors=[{}, LOWER])
    assert expected["result"] == ours.run_query(query, tiny).value and expected["query_name"] == query.query_name
    former = {"preprocessor_args": {}, "secondary_preprocessor_args": LOWER}
    defaults = {"p_value_test_type": "right-sided", "p_value_method": "auto", "distance": "norm", "n_iterations": 1,
                "p_value_iterations": 10000, "estimator": None, "estimator_params": None, "random_state": None,
                "holdout": None}  # fmt: skip
    first = [defaults.get(option, False) for option in metric.first_options]
    assert np.isfinite(expected["result"])
    for result in (
        metric.run_query(query, tiny, preprocessors=[{}, LOWER]),
        metric.run_query(query=query, word_embedding=tiny, **former),
        metric.run_query(query, word_embedding=tiny, secondary_preprocessor_args=LOWER),
        metric.run_query(query, tiny, *first, 0.2, {}, LOWER, False),
        metric.run_query(query, tiny, *first, 0.2, None, LOWER),
        metric.run_query(query, tiny, *first, 0.2, [{}, LOWER], "first", False, False),
    ):
        assert repr(result) == repr(expected)
    with raises(TypeError, f"{short}.run_query: got preprocessor_args by position and by name, wanted one"):
        metric.run_query(query, tiny, *first, 0.2, {}, preprocessor_args={})
    most = 7 + len(first)
    with raises(TypeError, f"{short}.run_query: got {most + 1} arguments by position, wanted at most {most}"):
        metric.run_query(query, tiny, *first, 0.2, [{}], "first", False, False, None)


@pytest.mark.parametrize("keyword", sorted({*checks.WEFE} - {"word_embedding", "word_embeddings_models"}))
def test_arguments_of_wefe_outside_its_module_raise_and_name_it(keyword):
    hint = "; tensormetrics.compat.wefe takes it"
    with pytest.raises(TypeError, match=f"^RND: got the argument {keyword!r}, wanted .*{hint}$"):
        association.RND(**{keyword: None})
    with pytest.raises(TypeError, match=f"^run_queries: got the argument 'word_embeddings_models', wanted .*{hint}$"):
        association.run_queries(association.RND, [], word_embeddings_models=[])


def test_run_query_two_names_of_one_argument_raise(tiny):
    short = Query([["t1a"], ["t2a"]], [["a1a", "a1b"]])
    with raises(TypeError, "model, word_embedding: got both, wanted one"):
        wefe.RND().run_query(short, tiny, word_embedding=tiny)
    with raises(TypeError, "distance, distance_type: got both, wanted one"):
        wefe.RND().run_query(short, tiny, distance="cos", distance_type="cos")
    message = "preprocessors, secondary_preprocessor_args: got both, wanted one; write preprocessors=[first, second]"
    with raises(TypeError, message):
        wefe.RND().run_query(short, tiny, preprocessors=[{}], secondary_preprocessor_args={})
    with raises(TypeError, "models, word_embeddings_models: got both, wanted one"):
        wefe.run_queries(wefe.RND, [short], models=[tiny], word_embeddings_models=[tiny])


@pytest.mark.parametrize("distance", ["norm", "cos", "cos_similarity"])
def test_run_queries_names_of_wefe_give_same_table(distance, tiny):
    query, params = query_of(association.RND), {"preprocessors": [{}, LOWER]}
    expected = association.run_queries(association.RND(distance=distance, **params), [query], [tiny])
    former = {"preprocessor_args": {}, "secondary_preprocessor_args": LOWER, "distance_type": distance}
    for metric, options in ((wefe.RND, former), (wefe.RND(distance=distance), params)):
        table = wefe.run_queries(metric, [query], word_embeddings_models=[tiny], metric_params=options)
        assert table.to_numpy().tolist() == [list(expected.cells[0])] and list(table.index) == list(expected.rows)


@pytest.mark.parametrize("case", [c for c in SCORES["cases"] if c["kind"] == "run_queries"], ids=lambda c: c["id"])
def test_run_queries_equals_golden_values(case, device):
    queries = [Query(*(list(q[role].values()) for role in q), *(list(q[role]) for role in q)) for q in case["queries"]]
    models = [table(name, device) for name in case["models"]]
    for model, name in zip(models, case["models"], strict=True):
        model.name = name
    metric = getattr(wefe, case["metric"])
    got = wefe.run_queries(metric, queries, models, **case["options"])
    expected = case["expected"]
    assert (list(got.index), list(got.columns)) == (expected["index"], expected["columns"])
    np.testing.assert_allclose(got.to_numpy(), expected["values"], rtol=1e-10)


@pytest.mark.parametrize(
    ("function", "label", "expected"),
    [
        ("sum", "sum", lambda v: v.sum(1)),
        ("avg", "average", lambda v: v.mean(1)),
        ("abs_sum", "sum of abs values", lambda v: abs(v).sum(1)),
        ("abs_avg", "average of abs values", lambda v: abs(v).mean(1)),
        (lambda frame: frame.iloc[:, 0], "custom aggregation", lambda v: v[:, 0]),
    ],
)
def test_run_queries_aggregates_equal_numpy(function, label, expected, tiny):
    query = Query([["t1a", "t1b"], ["t2a", "t2b"], ["t1c"]], [["a1a"], ["a2a"]])
    options = {"generate_subqueries": True, "aggregation_function": function, "queries_set_name": "gender"}
    got = wefe.run_queries(wefe.RND, [query], [tiny], aggregate_results=True, **options)
    only = wefe.run_queries(wefe.RND, [query], [tiny], return_only_aggregation=True, **options)
    values = got.to_numpy()
    assert got.columns[-1] == f"RND: gender {label} score" and only.equals(got.iloc[:, -1:])
    np.testing.assert_allclose(values[:, -1], expected(values[:, :-1]), rtol=1e-12)


def test_rankings_rank_last_columns_and_correlate():
    names = ["RND: x average score", "WEAT: x sum score", "RND: x average score"]
    scores = [0.3, 0.1, np.nan, 0.2], [1.0, 2, 2, 0], [1, 3, 2, 4]
    tables = [pd.DataFrame({"q": 0.0, name: s}, list("abcd")) for name, s in zip(names, scores, strict=True)]
    ranking = wefe.create_ranking(tables)
    assert list(ranking.columns) == [f"{names[0]} (1)", names[1], f"{names[2]} (3)"]
    np.testing.assert_array_equal(ranking, np.array([[3, 1, np.nan, 2], [2, 3, 4, 1], [1, 3, 2, 4]]).T)
    tied = wefe.create_ranking(tables[1:], "average", ascending=False)
    np.testing.assert_array_equal(tied.iloc[:, 0], [3, 1.5, 1.5, 4])
    assert wefe.calculate_ranking_correlations(ranking).iloc[1, 2] == pytest.approx(-0.4)
    for figure in (
        *(wefe.plot_queries_results(ranking, by) for by in ("query", "model")),
        *(wefe.plot_ranking(ranking, facet) for facet in (False, True)),
    ):
        bars = [bar for ax in figure.axes for bar in ax.patches]
        assert {1, 2, 3, 4} <= {size for bar in bars for size in (bar.get_height(), bar.get_width())}
    (ax, _) = wefe.plot_ranking_correlations(ranking.corr(), title="agreement").axes
    assert ax.images[0].get_clim() == (-1, 1) and ax.get_title() == "agreement"


def test_subqueries_of_queries_are_the_first_of_each_name():
    queries = [Query([["a"], ["b"], ["c"]], [["d"]], list("TUV")), Query([["x"], ["y"]], [["z"]], list("UV"))]
    subqueries = wefe.generate_subqueries_from_queries_list(wefe.RND, queries)
    assert subqueries == queries[0].get_subqueries((2, 1)) and len(subqueries) == 3
    query = wefe.Query(queries[0].target_sets, [["d"]], list("TUV"))
    assert query == queries[0] and query.get_subqueries(new_template=(2, 1)) == subqueries
    assert {type(subquery) for subquery in query.get_subqueries((2, 1))} == {wefe.Query}


@pytest.mark.parametrize("case", GOLDEN["lookup"], ids=lambda case: case["id"])
def test_get_embeddings_from_set_equals_golden_values(case, model):
    expected = case["expected"]
    not_found, vectors = get_embeddings_from_set(model, case["words"], case["preprocessors"], case["strategy"])
    assert not_found == expected["not_found"] and list(vectors) == expected["keys"]
    for key, vector in vectors.items():
        assert vector.dtype == np.float32 and vector.tolist() == CASING[key]


def test_get_embeddings_from_query_returns_vectors_by_name(model):
    query = Query([["Ana", "x"], ["bob"]], [["JOSE"]], ["T", "U"], ["A"])
    targets, attributes = get_embeddings_from_query(model, query, 0.5, [{}, LOWER], normalize=True)
    assert list(targets) == ["T", "U"] and list(attributes) == ["A"]
    np.testing.assert_allclose(targets["U"]["bob"], np.array([1, 2]) / 5**0.5, rtol=1e-6)
    assert get_embeddings_from_query(model, query, 0.4) is None
    model = wefe.WordEmbeddingModel(model)
    old = model.get_embeddings_from_query(
        query, 0.5, preprocessor_args={}, secondary_preprocessor_args=LOWER, normalize=True
    )
    assert str(old) == str((targets, attributes))
    assert list(model.get_embeddings_from_query(query, 0.5, secondary_preprocessor_args=LOWER)[1]["A"]) == ["jose"]
    message = "preprocessors, preprocessor_args: got both, wanted one; write preprocessors=[first, second]"
    with raises(TypeError, message):
        model.get_embeddings_from_query(query, preprocessors=[{}], preprocessor_args={})
    by_position = model.get_embeddings_from_query(query, 0.5, {}, LOWER, False)
    assert str(by_position) == str(get_embeddings_from_query(model, query, 0.5, [{}, LOWER]))
    assert type(model.to(dtype=torch.float64)) is wefe.WordEmbeddingModel


def test_get_embeddings_from_tuples_drops_incomplete_sets(model, logged, capsys):
    pairs = [["Ana", "Bob"], ["ana", "x"]]
    (complete,) = get_embeddings_from_tuples(model, pairs, "pairs", verbose=True)
    assert list(complete) == ["Ana", "Bob"]
    assert logged.messages[0] == "pairs: ['x'] of ['ana', 'x'] are not in the vocabulary of 'casing'"
    assert capsys.readouterr().out.splitlines()[-1] == "pairs: 1 of 2 sets found"
    get_embeddings_from_tuples(model, pairs)
    assert logged.messages[1].startswith("sets: ['x'] of ['ana', 'x'] are not in the vocabulary of")
    assert len(get_embeddings_from_tuples(model, pairs, warn_lost_sets=False)) == 1 and len(logged.messages) == 2
    assert [list(vectors) for vectors in get_embeddings_from_tuples(model, pairs, discard_incomplete_sets=False)][
        1
    ] == ["ana"]
    with raises(ValueError, "sets: got 1 sets, none of which is complete in the vocabulary of 'casing'"):
        get_embeddings_from_tuples(model, [["x", "ana"]])


@pytest.mark.parametrize(
    ("function", "words", "message"),
    [
        (get_embeddings_from_set, "ana", "word_set: got a str, wanted a list of words"),
        (get_embeddings_from_set, None, "word_set: got a NoneType, wanted a list of words"),
        (get_embeddings_from_set, ["ana", 1], "word_set[1]: got a int, wanted a word (str)"),
        (get_embeddings_from_tuples, ["ana", "bob"], "sets[0]: got a str, wanted a list of words"),
        (get_embeddings_from_tuples, "ana", "sets: got a str, wanted a list of lists of words"),
        (get_embeddings_from_tuples, None, "sets: got a NoneType, wanted a list of lists of words"),
        (get_embeddings_from_tuples, [["ana"], None], "sets[1]: got a NoneType, wanted a list of words"),
        (get_embeddings_from_tuples, [[1, "ana"]], "sets[0][0]: got a int, wanted a word (str)"),
    ],
)
def test_get_embeddings_invalid_words_raise(model, function, words, message):
    with raises(TypeError, message):
        function(model, words)


def test_get_embeddings_arrays_of_words_are_accepted(model):
    assert list(get_embeddings_from_set(model, np.array(["ana", "bob"]))[1]) == ["ana", "bob"]
    assert list(get_embeddings_from_tuples(model, np.array([["ana", "bob"]]))[0]) == ["ana", "bob"]


def test_get_embeddings_invalid_model_raises():
    message = "model: got a dict, wanted a WordEmbeddingModel; write WordEmbeddingModel(model)"
    for call in (get_embeddings_from_set, get_embeddings_from_query, get_embeddings_from_tuples):
        with raises(TypeError, message):
            call({}, [])


def test_wefe_docstring_examples_print_expected_output():
    names = {**vars(association), **vars(wefe), "torch": torch}
    result = doctest.testmod(wefe, extraglobs=names)
    assert result.attempted >= 9 and not result.failed
