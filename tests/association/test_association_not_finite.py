"""NaN and infinities: what depends on them is NaN or an error, whatever else is there stays as it was.

Every row of the table is asked; a new row is asked as well.
"""

import functools
from abc import ABCMeta

import numpy as np
import pytest
import torch
from cases.association import FUNCTIONS, METRICS
from raising import raises

from tensormetrics import association
from tensormetrics.association import Query, WordEmbeddingModel

VALUES = {"nan": torch.nan, "inf": torch.inf, "-inf": -torch.inf}
every_value = pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
# Classifiers of all words together stand in test_residual_bias.py.
every_function = pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "residual_bias"])
every_metric = pytest.mark.parametrize("name", [name for name in METRICS if name != "ResidualBias"])
LEFT_OUT = {("random_effects", 1, torch.inf)}  # an effect of infinite variance has no weight


def changed(tensors, place, value, where):
    tensors = [t.clone() for t in tensors]
    tensors[place].view(-1)[where] = value
    return tensors


def floating(tensors):
    return [i for i, t in enumerate(tensors) if t.is_floating_point()]


@every_value
@every_function
def test_what_depends_on_it_is_nan(name, value, generator, device):
    """Outputs that some finite numbers in the same place would change; others answer as before."""
    case = FUNCTIONS[name]
    arguments = [t.to(device) for t in case.inputs(generator, ())]
    arguments = [t if t.is_floating_point() else torch.ones_like(t) for t in arguments]
    before = case.call(*arguments)
    asked = 0
    for place in floating(arguments):
        for where in (0, -1):
            if (name, place, value) in LEFT_OUT:
                continue
            finite = [case.call(*changed(arguments, place, other, where)) for other in (0.1, 7.0, 300.0, 1e4)]
            try:
                after = case.call(*changed(arguments, place, value, where))
            except ValueError:
                asked += 1
                continue
            for n, (result, old) in enumerate(zip(after, before, strict=True)):
                depends = functools.reduce(torch.logical_or, (f[n] != old for f in finite))
                asked += depends.sum().item()
                assert not result[depends].isfinite().any(), (place, where, n, result)
                torch.testing.assert_close(result[~depends & result.isfinite()], old[~depends & result.isfinite()])
    assert asked or name.startswith("random")


@every_value
@every_function
def test_padding_may_hold_anything(name, value, generator, device):
    case = FUNCTIONS[name]
    if case.pad is None:
        return
    arguments = [t.to(device) for t in case.inputs(generator, (2,))]
    wide = case.call(*case.pad(value, *arguments))
    for got, wanted in zip(case.unpad(wide, *arguments), case.call(*arguments), strict=True):
        torch.testing.assert_close(got, wanted, rtol=case.rtol, atol=case.rtol, equal_nan=True)


@every_value
@every_metric
def test_a_bad_item_is_counted_and_left_out_of_the_mean(name, value, generator, device):
    case = METRICS[name]
    inputs = [t.to(device) for t in case.inputs(generator, 4)]
    kept = [t[1:] for t in inputs]
    for place in floating(inputs):
        for where in (0, inputs[place][0].numel() - 1):
            bad = changed(inputs, place, value, where)
            metric, without = case.make().to(device), case.make().to(device)
            scores = metric(*bad)
            if name not in ("LPBS", "PairPreference"):  # they say one number of all sentences of a batch
                assert not scores[0].isfinite() and scores[1:].isfinite().all()
            without.update(*kept)
            torch.testing.assert_close(metric.compute(), without.compute())
            if hasattr(metric, "not_finite") and name != "CEAT":
                assert (metric.finite, metric.not_finite) == (3, 1)
            alone = case.make().to(device)
            alone.update(*(t[:1] for t in bad))
            assert alone.compute().isnan()


def test_an_effect_of_infinite_variance_has_no_weight():
    e, v = torch.tensor([0.3, 5.0, 0.8]), torch.tensor([0.1, torch.inf, 0.2])
    found, wanted = association.random_effects(e, v).value, association.random_effects(e[::2], v[::2]).value
    torch.testing.assert_close(found, wanted)
    assert all(number.isnan() for number in association.random_effects(e, torch.tensor([0.1, -0.1, 0.2])))


# In words.

QUERIES = {"x": 0, "y": 0, "a": 1, "b": 1}
SETS = {side: [f"{side}{i}" for i in range(4)] for side in QUERIES}
DOORS = (
    association.WEAT, association.RND, association.RIPA, association.ECT, association.MAC, association.RNSB,
    association.SCWEAT, association.GWEAT, association.SAME, association.DirectBias,
    association.CEAT, association.MLEAT,
)  # fmt: skip


def test_the_doors_are_all_the_metrics():
    kinds = {kind for kind in vars(association).values() if isinstance(kind, ABCMeta)}
    metrics = {kind for kind in kinds if issubclass(kind, association.BaseMetric)} - {association.BaseMetric}
    assert metrics == set(DOORS), "write it in DOORS above"


@every_value
@pytest.mark.parametrize("metric", DOORS, ids=lambda metric: metric.__name__)
def test_results_of_words_that_are_not_finite(metric, value, generator):
    """Of any word of a query: no score, no p-value and no interval; also in a table of many queries."""
    targets, attributes = (2 if size == "n" else size for size in metric.metric_template)
    sides = [SETS[side] for side in ("x", "y")[:targets]], [SETS[side] for side in ("a", "b")[:attributes]]
    words = [word for side in sides for members in side for word in members]
    table = torch.randn(len(words), 6, generator=generator, dtype=torch.float64)
    options = {"calculate_p_value": True, "p_value_iterations": 50, "replicates": 30}
    options = {name: value for name, value in options.items() if name in metric._option_names()}
    if metric is association.CEAT:
        options["samples"] = 5
    for word, apart in ((sides[0][0][1], "_y"), (sides[1][-1][0], "_a")):
        vectors = table.clone()
        vectors[words.index(word), 2] = value
        model = WordEmbeddingModel.from_tensor(vectors, words)
        result = metric().run_query(Query(*sides), model, **options)
        numbers = {key: number for key, number in result.items() if isinstance(number, float) and key != "samples"}
        if metric is association.MLEAT:  # the other target, and the other attribute, have their own numbers
            numbers = {key: number for key, number in numbers.items() if apart not in key}
        assert len(numbers) >= 2 and not any(np.isfinite(number) for number in numbers.values()), numbers
        row = association.run_queries(metric, [Query(*sides)], [model], as_dataframe=False)
        assert not row.values.isfinite().any() and len(row.reasons) == row.values.isnan().sum()
        assert all("a vector is not finite" in reason for reason in row.reasons.values())


def test_values_by_word_are_nan_for_the_words_concerned(generator):
    words = [word for members in SETS.values() for word in members]
    table = torch.randn(16, 6, generator=generator, dtype=torch.float64)
    clean = WordEmbeddingModel.from_tensor(table.clone(), words)
    table[words.index("y1")] = torch.nan  # one of a pair
    table[words.index("a2")] = torch.inf
    model = WordEmbeddingModel.from_tensor(table, words)
    query = Query([SETS["x"], SETS["y"]], [SETS["a"]])
    by_word = association.RIPA().run_query(query, model)["word_values"]
    assert all(np.isnan(number) for values in by_word.values() for number in values.values())
    query = Query([SETS["x"], SETS["b"]], [SETS["a"]])
    for metric, key in ((association.RND, "distance_by_word"), (association.RIPA, "word_values")):
        found, wanted = (metric().run_query(query, m)[key] for m in (model, clean))
        assert str(found.pop("a2")) in ("nan", "{'mean': np.float64(nan), 'std': np.float64(nan)}")
        assert found == {word: values for word, values in wanted.items() if word != "a2"}


DEBIASED = {
    association.HardDebias: {"definitional_pairs": [["x0", "y0"], ["x1", "y1"]]},
    association.MulticlassHardDebias: {
        "definitional_sets": [["x0", "y0"], ["x1", "y1"]],
        "equalize_sets": [["a0", "b0"]],
    },
    association.DoubleHardDebias: {
        "definitional_pairs": [["x0", "y0"], ["x1", "y1"]],
        "bias_representation": ["x2", "y2"],
    },
    association.HalfSiblingRegression: {"definitional_words": ["x0", "y0"]},
    association.RepulsionAttractionNeutralization: {"definitional_pairs": [["x0", "y0"], ["x1", "y1"]]},
    association.LEACE: {"groups": [["x0", "x1"], ["y0", "y1"]]},
    association.INLP: {"groups": [["x0", "x1"], ["y0", "y1"]]},
}


@every_value
@pytest.mark.parametrize("kind", DEBIASED, ids=lambda kind: kind.__name__)
def test_debiasing(kind, value, generator):
    """Nothing is fitted to what is not finite; a bad row that is only transformed is NaN, and harms no other."""
    words = [word for members in SETS.values() for word in members]
    table = torch.randn(16, 6, generator=generator, dtype=torch.float64)
    options = {"epochs": 3, "n_neighbours": 4} if kind is association.RepulsionAttractionNeutralization else {}
    bad = table.clone()
    bad[words.index("y0"), 3] = value
    name = next(iter(DEBIASED[kind]))
    name = "groups[1]" if name == "groups" else name
    with raises(ValueError, f"{name}: the vector of 'y0' holds NaN or infinity, wanted finite numbers"):
        kind(**options).fit(WordEmbeddingModel.from_tensor(bad, words), **DEBIASED[kind])
    bad = table.clone()
    bad[words.index("b3"), 3] = value
    model = WordEmbeddingModel.from_tensor(bad, words)
    if kind is association.DoubleHardDebias:
        with raises(ValueError, "model: the vector of 'b3' holds NaN or infinity, wanted finite numbers"):
            kind().fit(model, **DEBIASED[kind])
        return
    after = kind(**options).fit(model, **DEBIASED[kind]).transform(model).vectors
    assert not after[-1].isfinite().all() and after[:-1].isfinite().all()
