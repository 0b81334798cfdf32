"""Probabilities of tokens, words and sentences under masked and causal language models."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.arguments.progress import progress_bar
from ...core.numbers.exact_sums import scatter_add
from . import tokens
from .contexts import CLOSE, OPEN
from .tokens import Tokens


class Probe(NamedTuple):
    """A token to score with a masked model."""

    ids: tuple[int, ...]  # the text, with a mask at the position
    position: int
    token: int
    owner: int  # index of the text or word for which it is scored


class Continuation(NamedTuple):
    """A text to score with a causal model from token `start` on, each token given the previous ones."""

    ids: list[int]
    start: int  # at least 1


def log_probabilities(
    model: Any,
    tokenizer: Any,
    templates: Sequence[str],
    words: Sequence[str],
    attributes: Sequence[str] | None = None,
    *,
    batch_size: int = 64,
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute the log-probabilities of words in templates under a masked language model, the input of `LPBS`.

    A word of n tokens gets n masks, which are filled from left to right: its log-probability is the sum over its
    tokens, each given the previous ones. A word with an unknown token has NaN.

    Args:
        model: A masked language model of transformers, in evaluation mode, as of AutoModelForMaskedLM.
        tokenizer: Its tokenizer.
        templates: Texts with one ``{}`` for the word, and with `attributes` one ``{attribute}``.
        words: W words, written as within a text.
        attributes: A words to fill in for ``{attribute}``. The prior is the log-probability in the same text with the
            tokens of the attribute masked, too (Kurita et al. 2019).
        batch_size: Texts in a forward pass; texts of similar lengths go together.

    Shape:
        - Output: ``(T, W)``, float64; with attributes a pair of ``(T, A, W)``

    Returns:
        Log-probabilities in nats, for T templates; with attributes also the priors.

    Raises:
        TypeError: If the model is not a masked language model.
        ValueError: If a template has no slot for the word or the attribute, or a text is too long for the model.

    Example:
        >>> from transformers import BertConfig, BertForMaskedLM, BertTokenizer
        >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "he", "she", "is", "a", "nurse", "doctor"]
        >>> tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(words)})
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        >>> bert = BertForMaskedLM(BertConfig(vocab_size=len(words), **sizes)).eval()  # or one that was trained
        >>> targets, attributes = ["he", "she"], ["nurse", "doctor"]
        >>> log_p, prior = log_probabilities(bert, tokenizer, ["{} is a {attribute}"], targets, attributes)
        >>> log_p.shape
        torch.Size([1, 2, 2])
        >>> metric = LPBS()
        >>> metric.update(log_p[..., 0].ravel(), prior[..., 0].ravel(), log_p[..., 1].ravel(), prior[..., 1].ravel())

    References:
        Kurita et al. 2019, arXiv:1906.07337
    """
    check_masked(model, "log_probabilities")
    slots = ("{}",) if attributes is None else ("{}", "{attribute}")
    for name, texts in (
        ("templates", templates),
        ("words", words),
        ("attributes", ["a"] if attributes is None else attributes),
    ):
        if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{name}: got {texts!r:.60}, wanted a list of at least one str")
    for template in templates:
        for slot in slots:
            if template.count(slot) != 1:
                raise ValueError(f"templates: got {template!r}, wanted a str with one {slot}")
    cells = [(template, a, word) for template in templates for a in attributes or [""] for word in words]
    rows = whole_texts(model, tokenizer, [_filled(t, f"{OPEN}{word}{CLOSE}", a) for t, a, word in cells])
    shape = (len(templates), len(attributes or [0]), len(words))
    log_p = _word_log_probabilities(model, tokenizer, rows, batch_size).view(shape)
    if attributes is None:
        return log_p[:, 0]
    marked = tokens.tokenize(tokenizer, [_filled(t, word, f"{OPEN}{a}{CLOSE}") for t, a, word in cells])
    priors = []
    for row, other in zip(rows, marked, strict=True):
        columns = zip(row.ids, other.is_word, row.is_word, strict=True)
        ids = [tokenizer.mask_token_id if is_a and not is_word else token for token, is_a, is_word in columns]
        priors.append(row._replace(ids=ids))
    return log_p, _word_log_probabilities(model, tokenizer, priors, batch_size).view(shape)


def sentence_log_likelihood(
    model: Any, tokenizer: Any, sentences: Sequence[str], contexts: Sequence[str] | None = None, *, batch_size: int = 64
) -> Tensor:
    """Compute the log-likelihoods of sentences under a causal language model.

    The first token is conditioned on the tokenizer's token for the beginning of a text; without one it is not scored.

    Args:
        model: A causal language model of transformers, in evaluation mode, as of AutoModelForCausalLM.
        tokenizer: Its tokenizer.
        sentences: N sentences.
        contexts: A text before each sentence, joined by a space, which is not scored.
        batch_size: Texts in a forward pass; texts of similar lengths go together.

    Shape:
        - Output: ``(N,)``, float64

    Returns:
        The sum of the log-probabilities of a sentence's tokens, each given the previous ones, in nats.

    Raises:
        TypeError: If the model is not a causal language model.
        ValueError: If the numbers of sentences and contexts differ, or a text is too long for the model.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel, GPT2Tokenizer
        >>> tokenizer = GPT2Tokenizer(vocab={"<|endoftext|>": 0, "Ġ": 1, "h": 2, "e": 3, "i": 4, "s": 5}, merges=[])
        >>> sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
        >>> gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes)).eval()  # or one that was trained
        >>> sentence_log_likelihood(gpt2, tokenizer, ["he is", "she is his"]).shape
        torch.Size([2])
    """
    check_causal(model, "sentence_log_likelihood")
    tokens.check_tokenizer(tokenizer)
    _check_sentences("sentences", sentences)
    befores = [""] * len(sentences) if contexts is None else list(contexts)
    if len(befores) != len(sentences):
        raise ValueError(f"contexts: got {len(befores)} for {len(sentences)} sentences, wanted one for each")
    marked = [f"{OPEN}{a}{CLOSE}{' ' if a else ''}{b}" for a, b in zip(befores, sentences, strict=True)]
    beginning = tokenizer.bos_token_id
    rows = []
    for row in tokens.tokenize(tokenizer, marked):
        content = [i for i, special in enumerate(row.is_special) if not special] or [0]
        front = [] if beginning is None or row.ids[:1] == [beginning] else [beginning]
        start = max((i + 1 for i, is_context in enumerate(row.is_word) if is_context), default=content[0])
        rows.append(Continuation([*front, *row.ids[: content[-1] + 1]], max(start + len(front), 1)))
    return causal_log_p(model, tokenizer, rows, batch_size)


def pseudo_log_likelihood(model: Any, tokenizer: Any, sentences: Sequence[str], *, batch_size: int = 64) -> Tensor:
    """Compute the pseudo-log-likelihoods of sentences under a masked language model.

    Args:
        model: A masked language model of transformers, in evaluation mode, as of AutoModelForMaskedLM.
        tokenizer: Its tokenizer.
        sentences: N sentences.
        batch_size: Texts in a forward pass; texts of similar lengths go together.

    Shape:
        - Output: ``(N,)``, float64

    Returns:
        The sum of the log-probabilities of a sentence's tokens, each masked and given all others, in nats.

    Raises:
        TypeError: If the model is not a masked language model.
        ValueError: If a sentence is too long for the model.

    Example:
        >>> from transformers import BertConfig, BertForMaskedLM, BertTokenizer
        >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "he", "she", "is", "a", "nurse", "doctor"]
        >>> tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(words)})
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        >>> bert = BertForMaskedLM(BertConfig(vocab_size=len(words), **sizes)).eval()  # or one that was trained
        >>> pseudo_log_likelihood(bert, tokenizer, ["She is a nurse", "He is a doctor"]).shape
        torch.Size([2])

    References:
        Salazar et al. 2020, doi:10.18653/v1/2020.acl-main.240
    """
    check_masked(model, "pseudo_log_likelihood")
    _check_sentences("sentences", sentences)
    rows = whole_texts(model, tokenizer, sentences)
    positions = [[i for i, special in enumerate(row.is_special) if not special] for row in rows]
    return masked_token_sums(model, tokenizer, [row.ids for row in rows], positions, batch_size)


def masked_token_sums(
    model: Any, tokenizer: Any, ids: Sequence[list[int]], positions: Sequence[Sequence[int]], batch_size: int
) -> Tensor:
    # ->  (len(ids),) float64
    """Sum the log-probabilities of tokens of each text, each masked separately."""
    mask = tokenizer.mask_token_id
    probes = [
        Probe((*row[:position], mask, *row[position + 1 :]), position, row[position], i)
        for i, (row, row_positions) in enumerate(zip(ids, positions, strict=True))
        for position in row_positions
    ]
    return sums_by_owner(masked_log_p(model, tokenizer, probes, batch_size), probes, len(ids))


def sums_by_owner(values: Tensor, probes: Sequence[Probe], count: int) -> Tensor:
    # values: (len(probes),)  ->  (count,) float64
    owners = torch.tensor([probe.owner for probe in probes], dtype=torch.int64, device=values.device)
    return scatter_add(values.new_zeros(count), owners, values)


@torch.no_grad()
def masked_log_p(model: Any, tokenizer: Any, probes: Sequence[Probe], batch_size: int) -> Tensor:
    # ->  (len(probes),) float64
    """Compute the log-probability of each token at its position; equal texts share a forward pass."""
    device = tokens.device_of(model)
    of_text: dict[tuple[int, ...], list[int]] = {}
    for i, probe in enumerate(probes):
        of_text.setdefault(probe.ids, []).append(i)
    texts = list(of_text)
    log_p = torch.zeros(len(probes), dtype=torch.float64, device=device)
    for batch, logits in _batches(model, tokenizer, texts, batch_size):
        members = [(row, i) for row, text in enumerate(batch) for i in of_text[texts[text]]]
        rows, probe_indices = torch.tensor(members, device=device).unbind(1)
        positions = torch.tensor([probes[i].position for _, i in members], device=device)
        target = torch.tensor([probes[i].token for _, i in members], device=device)
        log_p[probe_indices] = _log_softmax_at(logits[rows, positions], target)
    return log_p


@torch.no_grad()
def causal_log_p(model: Any, tokenizer: Any, rows: Sequence[Continuation], batch_size: int) -> Tensor:
    # ->  (len(rows),) float64
    """Sum the log-probabilities of the scored tokens of each text."""
    texts = [row.ids for row in rows]
    check_lengths(texts, tokens.token_limit(model, tokenizer, None))
    device = tokens.device_of(model)
    log_p = torch.zeros(len(rows), dtype=torch.float64, device=device)
    for batch, logits in _batches(model, tokenizer, texts, batch_size):
        scored = [(k, i, texts[n][i]) for k, n in enumerate(batch) for i in range(rows[n].start, len(texts[n]))]
        if scored:
            row, position, target = torch.tensor(scored, device=device).unbind(1)
            values = _log_softmax_at(logits[row, position - 1], target)
            log_p[torch.tensor(batch, device=device)] = scatter_add(log_p.new_zeros(len(batch)), row, values)
    return log_p


def check_masked(model: Any, function: str) -> None:
    """Raise a TypeError unless a model is a masked language model, a ValueError in training mode."""
    if is_causal(model):
        raise TypeError(
            f"model: got a {type(model).__name__}, which is causal; {function} wants a masked language model; write "
            "sentence_log_likelihood, and PairPreference for its scores"
        )
    _check_kind(model, function, "Masked")


def check_causal(model: Any, function: str) -> None:
    """Raise a TypeError unless a model is a causal language model, a ValueError in training mode."""
    _check_kind(model, function, "Causal")


def is_causal(model: Any) -> bool:
    return _is_of(model, "Causal")


def check_lengths(ids: Sequence[Sequence[int]], limit: int | None) -> None:
    """Raise a ValueError for a text with more tokens than a model reads."""
    longest = max(map(len, ids), default=0)
    if limit is not None and longest > limit:
        raise ValueError(f"model: got a text of {longest} tokens, of which it reads {limit}; write a shorter text")


def _check_kind(model: Any, function: str, kind: str) -> None:
    if not _is_of(model, kind):
        expected = f"{function} wants a {kind.lower()} language model; write AutoModelFor{kind}LM.from_pretrained(name)"
        raise TypeError(f"model: got a {type(model).__name__}, {expected}")
    tokens.check_evaluating(model)


def _is_of(model: Any, kind: str) -> bool:
    from transformers.models.auto import modeling_auto

    entries = getattr(modeling_auto, f"MODEL_FOR_{kind.upper()}_LM_MAPPING_NAMES").values()
    names = {name for entry in entries for name in ([entry] if isinstance(entry, str) else entry)}
    return any(base.__name__ in names for base in type(model).__mro__)


def _check_sentences(name: str, sentences: Any) -> None:
    if isinstance(sentences, str) or not all(isinstance(sentence, str) for sentence in sentences):
        raise TypeError(f"{name}: got {sentences!r:.60}, wanted a list of str")


def _filled(template: str, word: str, attribute: str) -> str:
    parts = re.split(r"(\{\}|\{attribute\})", template)
    return "".join({"{}": word, "{attribute}": attribute}.get(part, part) for part in parts)


def whole_texts(model: Any, tokenizer: Any, strings: Sequence[str]) -> list[Tokens]:
    """Return the tokens of texts for a masked model; raise a ValueError for a text that is too long."""
    tokens.check_tokenizer(tokenizer)
    if getattr(tokenizer, "mask_token_id", None) is None:
        raise TypeError(f"tokenizer: got a {type(tokenizer).__name__} without a mask token, wanted that of the model")
    rows = tokens.tokenize(tokenizer, strings)
    check_lengths([row.ids for row in rows], tokens.token_limit(model, tokenizer, None))
    return rows


def _word_log_probabilities(model: Any, tokenizer: Any, rows: Sequence[Tokens], batch_size: int) -> Tensor:
    # ->  (len(rows),) float64
    mask = tokenizer.mask_token_id
    probes: list[Probe] = []
    unknown = []
    for i, row in enumerate(rows):
        positions = [k for k, is_word in enumerate(row.is_word) if is_word]
        unknown.append(not positions or any(row.ids[k] == tokenizer.unk_token_id for k in positions))
        ids = [mask if is_word else token for token, is_word in zip(row.ids, row.is_word, strict=True)]
        for position in positions:
            probes.append(Probe(tuple(ids), position, row.ids[position], i))
            ids[position] = row.ids[position]
    sums = sums_by_owner(masked_log_p(model, tokenizer, probes, batch_size), probes, len(rows))
    return sums.masked_fill(torch.tensor(unknown, device=sums.device), torch.nan)


def _batches(
    model: Any, tokenizer: Any, texts: Sequence[Sequence[int]], batch_size: int
) -> Iterator[tuple[list[int], Tensor]]:
    """Yield the indices of the texts of each batch and their logits (B, T, V)."""
    with progress_bar(len(texts), "text", description="score", transient=True) as progress:
        for batch in tokens.batches_by_length(model, [len(text) for text in texts], batch_size):
            rows, real = tokens.padded([texts[i] for i in batch], tokenizer, tokens.device_of(model))
            yield batch, model(input_ids=rows, attention_mask=real.long()).logits
            progress.advance(len(batch))


def _log_softmax_at(logits: Tensor, target: Tensor) -> Tensor:
    # logits: (N, V)  target: (N,)  ->  (N,) float64
    logits = logits.float()
    return logits.gather(1, target[:, None])[:, 0].double() - logits.logsumexp(1).double()
