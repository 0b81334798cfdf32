"""Probabilities of words and sentences, and scores of sentence pairs, against loops over single texts."""

import difflib
import functools
import json

import numpy as np
import pytest
import torch
from raising import raises
from tiny_models import make

from tensormetrics.association import (
    SentencePairs,
    SentenceTriples,
    log_probabilities,
    read_sentence_pairs,
    read_sentence_triples,
    score_pairs,
)
from tensormetrics.association.functional import pseudo_log_likelihood, sentence_log_likelihood

model_of = functools.cache(make)
MASKED, CAUSAL = ["bert_mlm", "roberta_mlm"], ["gpt2", "llama"]
SENTENCES = ["She was a nurse.", "the doctors went home and he saw the man", "he left"]
PAIRS = SentencePairs(
    ["the women left home.", "the man was a good doctor", "he is old, he left"],
    ["the men left home.", "the woman was a good nurse, and a doctor", "she is old and she left"],
    ["gender", "gender", "age"],
)


@torch.no_grad()
def log_softmax_of(net, ids):
    return net(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)


def masked_log_p(net, tokenizer, ids, position):
    """Return the log probability of the token at a masked position."""
    masked = list(ids)
    masked[position] = tokenizer.mask_token_id
    return float(log_softmax_of(net, masked)[position, ids[position]])


def approx(expected):
    return pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", MASKED)
def test_log_probabilities_of_several_tokens_fill_masks_from_left_to_right(name):
    net, tokenizer = model_of(name)
    templates, words, attributes = (
        ["{} is a {attribute}.", "the {attribute} saw {}"],
        ["he", "doctors"],
        ["nurses", "man"],
    )
    log_p, prior = log_probabilities(net, tokenizer, templates, words, attributes, batch_size=3)
    assert log_p.shape == prior.shape == (2, 2, 2) and log_p.dtype == torch.float64
    for t, template in enumerate(templates):
        for a, attribute in enumerate(attributes):
            for w, word in enumerate(words):
                text = template.replace("{attribute}", attribute).replace("{}", word)
                batch = tokenizer(text)
                ids = batch["input_ids"]
                start = template.replace("{attribute}", attribute).index("{}")
                other = template.replace("{}", word).index("{attribute}")
                tokens = sorted({batch.char_to_token(start + i) for i in range(len(word))})
                attribute_tokens = {batch.char_to_token(other + i) for i in range(len(attribute))}
                for is_prior, actual in enumerate((log_p, prior)):
                    expected = 0.0
                    for k, position in enumerate(tokens):
                        masks = {*tokens[k:], *(attribute_tokens if is_prior else ())}
                        masked = [tokenizer.mask_token_id if i in masks else token for i, token in enumerate(ids)]
                        expected += float(log_softmax_of(net, masked)[position, ids[position]])
                    assert float(actual[t, a, w]) == approx(expected)


def test_log_probabilities_read_texts_with_equal_masks_once():
    net, tokenizer = make("bert_mlm")
    texts = []
    net.register_forward_pre_hook(lambda _, args, kwargs: texts.extend(kwargs["input_ids"].tolist()), with_kwargs=True)
    log_p = log_probabilities(net, tokenizer, ["{} is a nurse"], ["he", "she", "man"])
    assert log_p.shape == (1, 3) and len(texts) == 1


def test_log_probabilities_of_unknown_words_are_nan():
    net, tokenizer = model_of("bert_mlm")
    log_p = log_probabilities(net, tokenizer, ["{} is a nurse"], ["he", "xylophone"])
    assert log_p.isnan().tolist() == [[False, True]]


@pytest.mark.parametrize("name", CAUSAL)
def test_sentence_log_likelihood_equals_loop(name):
    net, tokenizer = model_of(name)
    beginning = [tokenizer.bos_token_id]
    log_likelihoods = sentence_log_likelihood(net, tokenizer, SENTENCES, batch_size=2)
    for sentence, value in zip(SENTENCES, log_likelihoods.tolist(), strict=True):
        ids = beginning + tokenizer(sentence)["input_ids"]
        log_p = log_softmax_of(net, ids)
        assert value == approx(sum(float(log_p[i - 1, ids[i]]) for i in range(1, len(ids))))
    contexts = ["He was bad.", "home", ""]
    log_likelihoods = sentence_log_likelihood(net, tokenizer, SENTENCES, contexts, batch_size=2)
    for context, sentence, value in zip(contexts, SENTENCES, log_likelihoods.tolist(), strict=True):
        first = beginning + tokenizer(context)["input_ids"] if context else beginning
        ids = beginning + tokenizer(f"{context} {sentence}" if context else sentence)["input_ids"]
        log_p = log_softmax_of(net, ids)
        assert ids[: len(first)] == first
        assert value == approx(sum(float(log_p[i - 1, ids[i]]) for i in range(len(first), len(ids))))


@pytest.mark.parametrize("name", MASKED)
def test_pseudo_log_likelihood_equals_loop(name):
    net, tokenizer = model_of(name)
    log_likelihoods = pseudo_log_likelihood(net, tokenizer, SENTENCES, batch_size=7)
    for sentence, value in zip(SENTENCES, log_likelihoods.tolist(), strict=True):
        ids = tokenizer(sentence)["input_ids"]
        assert value == approx(sum(masked_log_p(net, tokenizer, ids, i) for i in range(1, len(ids) - 1)))


@pytest.mark.parametrize("name", MASKED)
def test_score_pairs_masks_shared_tokens_as_crows_pairs_does(name):
    net, tokenizer = model_of(name)
    scores = score_pairs(net, tokenizer, PAIRS, batch_size=5)
    for i, pair in enumerate(zip(PAIRS.more, PAIRS.less, strict=True)):
        ids = [tokenizer(sentence)["input_ids"] for sentence in pair]
        spans = [op for op in difflib.SequenceMatcher(None, *ids).get_opcodes() if op[0] == "equal"]
        shared = [[j for op in spans for j in range(op[1 + 2 * k], op[2 + 2 * k])] for k in (0, 1)]
        for k in (0, 1):
            expected = sum(masked_log_p(net, tokenizer, ids[k], j) for j in shared[k][1:-1])
            assert float(scores[k][i]) == approx(expected)


def test_score_pairs_of_causal_models_are_log_likelihoods():
    net, tokenizer = model_of("gpt2")
    more, less = score_pairs(net, tokenizer, PAIRS)
    assert more.tolist() == approx(sentence_log_likelihood(net, tokenizer, PAIRS.more).tolist())
    assert less.tolist() == approx(sentence_log_likelihood(net, tokenizer, PAIRS.less).tolist())


TRIPLES = SentenceTriples(
    ["The doctor was BLANK.", "a BLANK man left"],
    [("The doctor was old.", "The doctor was engineers.", "The doctor was home."), ("a good man left",) * 3],
    [("1", "2", "3"), ("4", "5", "6")],
    ["doctor", "man"],
    ["profession", "gender"],
)


def test_score_pairs_of_stereoset_blanks_average_probabilities_of_tokens():
    net, tokenizer = model_of("bert_mlm")
    scores = score_pairs(net, tokenizer, TRIPLES)
    mask = tokenizer.mask_token_id
    for i, (context, sentences) in enumerate(zip(TRIPLES.contexts, TRIPLES.sentences, strict=True)):
        words = ["old", "engineers", "home"] if i == 0 else ["good"] * 3
        for k in range(len(sentences)):
            tokens = tokenizer(words[k], add_special_tokens=False)["input_ids"]
            blank = tokenizer(context.replace("BLANK", tokenizer.mask_token))["input_ids"]
            position = blank.index(mask)
            probabilities = []
            for n, token in enumerate(tokens):
                ids = [*blank[:position], *tokens[:n], mask, *blank[position + 1 :]]
                probabilities.append(float(log_softmax_of(net, ids)[position + n, token].exp()))
            assert len(tokens) == (2 if words[k] == "engineers" else 1)
            assert float(scores[k][i].exp()) == approx(np.mean(probabilities))


def test_score_pairs_of_stereoset_sentences_average_log_probabilities_of_tokens():
    net, tokenizer = model_of("gpt2")
    scores = score_pairs(net, tokenizer, TRIPLES)
    for i, sentences in enumerate(TRIPLES.sentences):
        for k, sentence in enumerate(sentences):
            ids = tokenizer(sentence)["input_ids"]
            log_p = [float(log_softmax_of(net, [tokenizer.bos_token_id])[0, ids[0]])]
            log_p += [float(log_softmax_of(net, ids)[j - 1, ids[j]]) for j in range(1, len(ids))]
            assert float(scores[k][i]) == approx(np.mean(log_p))


def test_score_pairs_of_stereoset_continuations_are_log_likelihoods():
    net, tokenizer = model_of("gpt2")
    triples = TRIPLES._replace(contexts=["He saw a doctor.", "this man was old."])
    scores = score_pairs(net, tokenizer, triples)
    for k in range(3):
        sentences = [row[k] for row in triples.sentences]
        expected = sentence_log_likelihood(net, tokenizer, sentences, triples.contexts)
        assert scores[k].tolist() == approx(expected.tolist())
    with pytest.raises(TypeError, match="score_pairs of continuations wants a causal language model"):
        score_pairs(*model_of("bert_mlm"), triples)


def triple(context, *sentences):
    return SentenceTriples([context], [sentences], [("1", "2", "3")], ["he"], ["gender"])


def test_scores_invalid_arguments_raise():
    causal, masked, encoder = model_of("gpt2"), model_of("bert_mlm"), model_of("bert")
    message = "which is causal; log_probabilities wants a masked language model; write sentence_log_likelihood, and "
    with raises(TypeError, f"model: got a GPT2LMHeadModel, {message}PairPreference for its scores"):
        log_probabilities(*causal, ["{}"], ["he"])
    message = "pseudo_log_likelihood wants a masked language model; write AutoModelForMaskedLM.from_pretrained(name)"
    with raises(TypeError, f"model: got a BertModel, {message}"):
        pseudo_log_likelihood(*encoder, ["he"])
    message = "sentence_log_likelihood wants a causal language model; write AutoModelForCausalLM.from_pretrained(name)"
    with raises(TypeError, f"model: got a BertForMaskedLM, {message}"):
        sentence_log_likelihood(*masked, ["he"])
    with raises(ValueError, "templates: got '{}', wanted a str with one {attribute}"):
        log_probabilities(*masked, ["{}"], ["he"], ["nurse"])
    with raises(TypeError, "attributes: got [], wanted a list of at least one str"):
        log_probabilities(*masked, ["{} is a {attribute}"], ["he"], [])
    with raises(ValueError, "model: got a text of 102 tokens, of which it reads 64; write a shorter text"):
        sentence_log_likelihood(*causal, ["b" * 101])
    with raises(ValueError, "contexts: got 1 for 2 sentences, wanted one for each"):
        sentence_log_likelihood(*causal, ["a", "b"], ["a"])
    with raises(ValueError, "sentences: got '', wanted at least one token"):
        score_pairs(*causal, triple("he is BLANK", "he is", "", "he"))
    long = "he " * 600
    with pytest.raises(ValueError, match="model: got a text of .* tokens, of which it reads"):
        score_pairs(*masked, triple(long + "BLANK", long + "good", long + "old", long + "home"))
    kind = type(causal[1]).__name__
    for pairs in PAIRS, triple("BLANK", "good", "old", "home"):
        with raises(TypeError, f"tokenizer: got a {kind} without a mask token, wanted that of the model"):
            score_pairs(masked[0], causal[1], pairs)
    message = "tokenizer: got a int, wanted one of transformers; write AutoTokenizer.from_pretrained(name)"
    with raises(TypeError, message):
        sentence_log_likelihood(causal[0], 3, SENTENCES)
    for size in 0, -1, 1.5:
        for score, net, texts in (pseudo_log_likelihood, masked, SENTENCES), (score_pairs, masked, PAIRS):
            with raises(ValueError, f"batch_size: got {size}, wanted an integer >= 1"):
                score(*net, texts, batch_size=size)
        with raises(ValueError, f"batch_size: got {size}, wanted an integer >= 1"):
            sentence_log_likelihood(*causal, SENTENCES, batch_size=size)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_sentence_pairs_are_read_from_the_columns_of_crows_pairs(tmp_path):
    head = ",sent_more,sent_less,stereo_antistereo,bias_type,annotations,anon_writer,anon_annotators\n"
    rows = (
        '0,"She left, then.",He left.,stereo,gender,[[]],a0,[]\n1,"Old ""men""",Young men,antistereo,age,[[]],a1,[]\n'
    )
    pairs = read_sentence_pairs(write(tmp_path / "pairs.csv", "\ufeff" + head + rows))
    assert pairs == SentencePairs(["She left, then.", 'Old "men"'], ["He left.", "Young men"], ["gender", "age"])
    path = write(tmp_path / "empty.csv", "sent_more,sent_less,bias_type\na,,b\n")
    with raises(
        ValueError,
        f"{path}, line 2: got no 'sent_less', wanted one for each item; it has 'sent_more', 'sent_less', 'bias_type'",
    ):
        read_sentence_pairs(path)
    path = write(tmp_path / "none.csv", "sent_more,sent_less,bias_type\n")
    with raises(ValueError, f"{path}: got no pair, wanted at least one"):
        read_sentence_pairs(path)


def test_sentence_triples_are_read_from_the_format_of_stereoset(tmp_path):
    labels = ["unrelated", "anti-stereotype", "stereotype"]
    rows = [{"id": f"s{i}", "sentence": f"She is {i}.", "labels": [], "gold_label": x} for i, x in enumerate(labels)]
    item = {"id": "x", "target": "she", "bias_type": "gender", "context": "She is BLANK.", "sentences": rows}
    content = {"version": "1.1", "data": {"intersentence": [{**item, "context": "Here."}], "intrasentence": [item]}}
    path = write(tmp_path / "dev.json", json.dumps(content))
    triples = read_sentence_triples(path)
    assert triples.sentences == [("She is 2.", "She is 1.", "She is 0.")] and triples.ids == [("s2", "s1", "s0")]
    assert (triples.contexts, triples.terms, triples.categories) == (["She is BLANK."], ["she"], ["gender"])
    assert read_sentence_triples(path, "intersentence").contexts == ["Here."]
    assert [float(x) for x in triples.scores({"s0": 1, "s1": 2, "s2": 3})] == [3, 2, 1]
    with raises(ValueError, "values: got no score of 's2' and 0 others, wanted all"):
        triples.scores({"s0": 1, "s1": 2})
    with raises(ValueError, f"{path}: wanted a list of items at data, other"):
        read_sentence_triples(path, "other")
    path = write(tmp_path / "bad.json", json.dumps({"data": {"intrasentence": [{**item, "sentences": rows[:2]}]}}))
    with raises(ValueError, f"{path}: item 0: wanted 'stereotype' in it"):
        read_sentence_triples(path)
    path = write(tmp_path / "no.json", "[")
    with pytest.raises(ValueError, match="wanted JSON"):
        read_sentence_triples(path)


def test_scores_of_no_sentences_are_empty():
    net, tokenizer = model_of("bert_mlm")
    assert pseudo_log_likelihood(net, tokenizer, []).shape == (0,)
    assert [len(scores) for scores in score_pairs(net, tokenizer, SentencePairs([], [], []))] == [0, 0]
    assert sentence_log_likelihood(*model_of("gpt2"), []).shape == (0,)
