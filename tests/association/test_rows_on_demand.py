"""Models that compute rows on demand: their transformations also apply to rows computed later."""

import copy

import numpy as np
import pytest
import torch
from metric_cases import answer

from tensormetrics import association
from tensormetrics.association import HardDebias, Query, WordEmbeddingModel, run_queries

PAIRS = [["he", "she"], ["him", "her"], ["man", "woman"]]
WORDS = [*sum(PAIRS, []), "work", "home", "engineer", "doctor", "math", "poetry"]
METHODS = {
    "HardDebias": (HardDebias, {"definitional_pairs": PAIRS[:2], "equalize_pairs": [["man", "woman"]]}),
    "MulticlassHardDebias": (
        association.MulticlassHardDebias,
        {"definitional_sets": PAIRS[:2], "equalize_sets": PAIRS[2:]},
    ),
    "HalfSiblingRegression": (association.HalfSiblingRegression, {"definitional_words": sum(PAIRS, [])}),
    "LEACE": (association.LEACE, {"groups": [["he", "him", "man"], ["she", "her", "woman"]]}),
    "INLP": (association.INLP, {"groups": [["he", "him", "man"], ["she", "her", "woman"]]}),
}


def encode(words):
    """Return vectors that depend on the letters of the words."""
    return torch.stack([
        torch.randn(5, generator=torch.Generator().manual_seed(sum(map(ord, word)) * len(word))) for word in words
    ])  # fmt: skip


def models():
    """Return a table of all words, a model without computed rows, and one with rows of two words."""
    partly_computed = WordEmbeddingModel.from_encoder(encode, name="model")
    for word in ("he", "engineer"):
        partly_computed.rows(word)
    return WordEmbeddingModel.from_tensor(encode(WORDS), WORDS, "model"), WordEmbeddingModel.from_encoder(
        encode, name="model"
    ), partly_computed  # fmt: skip


def close(one, other):
    torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other), rtol=0, atol=2e-6)


def test_normalize_applies_to_rows_computed_later():
    for model in models():
        model.normalize()
        for word in WORDS:
            close(model[word], torch.nn.functional.normalize(encode([word]))[0])


@pytest.mark.parametrize("contexts", ["all", "mean"])
def test_normalize_before_or_after_look_up_gives_equal_rows(contexts):
    options = {"templates": ["a{}", "{}b", "{}"], "contexts": contexts, "name": "model"}
    before, after = (WordEmbeddingModel.from_encoder(encode, **options) for _ in range(2))
    for word in ("he", "b", "a"):  # "ab" is a string of two of the words
        before.rows(word)
    before.normalize()
    after.normalize()
    for word in ("he", "a", "b"):
        rows, others = after.rows(word), before.rows(word)
        close(after.vectors[rows], before.vectors[others])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("is_copy", [True, False])
def test_debiasing_applies_to_rows_computed_later(name, is_copy):
    make, words = METHODS[name]
    for options in {}, {"target": ["work", "home"]}, {"ignore": ["work", "he"]}:
        table, *others = models()
        expected = make().fit(table, **words).transform(table, **options)
        for model in others:
            changed = make().fit(model, **words).transform(model, copy=is_copy, **options)
            assert (changed is model) == (not is_copy)
            for word in WORDS:
                close(changed[word], expected[word])
            if is_copy:
                close(model["poetry"], encode(["poetry"])[0])


@pytest.mark.parametrize("make", [association.DoubleHardDebias, association.RepulsionAttractionNeutralization])
def test_debiasing_joint_methods_raise_for_rows_on_demand(make):
    table, lazy, _ = models()
    fit = {"definitional_pairs": PAIRS, "bias_representation": ["he", "she"]}
    method = make(**({"n_words": 3} if make is association.DoubleHardDebias else {}))
    method.fit(
        lazy,
        **({name: fit[name] for name in fit if make is association.DoubleHardDebias or name == "definitional_pairs"}),
    )
    with pytest.raises(ValueError, match="jointly, which are computed on demand; write WordEmbeddingModel.from_numpy"):
        method.transform(lazy)


def test_equality_compares_encoders_and_transformations():
    def other(words):
        return -encode(words)

    a, b, c = (WordEmbeddingModel.from_encoder(encoder, name="model") for encoder in (encode, encode, other))
    assert a == b and a != c and a != models()[0]
    b.rows("he")
    assert a == b
    b.normalize()
    assert a != b
    assert a == copy.copy(a)


def test_refresh_recomputes_rows():
    scale = [1.0]
    model = WordEmbeddingModel.from_encoder(lambda words: scale[0] * encode(words))
    model.arrays(WORDS)
    model.normalize()
    scale[0] = -3.0
    close(model["he"], torch.nn.functional.normalize(encode(["he"]))[0])
    model.refresh()
    assert list(model.vocab) == WORDS
    close(model["he"], -torch.nn.functional.normalize(encode(["he"]))[0])


def test_rows_added_in_batches_are_allocated_once():
    """A table of 8,000 words in 6 templates is allocated once, so that batches copy no earlier rows."""
    templates = [f"{{}} {index}" for index in range(6)]
    model = WordEmbeddingModel.from_encoder(
        lambda words: torch.zeros(len(words), 8), templates=templates, batch_size=64
    )
    grown = []
    empty = torch.Tensor.new_empty
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            torch.Tensor,
            "new_empty",
            lambda self, *shape, **kind: grown.append(shape[0]) or empty(self, *shape, **kind),
        )
        model._table.add(f"w{index}" for index in range(8000))
        assert grown == [48000] and len(model.vectors) == 48000
        for index in range(8000, 8200):
            model.rows(f"w{index}")
    assert len(grown) == 2


def test_refit_of_method_does_not_change_debiased_models():
    _, model, _ = models()
    method = HardDebias().fit(model, definitional_pairs=PAIRS[:2])
    changed, expected = method.transform(model), HardDebias().fit(model, definitional_pairs=PAIRS[:2]).transform(model)
    method.fit(model, definitional_pairs=[["work", "home"]])
    close(changed["poetry"], expected["poetry"])


def test_refresh_of_debiased_model_raises():
    _, model, _ = models()
    changed = HardDebias().fit(model, definitional_pairs=PAIRS[:2]).transform(model)
    with pytest.raises(ValueError, match="^refresh: got a debiased model"):
        changed.refresh()
    model.refresh()
    with pytest.raises(ValueError, match="^refresh: got a debiased model"):
        changed.to(dtype=torch.float64).refresh()


def test_encoder_error_leaves_model_without_rows():
    calls = []

    def failing(words):
        calls.append(words)
        if len(calls) == 2:
            raise ConnectionError("no answer")
        return encode(words)

    model = WordEmbeddingModel.from_encoder(failing, batch_size=2)
    model.normalize()
    with pytest.raises(ValueError, match=r"^encode: got ConnectionError \(no answer\) for the strings \['") as error:
        model.arrays(WORDS[:4])
    assert isinstance(error.value.__cause__, ConnectionError)
    assert not len(model.vectors) and not model.vocab
    for word in WORDS[:4]:
        close(model[word], torch.nn.functional.normalize(encode([word]))[0])


def test_rows_of_wider_dtype_promote_table():
    dtypes = iter([torch.float16, torch.float64])
    model = WordEmbeddingModel.from_encoder(lambda words: encode(words).to(next(dtypes)))
    model.rows("he")
    model.rows("work")
    assert model.vectors.dtype == torch.float64
    close(model["work"], encode(["work"])[0].double())
    close(model["he"], encode(["he"])[0].half().double())


@pytest.mark.parametrize("name", ["WEAT", "RND", "RIPA", "CEAT"])
@pytest.mark.parametrize("error", [ValueError, RuntimeError, ConnectionError, IndexError])
def test_run_queries_encoder_error_affects_only_queries_with_its_word(name, error):
    def refusing(words):
        if "ill" in words:
            raise error("too long")
        return encode(words)

    metric = getattr(association, name)
    attributes = [["work"], ["love"]][: metric.metric_template[1]]
    queries = [
        Query([["he", "him", other], ["she", "her", "woman"]], attributes, [other, "female"])
        for other in ("man", "ill", "boy")
    ]
    table = run_queries(metric, queries, [WordEmbeddingModel.from_encoder(refusing, name="lazy")])
    expected = run_queries(metric, queries[::2], [WordEmbeddingModel.from_encoder(encode, name="lazy")])
    assert np.isnan(table.cells).tolist() == [[False, True, False]]
    np.testing.assert_allclose(table.cells[0][::2], expected.cells[0], rtol=1e-12)
    assert table.caption.count(";") == 0 and "too long" in table.caption
    with pytest.raises(ValueError, match="too long"):
        answer(metric(), queries[1], WordEmbeddingModel.from_encoder(refusing))


def test_run_queries_programming_error_of_encoder_is_raised():
    model = WordEmbeddingModel.from_encoder(lambda words: words.encode(), name="lazy")
    with pytest.raises(AttributeError):
        run_queries(association.WEAT, [Query([["he"], ["she"]], [["work"], ["love"]])], [model])
