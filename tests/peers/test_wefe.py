"""Agreement with WEFE 1.0.1, where its results are correct."""

import importlib
import inspect
import operator
import warnings

import numpy as np
import pytest
import torch

from tensormetrics import association
from tensormetrics.compat import wefe

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    metrics = pytest.importorskip("wefe.metrics")
    import gensim
    from wefe.query import Query
    from wefe.utils import run_queries
    from wefe.word_embedding_model import WordEmbeddingModel

pytestmark = pytest.mark.filterwarnings("ignore")
MODULES = ("datasets", "debias.base_debias", "metrics", "metrics.base_metric", "preprocessing", "query", "utils",
           "word_embedding_model", *(f"debias.{name}" for name in ("double_hard_debias", "half_sibling_regression",
           "hard_debias", "multiclass_hard_debias", "repulsion_attraction_neutralization")))  # fmt: skip
NOT_SERVED = {
    "check_is_fitted",  # scikit-learn's
    "flair_to_gensim",  # makes an object of gensim
    "load_test_model",  # reads vectors inside of WEFE
    "print_doc_table",  # for WEFE's own pages
    "save_doc_image",  # for WEFE's own pages
    "RAN",  # a step of `RepulsionAttractionNeutralization`
    "RAN_Loss",  # a step of `RepulsionAttractionNeutralization`
}
SETS = {name: [f"{name}{i}" for i in range(size)] for name, size in zip("TUVABC", (7, 5, 6, 8, 9, 4), strict=True)}
VOCABULARY = sum(SETS.values(), [])


@pytest.fixture
def models(generator):
    vectors = torch.randn(len(VOCABULARY), 20, generator=generator, dtype=torch.float64).numpy()
    keyed = gensim.models.KeyedVectors(20, dtype=np.float64)
    keyed.add_vectors(VOCABULARY, vectors)
    return association.WordEmbeddingModel(keyed, "drawn"), WordEmbeddingModel(keyed, "drawn")


def both(kind, targets, attributes):
    """Make one query with the `Query` class of either package."""
    return kind([SETS[n] for n in targets], [SETS[n] for n in attributes], list(targets), list(attributes))


def flat(values):
    return [n for value in values.values() for n in (flat(value) if isinstance(value, dict) else [value])]


def check(ours, theirs, rtol=1e-10):
    """Compare all numbers that both results contain, and the keys of dictionaries."""
    for key in ours.keys() & theirs.keys() - {"query_name", "p_value"}:
        got, expected = ours[key], theirs[key]
        if isinstance(got, dict):
            assert got.keys() == expected.keys()
            got, expected = flat(got), flat({name: expected[name] for name in got})
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=1e-12, err_msg=key)
    assert ours["query_name"] == theirs["query_name"]


@pytest.mark.parametrize(
    ("metric", "targets", "attributes", "options"),
    [
        ("WEAT", "TU", "AB", {}),
        ("WEAT", "TU", "AB", {"return_effect_size": True}),
        ("RND", "TU", "A", {}),
        ("ECT", "TU", "A", {}),
        ("MAC", "TUV", "ABC", {}),
    ],
)
def test_run_query_equals_wefe_results(metric, targets, attributes, options, models):
    ours = getattr(wefe, metric)().run_query(both(association.Query, targets, attributes), models[0], **options)
    theirs = getattr(metrics, metric)().run_query(both(Query, targets, attributes), models[1], **options)
    check(ours, theirs)


def test_rnd_by_cosine_similarity_equals_wefe(models):
    ours = wefe.RND().run_query(both(association.Query, "TU", "A"), models[0], distance="cos_similarity")
    theirs = metrics.RND().run_query(both(Query, "TU", "A"), models[1], distance="cos")
    check(ours, theirs)


def test_ripa_of_lists_of_one_length_equals_wefe(models):
    sets = [SETS["U"], SETS["V"][:5]]
    ours = wefe.RIPA().run_query(association.Query(sets, [SETS["A"]]), models[0])
    theirs = metrics.RIPA().run_query(Query(sets, [SETS["A"]]), models[1])
    assert ours["result"] == pytest.approx(theirs["result"], rel=1e-10)
    for key, values in theirs["word_values"].items():
        assert ours["word_values"][key] == pytest.approx(values, rel=1e-10)


def test_rnsb_fitted_to_convergence_equals_wefe(models):
    params = {"solver": "liblinear", "tol": 1e-12, "max_iter": 1_000_000}
    ours = wefe.RNSB().run_query(both(association.Query, "TUV", "AB"), models[0])
    theirs = metrics.RNSB().run_query(both(Query, "TUV", "AB"), models[1], holdout=False, estimator_params=params)
    check(ours, theirs, rtol=1e-4)


@pytest.mark.parametrize("metric", ["WEAT", "RND", "ECT"])
def test_run_queries_equals_wefe_tables(metric, models):
    queries = (both(kind, "TUV", "ABC") for kind in (association.Query, Query))
    options = {"generate_subqueries": True, "aggregate_results": True}
    ours = wefe.run_queries(getattr(wefe, metric), [next(queries)], [models[0]], **options)
    theirs = run_queries(getattr(metrics, metric), [next(queries)], [models[1]], **options)
    assert list(ours.columns) == list(theirs.columns) and list(ours.index) == list(theirs.index)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def parameters(function):
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.name != "self" and p.kind is p.POSITIONAL_OR_KEYWORD}


def public_names():
    """Return the classes and functions that WEFE defines, by name."""
    modules = [vars(importlib.import_module(f"wefe.{name}")) for name in MODULES]
    names = {name: value for module in modules for name, value in module.items() if name[0] != "_"}
    return {name: value for name, value in names.items() if getattr(value, "__module__", "").startswith("wefe.")}


def test_compat_has_every_public_name_of_wefe():
    assert public_names().keys() - vars(wefe).keys() == NOT_SERVED


def test_functions_and_methods_take_the_arguments_of_wefe():
    functions = {}
    for name, theirs in public_names().items():
        if name in NOT_SERVED or name in vars(metrics) or name == "BaseMetric":  # metrics are called below
            continue
        methods = {f"{name}.{key}": f for key, f in vars(theirs).items() if inspect.isfunction(f) and key[0] != "_"}
        functions |= methods if inspect.isclass(theirs) else {name: theirs}
    del functions["DoubleHardDebias.get_target_words"]  # a step of `transform`
    assert {"run_queries", "Query.get_subqueries", "WordEmbeddingModel.update"} < functions.keys()
    for name, theirs in functions.items():
        ours = inspect.signature(operator.attrgetter(name)(wefe)).parameters
        takes_all = any(p.kind is p.VAR_KEYWORD for p in ours.values())
        assert takes_all or parameters(theirs).keys() <= ours.keys(), name


@pytest.mark.parametrize(
    "name", ["DoubleHardDebias", "HalfSiblingRegression", "HardDebias", "MulticlassHardDebias",
             "RepulsionAttractionNeutralization"],
)  # fmt: skip
def test_debias_class_takes_the_defaults_of_wefe(name):
    debias = getattr(wefe, name)(**parameters(public_names()[name].__init__))
    assert isinstance(debias, wefe.BaseDebias) and debias.criterion_name is None


@pytest.mark.parametrize("metric", ["WEAT", "RND", "RNSB", "RIPA", "ECT", "MAC"])
def test_run_query_takes_the_arguments_of_wefe_by_position(metric, models):
    ours, defaults = getattr(wefe, metric)(), parameters(getattr(metrics, metric).run_query)
    assert [*defaults][:2] == ["query", "model"]
    sizes = tuple(2 if n == "n" else n for n in ours.metric_template)
    query = both(association.Query, "TU"[: sizes[0]], "AB"[: sizes[1]])
    if metric == "RIPA":
        query = association.Query([SETS["U"], SETS["V"][:5]], [SETS["A"]])
    values = [query, models[0], *[*defaults.values()][2:]]
    by_name = ours.run_query(**dict(zip(defaults, values, strict=True)))
    assert repr(ours.run_query(*values)) == repr(by_name)
    assert np.isfinite(by_name["result"])
