"""Properties of all debiasing methods: word arguments, state and errors. Two other files test their values."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics import association
from tensormetrics.association import (
    INLP,
    LEACE,
    DoubleHardDebias,
    HalfSiblingRegression,
    HardDebias,
    MulticlassHardDebias,
    RepulsionAttractionNeutralization,
    WordEmbeddingModel,
)

GOLDEN = json.loads((Path(__file__).parent / "golden_debias.json").read_text())
PAIRS = [["t1a", "t2a"], ["t1b", "t2b"]]
GROUPS = [["t1a", "t1b"], ["t2a", "t2b"]]
METHODS = {
    HardDebias: ({}, {"definitional_pairs": PAIRS}),
    MulticlassHardDebias: ({}, {"definitional_sets": PAIRS, "equalize_sets": [["t1c", "t2c"]]}),
    DoubleHardDebias: (
        {"n_words": 3, "n_components": 2},
        {"definitional_pairs": PAIRS, "bias_representation": ["t1a", "t2a"]},
    ),
    HalfSiblingRegression: ({}, {"definitional_words": ["t1a", "t2a"], "alpha": 2.0}),
    RepulsionAttractionNeutralization: ({"epochs": 5, "n_neighbours": 4}, {"definitional_pairs": PAIRS}),
    LEACE: ({}, {"groups": GROUPS}),
    INLP: ({}, {"groups": GROUPS}),
}


@pytest.fixture
def model():
    vectors = torch.tensor(list(GOLDEN["tiny"].values()), dtype=torch.float64)
    return WordEmbeddingModel.from_tensor(vectors, list(GOLDEN["tiny"]), "tiny")


@pytest.fixture(params=METHODS, ids=lambda method: method.__name__)
def case(request):
    """Return a method as a function of further options, and the arguments of its `fit`."""
    options, fit = METHODS[request.param]
    return lambda **more: request.param(**options, **more), fit


def fit_arguments(method, x):
    """Return the arguments of `fit_tensors` built from vectors (..., 13, 6)."""
    pairs = x[..., :4, :].unflatten(-2, (2, 2))
    return {
        MulticlassHardDebias: (x[..., :6, :].unflatten(-2, (2, 3)),),
        DoubleHardDebias: (pairs, x, x[..., :2, :]),
        HalfSiblingRegression: (x[..., :3, :],),
        LEACE: (x, torch.arange(13) % 2),
        INLP: (x, torch.arange(13) % 2),
    }.get(method, (pairs,))


@pytest.mark.parametrize("method", ["HardDebias", "HalfSiblingRegression"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_fit_transform_equals_golden_vectors(model, method, dtype, tolerance):
    case = GOLDEN[method]
    debias = getattr(association, method)()
    debiased = debias.fit_transform(model.to(dtype=dtype), **case["fit"])
    assert debiased.vectors.dtype == dtype
    for word, expected in case["expected"]["vectors"].items():
        np.testing.assert_allclose(debiased[word], expected, atol=tolerance)
    if "bias_direction" in case["expected"]:
        np.testing.assert_allclose(debias.bias_direction, case["expected"]["bias_direction"], atol=tolerance)


def test_fit_transform_copies_model_unless_copy_is_false(model, case):
    method, fit = case
    before = model.vectors.clone()
    debiased = method(criterion_name="gender").fit_transform(model, **fit)
    assert torch.equal(model.vectors, before) and (model.name, debiased.name) == ("tiny", "tiny_gender_debiased")
    table = model.vectors
    same = method().fit_transform(model, copy=False, **fit)
    assert same is model and model.vectors is table and model.name == "tiny_debiased"
    assert torch.equal(table, debiased.vectors) and not torch.equal(table, before)


def test_transform_of_parameter_keeps_requires_grad(case):
    method, fit = case
    weight = torch.nn.Parameter(torch.tensor(list(GOLDEN["tiny"].values())).double())
    model = WordEmbeddingModel.from_tensor(weight, list(GOLDEN["tiny"]))
    debias = method().fit(model, **fit)
    assert not debias.transform(model).vectors.requires_grad
    debias.transform(model, copy=False)
    assert weight.requires_grad and weight.grad_fn is None


def test_transform_target_and_ignore_select_words(model, case, logged):
    method, fit = case
    debias = method().fit(model, **fit)
    unit = torch.nn.functional.normalize(model.vectors)

    def changed_words(**words):
        after = debias.transform(model, **words)
        same = [torch.allclose(torch.nn.functional.normalize(after.vectors), unit, atol=1e-9)]
        rows = (torch.nn.functional.normalize(after.vectors) - unit).abs().amax(1) > 1e-9
        return {word for word, row in model.vocab.items() if rows[row]} if not same[0] else set()

    fixed = {word for words in [*PAIRS, ["t1c", "t2c"]] for word in words}
    assert changed_words(target=["a1a", "a2b", "a1a", "nobody"], ignore=["a1a"]) - fixed == {"a1a", "a2b"}
    assert logged.messages == ["nobody: left out, not in the vocabulary of 'tiny'"]
    everything = changed_words()
    assert {"a1a", "a2b", "a2d"} < everything
    assert changed_words(ignore=["a1a", "a2b"]) - fixed == everything - fixed - {"a1a", "a2b"}


def test_fit_tuples_with_missing_words_are_dropped(model, case, logged):
    method, fit = case
    name, words = next(iter(fit.items()))
    expected = method().fit_transform(model, **fit)
    if name == "groups":  # its lists are of single words
        lost, more = ["nobody"], [[*words[0], "nobody"], *words[1:]]
    else:
        lost = [["t1c", "nobody"]] if isinstance(words[0], list) else ["nobody"]
        more = [*words, *lost]
    without = method().fit_transform(model, **{**fit, name: more})
    assert torch.equal(without.vectors, expected.vectors)
    assert set(logged.messages) == {f"{', '.join(np.ravel(lost))}: left out, not in the vocabulary of 'tiny'"}


def test_state_dict_restores_fitted_transform(model, case, tmp_path):
    method, fit = case
    fitted = method().fit(model, **fit)
    torch.save(fitted.state_dict(), tmp_path / "debias.pt")
    loaded = method()
    loaded.load_state_dict(torch.load(tmp_path / "debias.pt", weights_only=True))
    assert torch.equal(loaded.transform(model).vectors, fitted.transform(model).vectors)


def test_fit_tensors_batch_equals_loop(case):
    method, _ = case
    x = torch.randn(2, 3, 13, 6, dtype=torch.float64)
    debias = method()
    batch = debias.fit_tensors(*fit_arguments(type(debias), x))(x)
    assert batch.shape == x.shape
    for i in np.ndindex(2, 3):
        torch.testing.assert_close(debias.fit_tensors(*fit_arguments(type(debias), x[i]))(x[i]), batch[i])
    one = debias(x)  # this uses the last fit
    torch.testing.assert_close(one[1, 2], batch[1, 2])
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        torch.testing.assert_close(debias(x[0, 0].to(dtype)), debias(x[0, 0].to(dtype).double()))


def test_fit_tensors_stores_neither_graph_nor_inputs(case):
    method, _ = case
    x = torch.randn(13, 6, dtype=torch.float64, requires_grad=True)
    debias = method()
    before = [buffer.clone() for buffer in debias.fit_tensors(*fit_arguments(type(debias), x)).buffers()]
    x.data.zero_()
    assert not any(buffer.requires_grad for buffer in debias.buffers())
    assert all(map(torch.equal, debias.buffers(), before))


def test_fit_transform_chunk_size_changes_nothing(model, case, monkeypatch):
    method, fit = case
    expected = method().fit_transform(model, **fit).vectors
    for file in ("embeddings.vocabulary", "debias.base", "debias.repulsion_attraction_neutralization"):
        monkeypatch.setattr(f"tensormetrics.association.{file}.CHUNK", 7)
    torch.testing.assert_close(method().fit_transform(model, **fit).vectors, expected, atol=1e-12, rtol=1e-12)


def test_fit_transform_zero_vectors_stay_zero(case):
    method, fit = case
    words = {**GOLDEN["tiny"], "zero": [0, 0, 0]}
    model = WordEmbeddingModel.from_tensor(torch.tensor(list(words.values())).double(), list(words))
    zero = method().fit_transform(model, **fit)["zero"]
    assert np.isfinite(zero).all()
    if type(method()) not in (DoubleHardDebias, LEACE):  # these shift all rows
        assert not zero.any()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_nonfinite_vectors_are_rejected_by_fit_and_stay_local_in_transform(model, case, value):
    """Fitting rejects non-finite vectors; a non-finite row that is only transformed changes no other row."""
    method, fit = case

    def with_value(word):
        vectors = model.vectors.clone()
        vectors[model.vocab[word], 2] = value
        return WordEmbeddingModel.from_tensor(vectors, list(model.vocab), "tiny")

    name, words = next(iter(fit.items()))
    word, message = np.ravel(words)[-1], "the vector of '{}' holds NaN or infinity, wanted finite numbers"
    with raises(ValueError, f"{'groups[1]' if name == 'groups' else name}: {message.format(word)}"):
        method().fit(with_value(word), **fit)
    bad = with_value("a2d")
    if isinstance(method(), DoubleHardDebias):
        with raises(ValueError, f"model: {message.format('a2d')}"):
            method().fit(bad, **fit)
        return
    is_finite = method().fit(bad, **fit).transform(bad).vectors.isfinite().all(1)
    assert [word for word, row in model.vocab.items() if not is_finite[row]] == ["a2d"]


def test_verbose_prints_number_of_words(model, case, capsys):
    method, fit = case
    method().fit_transform(model, **fit)
    assert capsys.readouterr().out == ""
    debias = method(verbose=True)
    debias.fit_transform(model, ["a1a", "a2a", "a3a"], **fit)
    assert f"{type(debias).__name__}: 3 of 20 words of 'tiny'\n" in capsys.readouterr().out


def test_fit_transform_vocab_prefix_is_prepended_to_words(case):
    method, fit = case
    vectors = torch.tensor(list(GOLDEN["tiny"].values())).double()
    model = WordEmbeddingModel.from_tensor(vectors, [f"/en/{word}" for word in GOLDEN["tiny"]], vocab_prefix="/en/")
    unprefixed = WordEmbeddingModel.from_tensor(vectors, list(GOLDEN["tiny"]))
    after = method().fit_transform(model, ["a1a", "a1b"], **fit)
    assert torch.equal(after.vectors, method().fit_transform(unprefixed, ["a1a", "a1b"], **fit).vectors)
    assert (after.vocab_prefix, "/en/a1a" in after) == ("/en/", True)


def test_debias_invalid_arguments_raise(model, case):
    method, fit = case
    debias = method()
    name = type(debias).__name__
    message = f"{name} is not fitted; write .fit(model, ...) or .fit_tensors(...) before"
    with raises(RuntimeError, message):
        debias.transform(model)
    with raises(RuntimeError, message):
        debias(model.vectors)
    with raises(TypeError, "model: got a dict, wanted a WordEmbeddingModel; write WordEmbeddingModel(model)"):
        debias.fit({}, **fit)
    with raises(TypeError, "verbose: got 1, wanted True or False"):
        method(verbose=1)
    with raises(TypeError, "criterion_name: got a int, wanted a str or None"):
        method(criterion_name=1)
    contexts = WordEmbeddingModel.from_contexts({"a": torch.ones(2, 3), "b": torch.ones(1, 3)}, "pools")
    with raises(
        ValueError,
        "model: got 'pools' with several vectors per word, wanted one; write .fit_tensors(...) and .forward(vectors)",
    ):
        debias.fit(contexts, **fit)
    argument, words = next(iter(fit.items()))
    if argument == "groups":
        lost, location = [["x"], ["y"]], "groups[0]"
    else:
        lost, location = [["x", "y"]] if isinstance(words[0], list) else ["x"], argument
    with raises(ValueError, f"{location}: got 1 tuples, none of which is complete in the vocabulary of 'tiny'"):
        debias.fit(model, **{**fit, argument: lost})
    with raises(TypeError, f"{argument}: got a str, wanted a list of {'lists of ' * (lost != ['x'])}words"):
        debias.fit(model, **{**fit, argument: "he"})
    debias.fit(model, **fit)
    with raises(TypeError, "target: got a str, wanted a list of words"):
        debias.transform(model, "a1a")
    with raises(TypeError, "ignore[0]: got a int, wanted a word (str)"):
        debias.transform(model, ignore=[1])
    with raises(TypeError, "copy: got 0, wanted True or False"):
        debias.transform(model, copy=0)
    with raises(ValueError, "vectors: got shape (20, 2), wanted (..., N, 3)"):
        debias(model.vectors[:, :2])
    with raises(ValueError, "vectors: got torch.int64, wanted a floating dtype; write vectors.float()"):
        debias(model.vectors.long())


@pytest.mark.parametrize("method", [HardDebias, DoubleHardDebias, RepulsionAttractionNeutralization])
def test_fit_pairs_of_three_words_raise(model, method):
    fit = METHODS[method][1]
    with raises(ValueError, "definitional_pairs[1]: got 3 words, ['a', 'b', 'c'], wanted 2"):
        method().fit(model, **{**fit, "definitional_pairs": [["t1a", "t2a"], ["a", "b", "c"]]})


@pytest.mark.parametrize(
    "method", [HardDebias, MulticlassHardDebias, DoubleHardDebias, RepulsionAttractionNeutralization]
)
def test_pca_args_invalid_values_raise(method):
    method({"n_components": 3}, verbose=True)
    with raises(ValueError, "pca_args: got {'k': 3}, wanted {'n_components': 10} or another number"):
        method({"k": 3})
    with raises(ValueError, "pca_args['n_components']: got 0, wanted an integer >= 1"):
        method(pca_args={"n_components": 0})
