"""Vectors of words in sentences, from all layers of tiny models of many architectures."""

import functools
import sys

import pytest
import torch
from metric_cases import answer
from raising import raises
from tiny_models import MAKERS, make, transformers

from tensormetrics.association import WEAT, HardDebias, Query, WordEmbeddingModel, run_queries
from tensormetrics.association.language_models.contexts import word_spans
from tensormetrics.association.language_models.tokens import tokenize

from_transformers = WordEmbeddingModel.from_transformers
FIRST = {"bert", "roberta", "gpt2", "bart", "t5", "byt5"}  # one of each kind of tokenizer and of layers
CONTEXTS = {
    "nurse": [
        "the nurse left.",
        "Nurses and a doctor went home in this, he was a good man.",
        "Nurse, this nurse is old",
    ],
    "woman": [("women vote", "women"), ("he saw women", (7, 12)), "A woman was young."],
    "he": ["was he bad?", "she saw the man and He left"],
}
SPANS = {  # of the sentences above, by hand
    "nurse": [[(4, 9)], [(0, 6)], [(12, 17)]],
    "woman": [[(0, 5)], [(7, 12)], [(2, 7)]],
    "he": [[(4, 6)], [(20, 22)]],
}


@functools.cache
def model_of(name):
    return make(name)


def sentence_vector(net, tokenizer, sentence, spans, layer):
    """Return the mean over the tokens of the spans in a forward pass of one sentence."""
    encoder = net.get_encoder() if net.config.is_encoder_decoder else net
    ids = tokenizer(sentence)["input_ids"]
    if tokenizer.is_fast:
        batch = tokenizer(sentence)
        tokens = {batch.char_to_token(i) for start, stop in spans for i in range(start, stop)} - {None}
    else:  # one token for each byte; CANINE has [CLS] before them
        shift = int(not isinstance(tokenizer, transformers.ByT5Tokenizer))
        tokens = {shift + i for start, stop in spans for i in range(start, stop)}
    with torch.no_grad():
        states = encoder(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[layer]
    return states[0, sorted(tokens)].mean(0)


@pytest.mark.parametrize(
    "name", [name if name in FIRST else pytest.param(name, marks=pytest.mark.full) for name in MAKERS]
)
@pytest.mark.parametrize("layer", [0, -1])
def test_contexts_vectors_equal_passes_of_single_sentences(name, layer):
    net, tokenizer = model_of(name)
    model = from_transformers(net, tokenizer, layer=layer, contexts=CONTEXTS, batch_size=3)
    assert len(model) == 3 and "he" in model and "she" not in model
    for word, sentences in CONTEXTS.items():
        rows = model.rows(word)
        for row, context, spans in zip(model.vectors[rows], sentences, SPANS[word], strict=True):
            sentence = context if isinstance(context, str) else context[0]
            expected = sentence_vector(net, tokenizer, sentence, spans, layer)
            torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "word", "spans"),
    [
        ("The nurse saw the nurse's home", "nurse", [(4, 9), (18, 23)]),
        ("Nurse, nurse", "nurse", [(7, 12)]),  # an exact match precedes one that ignores case
        ("Nurse", "nurse", [(0, 5)]),
        ("two nurses", "nurse", [(4, 10)]),
        ("many men hear her", "man", []),
        ("many men hear her", "he", []),
        ("C++ and c", "C++", [(0, 3)]),
        ("日本語", "日本", []),
    ],
)
def test_word_spans_are_whole_words(text, word, spans):
    assert word_spans(text, word) == spans


def test_contexts_without_the_word_raise_an_error_that_names_the_form():
    net, tokenizer = model_of("bert")
    text = "women vote"
    advice = f"write ({text!r}, 'its form there') or ({text!r}, (start, end))"
    with raises(ValueError, f"contexts['woman'][0]: found no 'woman' in {text!r}; {advice}"):
        from_transformers(net, tokenizer, layer=-1, contexts={"woman": [text]})
    for contexts, kind, message in [
        ({}, ValueError, "contexts: got no word, wanted at least one"),
        ({"a": []}, ValueError, "contexts['a']: got no sentence, wanted at least one"),
        ({"a": "a"}, TypeError, "contexts['a']: got a str, wanted a list of sentences"),
        ({"a": [1]}, TypeError, "contexts['a'][0]: got a int, wanted a sentence or (sentence, 'form of the word')"),
        (
            {"a": [("a", (0, 2))]},
            ValueError,
            "contexts['a'][0]: got the span (0, 2), wanted one within the 1 characters of the sentence",
        ),
    ]:
        with raises(kind, message):
            from_transformers(net, tokenizer, contexts=contexts)
    with raises(ValueError, "templates, contexts: got templates and sentences of words, wanted one of them"):
        from_transformers(net, tokenizer, contexts=CONTEXTS, templates=["{} is"])


def record_shapes(net):
    """Record the shape of the tokens in each forward pass."""
    shapes = []
    net.register_forward_pre_hook(
        lambda _, args, kwargs: shapes.append((*kwargs["input_ids"].shape,)), with_kwargs=True
    )
    return shapes


QUERY = Query([["he", "man"], ["she", "woman"]], [["good", "young"], ["bad", "old"]], ["m", "f"], ["g", "b"])


def test_layers_several_need_one_forward_pass():
    net, tokenizer = make("bert")
    shapes = record_shapes(net)
    models = from_transformers(net, tokenizer, layer=[0, 1, -1], templates=["this is {}", "{} left"])
    scores = run_queries(WEAT, [QUERY], models)
    assert shapes == [(16, 5)]
    assert [*scores.rows] == ["BertModel, layer 0", "BertModel, layer 1", "BertModel, layer -1"]
    for model, layer in zip(models, [0, 1, -1], strict=True):
        single = from_transformers(net, tokenizer, layer=layer, templates=["this is {}", "{} left"])
        assert scores[model.name, QUERY.query_name] == pytest.approx(answer(WEAT(), QUERY, single)["result"], rel=1e-6)


def test_layers_with_an_ellipsis_are_all_layers_between():
    net, tokenizer = model_of("bert")
    models = from_transformers(net, tokenizer, layer=[0, ..., -1], name="b")
    assert [model.name for model in models] == ["b, layer 0", "b, layer 1", "b, layer 2"]
    with raises(ValueError, "layer: got [Ellipsis, 1], wanted a number before and after ..."):
        from_transformers(net, tokenizer, layer=[..., 1])
    with raises(ValueError, "layer: got [1, 1], wanted distinct layers, at least one"):
        from_transformers(net, tokenizer, layer=[1, 1])


def test_layers_after_training_drop_cached_vectors():
    net, tokenizer = make("bert")
    first, last = from_transformers(net, tokenizer, layer=[0, -1])
    first.rows("he")  # this caches the vector of the last layer
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(1.5)
    fresh = from_transformers(net, tokenizer, layer=-1)
    assert last["he"].tolist() == fresh["he"].tolist()


def test_input_layer_is_read_by_reference():
    net, tokenizer = make("bert")
    model = from_transformers(net, tokenizer, templates=["{}", "this {}s"])
    before = answer(WEAT(), QUERY, model)["result"]
    weight = net.get_input_embeddings().weight
    torch.manual_seed(1)
    with torch.no_grad():
        weight.copy_(torch.randn_like(weight))
    fresh = from_transformers(net, tokenizer, templates=["{}", "this {}s"])
    after = answer(WEAT(), QUERY, model)["result"]
    assert after == answer(WEAT(), QUERY, fresh)["result"] != before
    rows = model.rows("nurses")
    model.vectors[rows].sum().backward()
    counts = {token: weight.grad[tokenizer.convert_tokens_to_ids(token)].tolist() for token in ("nurse", "##s", "she")}
    assert counts == {"nurse": [1.0] * 8, "##s": [1.0] * 8, "she": [0.0] * 8}


def test_input_layer_of_mean_contexts_is_the_mean_of_templates():
    net, tokenizer = model_of("bert")
    several = from_transformers(net, tokenizer, templates=["{}", "this {}s"])
    rows = several.rows("he")
    mean = from_transformers(net, tokenizer, templates=["{}", "this {}s"], contexts="mean")
    assert mean.rows("he").tolist() == [0]
    torch.testing.assert_close(mean.vectors[0], several.vectors[rows].mean(0))


def test_input_layer_keeps_transforms_and_refuses_writes():
    net, tokenizer = make("bert")
    model = from_transformers(net, tokenizer)
    model.rows("he")
    model.normalize()
    model.refresh()
    for word in ("he", "nurses"):  # computed before, and after
        assert float(torch.tensor(model[word]).norm()) == pytest.approx(1, rel=1e-6)
    message = "model: got one by layer='input', whose rows are read from the language model; write copy=True, or to "
    with raises(ValueError, message + "model.get_input_embeddings()"):
        model.update("he", torch.zeros(8))
    debias = HardDebias().fit(model, definitional_pairs=[["he", "she"], ["man", "woman"]])
    with raises(ValueError, message + "model.get_input_embeddings()"):
        debias.transform(model, copy=False)
    neutral = debias.transform(model, ignore=["he", "she", "man", "woman"])
    direction = next(iter(debias.buffers())).flatten()
    for word in ("nurse", "old"):
        assert float(torch.tensor(neutral[word]).double() @ direction.double()) == pytest.approx(0, abs=1e-6)
    assert model == model and model != from_transformers(net, tokenizer)
    assert model.to(dtype=torch.float64).vectors.dtype == torch.float64


def test_texts_of_similar_lengths_form_batches():
    net, tokenizer = make("bert")
    shapes = record_shapes(net)
    long, short = "the man and the woman and the nurse saw {} home", "{} left"
    model = from_transformers(net, tokenizer, layer=-1, templates=[long, short], batch_size=4)
    model.index_query(Query([["he", "she"]], [["nurse", "doctor"]]))
    assert shapes == [(4, 13), (4, 4)]


@pytest.mark.parametrize("name", ["bert", "roberta", "byt5"])
def test_long_texts_are_cut_to_a_window_around_the_word(name):
    net, tokenizer = model_of(name)
    before, after = "this and " * 40, " was old" * 40
    model = from_transformers(net, tokenizer, layer=-1, contexts={"nurse": [before + "nurse" + after]}, max_length=30)
    (row,) = tokenize(tokenizer, [f"{before}\ue000nurse\ue001{after}"])
    window = row.window(30)
    content = [i for i, special in enumerate(window.is_special) if not special]
    word = [i for i in content if window.is_word[i]]
    assert len(window.ids) == 30 and window.ids[-1] == row.ids[-1]
    assert abs((word[0] - content[0]) - (content[-1] - word[-1])) <= 1  # as much context before the word as after it
    encoder = net.get_encoder() if net.config.is_encoder_decoder else net
    with torch.no_grad():
        states = encoder(input_ids=torch.tensor([window.ids])).last_hidden_state[0]
    torch.testing.assert_close(torch.tensor(model["nurse"]), states[word].mean(0), rtol=1e-4, atol=1e-5)


def test_long_texts_fit_the_positions_of_the_model():
    for name in ("roberta", "gpt2", "bart"):  # RoBERTa's 66 positions are for 64 tokens
        net, tokenizer = model_of(name)
        model = from_transformers(net, tokenizer, layer=-1, contexts={"he": ["this and that " * 40 + "he left"]})
        assert torch.tensor(model["he"]).isfinite().all()
    net, tokenizer = model_of("bert")
    with raises(ValueError, "max_length: got 3, but a word has 2 tokens; write a larger one"):
        from_transformers(net, tokenizer, layer=-1, contexts={"nurse": ["the nurses left"]}, max_length=3)["nurse"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_vectors_are_near_those_of_float32(dtype):
    net, tokenizer = make("bert")
    expected = from_transformers(net, tokenizer, layer=-1, contexts=CONTEXTS)
    model = from_transformers(make("bert")[0].to(dtype), tokenizer, layer=-1, contexts=CONTEXTS)
    rows = [m.rows("nurse") for m in (model, expected)]
    assert model.vectors.dtype == dtype
    torch.testing.assert_close(model.vectors[rows[0]].float(), expected.vectors[rows[1]], rtol=0.1, atol=0.05)


def test_refused_models_and_tokenizers_are_named():
    net, tokenizer = model_of("canine")
    message = "which has 1 states for 5 tokens there; wanted one for each, as in layer -1"
    with raises(ValueError, f"layer: got 3 of a CanineModel, {message}"):
        from_transformers(net, tokenizer, layer=3)["she"]
    message = "layer: got 'input' for a CanineModel, which has no table of input embeddings; write layer=0"
    with raises(TypeError, message):
        from_transformers(net, tokenizer)

    class Merging(transformers.ByT5Tokenizer):  # its tokens depend on what follows
        def _tokenize(self, text):
            return super()._tokenize(text[::-1])

    message = "which does not tell the tokens of a word in 'the nurse left'; write a fast one"
    with raises(TypeError, f"tokenizer: got a Merging, {message}"):
        from_transformers(model_of("byt5")[0], Merging(), layer=-1, contexts={"nurse": ["the nurse left"]})["nurse"]


def test_names_are_of_what_was_loaded_or_of_the_class():
    net, tokenizer = make("bert")
    assert from_transformers(net, tokenizer).name == "BertModel"
    net.name_or_path = "tiny-bert"
    assert from_transformers(net, tokenizer, layer=-1).name == "tiny-bert"
    assert from_transformers(net, tokenizer, layer=[1])[0].name == "tiny-bert, layer 1"


def test_encoding_reports_its_progress(monkeypatch):
    tqdm = pytest.importorskip("tqdm")
    bars = []

    class Bar(tqdm.tqdm):
        def __init__(self, **options):
            super().__init__(**options)
            self.steps = []
            bars.append(self)

        def update(self, count=1):
            self.steps.append(count)

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    model = WordEmbeddingModel.from_encoder(lambda texts: torch.ones(len(texts), 2), batch_size=2)
    model.index_query(Query([["a", "b"]], [["c"]]))
    assert [(bar.total, bar.steps) for bar in bars] == [(3, [2, 1])]
