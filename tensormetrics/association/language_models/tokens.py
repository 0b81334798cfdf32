"""Tokens of texts and of marked words, from fast and slow tokenizers."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from .contexts import Span, unmarked


class Tokens(NamedTuple):
    """Tokens of a text."""

    ids: list[int]
    is_special: list[bool]
    is_word: list[bool]  # part of a marked word

    def take(self, indices: Sequence[int]) -> "Tokens":
        """Return the tokens at some positions."""
        return Tokens(*([column[i] for i in indices] for column in self))  # type: ignore[arg-type]

    def window(self, limit: int) -> "Tokens":
        """Return at most `limit` tokens: special ones at the ends, and a window around the word's first occurrence."""
        if len(self.ids) <= limit:
            return self
        content = [i for i, special in enumerate(self.is_special) if not special]
        first, last = (content[0], content[-1]) if content else (len(self.ids), -1)
        front, back = range(first), range(last + 1, len(self.ids))
        size = limit - len(front) - len(back)
        start = next((i for i in content if self.is_word[i]), first)
        stop = next((i for i in range(start, last + 1) if not self.is_word[i]), last + 1)
        if stop - start > size:
            raise ValueError(f"max_length: got {limit}, but a word has {stop - start} tokens; write a larger one")
        window_start = max(first, min((start + stop - size) // 2, last + 1 - size))
        return self.take([*front, *range(window_start, window_start + size), *back])


def tokenize(tokenizer: Any, strings: Sequence[str]) -> list[Tokens]:
    """Split texts into tokens; words in them may be marked.

    A fast tokenizer reports the characters of each token. With a slow tokenizer, the text before a word and the text up
    to its end are tokenized separately: if both give the first tokens of the full text, the word has the tokens
    between.
    """
    if not strings:
        return []
    texts, spans = zip(*map(unmarked, strings), strict=True)
    if not getattr(tokenizer, "is_fast", False):
        return [_tokenize_slowly(tokenizer, text, words) for text, words in zip(texts, spans, strict=True)]
    batch = tokenizer(list(texts), return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False)
    tokens = []
    for i, words in enumerate(spans):
        offsets, special = batch["offset_mapping"][i], batch["special_tokens_mask"][i]
        is_special = list(map(bool, special))
        is_word = [
            not mark and any(start < stop and word_start < end for word_start, stop in words)
            for (start, end), mark in zip(offsets, special, strict=True)
        ]
        tokens.append(Tokens(batch["input_ids"][i], is_special, is_word))
    return tokens


def check_tokenizer(tokenizer: Any) -> None:
    """Raise a TypeError unless the argument is a tokenizer of transformers."""
    if not hasattr(tokenizer, "all_special_ids"):
        raise TypeError(
            f"tokenizer: got a {type(tokenizer).__name__}, wanted one of transformers; write "
            "AutoTokenizer.from_pretrained(name)"
        )


def token_limit(model: Any, tokenizer: Any, max_length: int | None) -> int | None:
    """Return the largest number of tokens that a model reads at a time; None if it is unlimited."""
    if max_length is not None:
        return checks.check_int("max_length", max_length, 1)
    limits = [getattr(tokenizer, "model_max_length", None)]
    config = getattr(model, "config", None)
    for name, module in model.named_modules():
        offset = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding) and offset is not None:
            limits.append(module.num_embeddings - offset - 1)  # RoBERTa: positions begin after the padding index
    limits.append(getattr(config, "max_position_embeddings", None))
    valid = [limit for limit in limits if isinstance(limit, int) and 0 < limit < 2**30]
    return min(valid, default=None)


def padded(ids: Sequence[Sequence[int]], tokenizer: Any, device: Any) -> tuple[Tensor, Tensor]:
    # ->  (B, T) int64 ids, (B, T) bool, True = a token
    """Pad sequences on the right."""
    lengths = torch.tensor([len(row) for row in ids], device="cpu")
    padding = getattr(tokenizer, "pad_token_id", None)
    width = int(lengths.max())
    rows = torch.tensor([[*row, *[padding or 0] * (width - len(row))] for row in ids], device="cpu")
    return rows.to(device), (torch.arange(width, device="cpu") < lengths[:, None]).to(device)


def batches_by_length(model: Any, lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Return the indices of sequences in batches of similar lengths, the longest first.

    CANINE mixes tokens with adjacent padding, so each of its batches has sequences of one length.
    """
    batch_size = checks.check_int("batch_size", batch_size, 1)
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    groups = [order]
    if getattr(getattr(model, "config", None), "model_type", None) == "canine":
        groups = [list(group) for _, group in itertools.groupby(order, key=lambda i: lengths[i])]
    return [group[start : start + batch_size] for group in groups for start in range(0, len(group), batch_size)]


def device_of(model: Any) -> torch.device:
    """Return the device of a model's first parameter."""
    return next(iter(model.parameters())).device


def check_evaluating(model: Any) -> None:
    """Raise a ValueError for a model in training mode."""
    if model.training:
        raise ValueError("model: got one in training mode, whose dropout changes its outputs; call model.eval()")


def _tokenize_slowly(tokenizer: Any, text: str, words: Sequence[Span]) -> Tokens:
    ids = tokenizer(text, verbose=False)["input_ids"]
    content = _content(tokenizer, text)
    first = next((i for i in range(len(ids) - len(content) + 1) if ids[i : i + len(content)] == content), -1)
    is_special = [not first <= i < first + len(content) for i in range(len(ids))]
    spans = []
    for word_start, end in words:
        starts = (_prefix(tokenizer, part, content) for part in (text[:word_start], text[:word_start].rstrip()))
        spans.append((next((count for count in starts if count >= 0), -1), _prefix(tokenizer, text[:end], content)))
    if min(itertools.chain((first,), *spans)) < 0:
        got = f"got a {type(tokenizer).__name__}, which does not tell the tokens of a word in {text!r}"
        raise TypeError(f"tokenizer: {got}; write a fast one")
    is_word = [False] * len(ids)
    for start, stop in spans:
        is_word[first + start : first + stop] = [True] * (stop - start)
    return Tokens(ids, is_special, is_word)


def _content(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] if text else []


def _prefix(tokenizer: Any, text: str, content: list[int]) -> int:
    """Return how many of the first tokens are those of a text, -1 if it has others."""
    ids = _content(tokenizer, text)
    return len(ids) if content[: len(ids)] == ids else -1
