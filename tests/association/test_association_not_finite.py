"""NaN and infinities in queries and items, beyond what test_conformance.py holds for each row of the tables."""

import numpy as np
import pytest
import torch
from metric_cases import answer

from tensormetrics import association
from tensormetrics.association import Query, WordEmbeddingModel, functional

VALUES = {"nan": torch.nan, "inf": torch.inf, "-inf": -torch.inf}
every_value = pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())


def test_random_effects_infinite_variance_has_zero_weight():
    e, v = torch.tensor([0.3, 5.0, 0.8]), torch.tensor([0.1, torch.inf, 0.2])
    actual, expected = functional.random_effects(e, v).value, functional.random_effects(e[::2], v[::2]).value
    torch.testing.assert_close(actual, expected)
    assert all(value.isnan() for value in functional.random_effects(e, torch.tensor([0.1, -0.1, 0.2])))


# Queries of words.

SET_NAMES = {"x": 0, "y": 0, "a": 1, "b": 1}
SETS = {name: [f"{name}{i}" for i in range(4)] for name in SET_NAMES}
QUERY_METRICS = [
    kind
    for kind in vars(association).values()
    if isinstance(kind, type)
    and issubclass(kind, association.extend.BaseMetric)
    and kind is not association.extend.BaseMetric
]


@every_value
@pytest.mark.parametrize("metric", QUERY_METRICS, ids=lambda metric: metric.__name__)
def test_run_query_nonfinite_word_gives_no_finite_number(metric, value, generator):
    """One such word of a query suffices: it gets no score, p-value or interval, also in a table of queries."""
    targets, attributes = (2 if size == "n" else size for size in metric.metric_template)
    query_sets = (
        [SETS[set_name] for set_name in ("x", "y")[:targets]],
        [SETS[set_name] for set_name in ("a", "b")[:attributes]],
    )
    words = [word for sets in query_sets for members in sets for word in members]
    table = torch.randn(len(words), 6, generator=generator, dtype=torch.float64)
    has_test = metric.null_distributions is not association.extend.BaseMetric.null_distributions
    options = {"p_value": has_test, "permutations": 50, "replicates": 30}
    if metric is association.CEAT:
        options["samples"] = 5
    for word, unaffected_suffix in ((query_sets[0][0][1], "_y"), (query_sets[1][-1][0], "_a")):
        vectors = table.clone()
        vectors[words.index(word), 2] = value
        model = WordEmbeddingModel.from_tensor(vectors, words)
        result = answer(metric(**options), Query(*query_sets), model)
        scalars = {key: x for key, x in result.items() if isinstance(x, float) and key not in ("samples", "pairs")}
        if metric is association.MLEAT:  # numbers of the other target or attribute do not depend on the word
            scalars = {key: scalar for key, scalar in scalars.items() if unaffected_suffix not in key}
        assert len(scalars) >= 2 and not any(np.isfinite(scalar) for scalar in scalars.values()), scalars
        scores = association.run_queries(metric, [Query(*query_sets)], [model])
        ((cell,),), caption = scores.cells, scores.caption
        assert not np.isfinite(cell) and ("a vector is not finite" in (caption or "")) == np.isnan(cell)


def test_values_by_word_nonfinite_vectors_are_nan_for_these_words_only(generator):
    words = [word for members in SETS.values() for word in members]
    table = torch.randn(16, 6, generator=generator, dtype=torch.float64)
    clean = WordEmbeddingModel.from_tensor(table.clone(), words)
    table[words.index("y1")] = torch.nan  # one of a pair
    table[words.index("a2")] = torch.inf
    model = WordEmbeddingModel.from_tensor(table, words)
    query = Query([SETS["x"], SETS["y"]], [SETS["a"]])
    by_word = answer(association.RIPA(), query, model)["mean_by_word"]
    assert all(np.isnan(value) for value in by_word.values())
    query = Query([SETS["x"], SETS["b"]], [SETS["a"]])
    for metric, key in ((association.RND, "distance_by_word"), (association.RIPA, "mean_by_word")):
        actual, expected = (answer(metric(), query, m)[key] for m in (model, clean))
        assert np.isnan(actual.pop("a2"))
        assert actual == {word: values for word, values in expected.items() if word != "a2"}
