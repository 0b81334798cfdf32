"""Names of WEFE in `association.wefe`: arguments, their order, and functions."""

import doctest
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from metric_cases import KEYS, ExampleMetric
from raising import raises

from tensormetrics import association
from tensormetrics.association import Query, WordEmbeddingModel, run_queries, wefe
from tensormetrics.association.wefe import (
    get_embeddings_from_query,
    get_embeddings_from_set,
    get_embeddings_from_tuples,
)

GOLDEN = json.loads((Path(__file__).parent / "golden_doors.json").read_text())
CASING = GOLDEN["casing"]
LOWER = {"lowercase": True}
METRICS = [kind for kind in KEYS if hasattr(wefe, kind.__name__)]


@pytest.fixture
def model():
    return WordEmbeddingModel.from_numpy(np.array(list(CASING.values()), np.float32), list(CASING), "casing")


def query_of(metric):
    targets, attributes = (n if isinstance(n, int) else 2 for n in metric.metric_template)
    sets = [["T1A", "t1b"], ["t2a", "T2B"], ["a1a", "A1B"], ["a2a", "a2b"]]
    return Query(sets[:targets], sets[2 : 2 + attributes])


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
def test_run_query_names_of_wefe_give_same_result(metric, tiny):
    query, wefe_metric = query_of(metric), getattr(wefe, metric.__name__)()
    expected = metric().run_query(query, tiny, preprocessors=[{}, LOWER])
    wefe_options = {"preprocessor_args": {}, "secondary_preprocessor_args": LOWER}
    assert np.isfinite(expected["result"])
    for result in (
        wefe_metric.run_query(query, tiny, preprocessors=[{}, LOWER]),
        wefe_metric.run_query(query=query, word_embedding=tiny, **wefe_options),
        wefe_metric.run_query(query, word_embedding=tiny, secondary_preprocessor_args=LOWER),
    ):
        assert repr(result) == repr(expected)
    if metric.by_position:
        assert repr(wefe_metric.run_query(query, tiny, 0.2, {}, LOWER, False)) == repr(expected)
        assert repr(wefe_metric.run_query(query, tiny, 0.2, None, LOWER)) == repr(expected)
        for kind in (metric(), wefe_metric):
            assert repr(kind.run_query(query, tiny, 0.2, [{}, LOWER], "first", False, False)) == repr(expected)
        short = metric.metric_short_name
        with raises(TypeError, f"{short}.run_query: got preprocessor_args by position and by name, wanted one"):
            wefe_metric.run_query(query, tiny, 0.2, {}, preprocessor_args={})
    else:
        short = metric.metric_short_name
        message = f"{short}.run_query: got 3 arguments by position, wanted at most 2; name the others"
        with raises(TypeError, message):
            metric().run_query(query, tiny, 0.2)
        with raises(TypeError, message):
            wefe_metric.run_query(query, tiny, 0.2)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
def test_run_query_names_of_wefe_outside_its_module_raise(metric, tiny):
    short = metric.metric_short_name
    with pytest.raises(TypeError, match=f"^{short}.run_query: got the unknown keyword 'word_embedding'"):
        metric().run_query(query_of(metric), word_embedding=tiny)
    with pytest.raises(TypeError, match=f"^{short}.run_query: got the unknown keyword 'preprocessor_args'"):
        metric().run_query(query_of(metric), tiny, preprocessor_args={})


def test_run_query_two_names_of_one_argument_raise(query, tiny):
    short = Query([["t1a"], ["t2a"]], [["a1a", "a1b"]])
    with raises(TypeError, "model, word_embedding: got both, wanted one"):
        wefe.RND().run_query(short, tiny, word_embedding=tiny)
    with raises(TypeError, "model, word_embedding: got both, wanted one"):
        wefe.RND().run_query(query=short, model=tiny, word_embedding=tiny)
    with raises(TypeError, "distance, distance_type: got both, wanted one"):
        wefe.RND().run_query(short, tiny, distance="cos", distance_type="cos")
    message = "preprocessors, secondary_preprocessor_args: got both, wanted one; write preprocessors=[first, second]"
    with raises(TypeError, message):
        wefe.RND().run_query(short, tiny, preprocessors=[{}], secondary_preprocessor_args={})
    with raises(TypeError, "models, word_embeddings_models: got both, wanted one"):
        wefe.run_queries(wefe.RND, [short], [tiny], word_embeddings_models=[tiny])
    assert wefe.RND().run_query(short, tiny, distance_type="cos") == association.RND(distance="cos").run_query(
        short, tiny
    )


@pytest.mark.parametrize("distance", ["norm", "cos", "cos_similarity"])
def test_run_queries_names_of_wefe_give_same_table(distance, tiny):
    query = query_of(association.RND)
    expected = run_queries(
        association.RND(distance=distance), [query], [tiny], metric_params={"preprocessors": [{}, LOWER]}
    )
    wefe_options = {"preprocessor_args": {}, "secondary_preprocessor_args": LOWER}
    for metric, params in (
        (wefe.RND, {"distance_type": distance, **wefe_options}),
        (wefe.RND(distance=distance), {"preprocessors": [{}, LOWER]}),
        (association.RND(distance=distance), wefe_options),
    ):
        table = wefe.run_queries(metric, [query], word_embeddings_models=[tiny], metric_params=params)
        assert table.equals(expected)


def test_run_queries_guides_metric_accepts_names_of_wefe(tiny):
    model = wefe.WordEmbeddingModel(tiny)
    queries = [query_of(association.RND), Query([["?"], ["t2a"]], [["a1a"]], ["lost", "T2"])]
    params = {"secondary_preprocessor_args": LOWER}
    table = wefe.run_queries(ExampleMetric, queries, [model], metric_params=params)
    expected = ExampleMetric().run_query(queries[0], model, secondary_preprocessor_args=LOWER)["result"]
    assert table.iloc[0, 0] == expected and np.isnan(table.iloc[0, 1])
    (reason,) = table.attrs["reasons"].values()
    assert reason.startswith("'lost' lost 1 of 1 words")


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
    with raises(TypeError, "get_embeddings_from_query: got the unknown keyword 'preprocessor'"):
        model.get_embeddings_from_query(query, preprocessor={})
    assert type(model.to(dtype=torch.float64)) is wefe.WordEmbeddingModel


def test_get_embeddings_from_tuples_drops_incomplete_sets(model, caplog, capsys):
    pairs = [["Ana", "Bob"], ["ana", "x"]]
    (complete,) = get_embeddings_from_tuples(model, pairs, "pairs", verbose=True)
    assert list(complete) == ["Ana", "Bob"]
    assert caplog.records[0].getMessage() == "pairs: ['x'] of ['ana', 'x'] are not in the vocabulary of 'casing'"
    assert capsys.readouterr().out.splitlines()[-1] == "pairs: 1 of 2 sets found"
    assert len(get_embeddings_from_tuples(model, pairs, warn_lost_sets=False)) == 1
    assert [list(vectors) for vectors in get_embeddings_from_tuples(model, pairs, discard_incomplete_sets=False)][
        1
    ] == ["ana"]
    with raises(ValueError, "sets: got 1 sets, none of which is complete in the vocabulary of 'casing'"):
        get_embeddings_from_tuples(model, [["x", "ana"]])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("ana", "word_set: got a str, wanted a list of words"),
        (None, "word_set: got a NoneType, wanted a list of words"),
        (["ana", 1], "word_set[1]: got a int, wanted a word (str)"),
    ],
)
def test_get_embeddings_from_set_invalid_words_raise(model, words, message):
    with raises(TypeError, message):
        get_embeddings_from_set(model, words)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["ana", "bob"], "sets[0]: got a str, wanted a list of words"),
        ("ana", "sets: got a str, wanted a list of lists of words"),
        (None, "sets: got a NoneType, wanted a list of lists of words"),
        ([["ana"], None], "sets[1]: got a NoneType, wanted a list of words"),
        ([[1, "ana"]], "sets[0][0]: got a int, wanted a word (str)"),
    ],
)
def test_get_embeddings_from_tuples_invalid_sets_raise(model, sets, message):
    with raises(TypeError, message):
        get_embeddings_from_tuples(model, sets)


def test_get_embeddings_arrays_of_words_are_accepted(model):
    assert list(get_embeddings_from_set(model, np.array(["ana", "bob"]))[1]) == ["ana", "bob"]
    assert list(get_embeddings_from_tuples(model, np.array([["ana", "bob"]]))[0]) == ["ana", "bob"]


def test_get_embeddings_from_tuples_without_name_logs_sets(model, caplog):
    get_embeddings_from_tuples(model, [["ana", "bob"], ["ana", "zoe"]])
    assert caplog.messages[0].startswith("sets: ['zoe'] of ['ana', 'zoe'] are not in the vocabulary of")


def test_get_embeddings_flags_must_be_bools(model):
    query = Query([["ana"]], [])
    functions = {
        get_embeddings_from_set: (["ana"], ("normalize", "verbose")),
        get_embeddings_from_query: (query, ("normalize", "warn_not_found_words", "verbose")),
        get_embeddings_from_tuples: (
            [["ana"]],
            ("normalize", "discard_incomplete_sets", "warn_lost_sets", "verbose"),
        ),
    }
    for function, (words, flags) in functions.items():
        for flag in flags:
            with raises(TypeError, f"{flag}: got None, wanted True or False"):
                function(model, words, **{flag: None})
        with raises(TypeError, "preprocessors: got a NoneType, wanted a list of dicts of options"):
            function(model, words, preprocessors=None)
    with raises(TypeError, "sets_name: got a int, wanted a str or None"):
        get_embeddings_from_tuples(model, [["ana"]], 0)


def test_get_embeddings_invalid_model_raises():
    message = "model: got a dict, wanted a WordEmbeddingModel; write WordEmbeddingModel(model)"
    for call in (get_embeddings_from_set, get_embeddings_from_query, get_embeddings_from_tuples):
        with raises(TypeError, message):
            call({}, [])


def test_wefe_docstring_examples_print_expected_output():
    names = {**vars(association), **vars(wefe), "torch": torch}
    result = doctest.testmod(wefe, extraglobs=names)
    assert result.attempted >= 9 and not result.failed
