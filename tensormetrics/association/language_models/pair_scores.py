"""Scores of pairs and triples of sentences by a language model, the input of `PairPreference`."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import torch
from torch import Tensor

from .contexts import CLOSE, OPEN
from .likelihoods import (
    Continuation,
    Probe,
    causal_log_p,
    check_causal,
    check_masked,
    is_causal,
    masked_log_p,
    masked_token_sums,
    sentence_log_likelihood,
    sums_by_owner,
    whole_texts,
)
from .pair_files import SentencePairs, SentenceTriples, blank_word
from .tokens import check_tokenizer


def score_pairs(
    model: Any, tokenizer: Any, pairs: SentencePairs | SentenceTriples, *, batch_size: int = 64
) -> tuple[Tensor, ...]:
    """Score the sentences of pairs, or triples, by a masked or causal language model of transformers.

    Pairs: for a masked model the pseudo-log-likelihood of the tokens that both sentences share, each masked separately
    (Nangia et al. 2020); for a causal model the log-likelihood of the sentence. Triples with a filled-in word: for a
    masked model the mean of the probabilities of the word's tokens, each given the previous ones and one mask; for a
    causal model the mean of the log-probabilities of the sentence's tokens (Nadeem et al. 2021). Triples with a
    continuing sentence: for a causal model its log-likelihood given the context.

    Args:
        model: The model, in evaluation mode.
        tokenizer: Its tokenizer.
        pairs: Sentences, as from `read_sentence_pairs` or `read_sentence_triples`.
        batch_size: Texts in a forward pass; texts of similar lengths go together.

    Shape:
        - Output: ``(N,)`` each, float64

    Returns:
        The scores of the first and second sentences, and of the third sentences of triples: logarithms, in nats.

    Raises:
        TypeError: If the model is neither masked nor causal, or is masked and triples are continuations.
        ValueError: If a text is too long for the model.

    Example:
        >>> from transformers import BertConfig, BertForMaskedLM, BertTokenizer
        >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "he", "she", "is", "a", "nurse", "doctor"]
        >>> tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(words)})
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        >>> bert = BertForMaskedLM(BertConfig(vocab_size=len(words), **sizes)).eval()  # or one that was trained
        >>> pairs = SentencePairs(["she is a nurse"], ["he is a nurse"], ["gender"])  # or read_sentence_pairs(path)
        >>> metric = PairPreference("crows-pairs", categories=sorted(set(pairs.categories)))
        >>> metric.update(*score_pairs(bert, tokenizer, pairs), categories=pairs.categories)
        >>> [*metric.compute()]
        ['all', 'gender']

    References:
        Nangia et al. 2020, doi:10.18653/v1/2020.emnlp-main.154; Nadeem et al. 2021,
        doi:10.18653/v1/2021.acl-long.416
    """
    if isinstance(pairs, SentencePairs):
        texts = [*pairs.more, *pairs.less]
        if is_causal(model):
            return sentence_log_likelihood(model, tokenizer, texts, batch_size=batch_size).tensor_split(2)
        return _score_shared_tokens(model, tokenizer, texts, batch_size).tensor_split(2)
    if not isinstance(pairs, SentenceTriples):
        raise TypeError(f"pairs: got a {type(pairs).__name__}, wanted SentencePairs or SentenceTriples")
    sentences = [sentence for row in pairs.sentences for sentence in row]
    contexts = [context for context in pairs.contexts for _ in range(3)]
    if not any("BLANK" in context for context in contexts):
        check_causal(model, "score_pairs of continuations")
        scores = sentence_log_likelihood(model, tokenizer, sentences, contexts, batch_size=batch_size)
    elif is_causal(model):
        check_causal(model, "score_pairs")
        scores = _mean_log_likelihood(model, tokenizer, sentences, batch_size)
    else:
        check_masked(model, "score_pairs")
        scores = _blank_log_probability(model, tokenizer, contexts, sentences, batch_size)
    return scores.view(-1, 3).unbind(1)


def _score_shared_tokens(model: Any, tokenizer: Any, texts: Sequence[str], batch_size: int) -> Tensor:
    # texts: 2 N, the first and the second sentences  ->  (2 N,) float64
    check_masked(model, "score_pairs")
    ids = [row.ids for row in whole_texts(model, tokenizer, texts)]
    count = len(ids) // 2
    positions: list[list[int]] = [[] for _ in ids]
    for i in range(count):
        for block in SequenceMatcher(None, ids[i], ids[count + i]).get_matching_blocks():
            positions[i] += range(block.a, block.a + block.size)
            positions[count + i] += range(block.b, block.b + block.size)
    inner = [shared[1:-1] for shared in positions]  # without the first and the last token
    return masked_token_sums(model, tokenizer, ids, inner, batch_size)


def _mean_log_likelihood(model: Any, tokenizer: Any, sentences: Sequence[str], batch_size: int) -> Tensor:
    # ->  (N,) float64
    """Average over tokens: the first token given the beginning of a text, the others without it."""
    check_tokenizer(tokenizer)
    beginning = tokenizer.bos_token_id
    ids = tokenizer(list(sentences), add_special_tokens=False, verbose=False)["input_ids"]
    if beginning is None:
        raise TypeError(
            f"tokenizer: got a {type(tokenizer).__name__} without bos_token, wanted one for the first token"
        )
    if [] in ids:
        raise ValueError(f"sentences: got {sentences[ids.index([])]!r}, wanted at least one token")
    firsts = [Continuation([beginning, row[0]], 1) for row in ids]
    sums = causal_log_p(model, tokenizer, [*firsts, *(Continuation(row, 1) for row in ids)], batch_size)
    lengths = torch.tensor([len(row) for row in ids], dtype=torch.float64, device=sums.device)
    return sums.view(2, -1).sum(0) / lengths


def _blank_log_probability(
    model: Any, tokenizer: Any, contexts: Sequence[str], sentences: Sequence[str], batch_size: int
) -> Tensor:
    # ->  (N,) float64
    """Compute the logarithm of the mean probability of a word's tokens, each given the previous ones and one mask."""
    words = [blank_word(context, sentence) for context, sentence in zip(contexts, sentences, strict=True)]
    marked = [context.replace("BLANK", f"{OPEN}{word}{CLOSE}") for context, word in zip(contexts, words, strict=True)]
    probes: list[Probe] = []
    for i, row in enumerate(whole_texts(model, tokenizer, marked)):
        positions = [k for k, is_word in enumerate(row.is_word) if is_word]
        for k, position in enumerate(positions):
            left_out = set(positions[k + 1 :])
            ids = [tokenizer.mask_token_id if j == position else t for j, t in enumerate(row.ids) if j not in left_out]
            probes.append(Probe(tuple(ids), position, row.ids[position], i))
    log_p = masked_log_p(model, tokenizer, probes, batch_size)
    counts = sums_by_owner(torch.ones_like(log_p), probes, len(marked))
    return (sums_by_owner(log_p.exp(), probes, len(marked)) / counts).log()
