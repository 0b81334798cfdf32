"""Words with several rows, which are permuted, flipped and drawn with all their rows."""

import functools

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...core.numbers.splitmix import random_bits_at
from .set_checks import check_broadcast, check_device


def check_words(name: str, words: Tensor | None, like: str, rows: Tensor) -> None:
    # words: (..., W) int64, the id of each row's word  rows: (..., W), of the set named `like`
    if words is None:
        return
    if not isinstance(words, Tensor):
        raise TypeError(f"{name}: got a {type(words).__name__}, wanted a tensor; write torch.as_tensor({name})")
    if words.is_floating_point() or words.is_complex() or words.dtype == torch.bool:
        raise TypeError(f"{name}: got {words.dtype}, wanted an integer dtype: the id of each row's word")
    if words.shape[-1:] != rows.shape[-1:]:
        raise ValueError(f"{name}: got shape {tuple(words.shape)}, wanted (..., {rows.shape[-1]}), one for each row")
    check_broadcast([(name, words.shape[:-1]), (like, rows.shape[:-1])])
    check_device(name, words, like, rows)


def joint_mask(*masks: Tensor | None) -> Tensor | None:
    # masks: (..., P)  ->  (..., P), True for complete tuples; the smallest of weights
    provided = [mask for mask in masks if mask is not None]
    return functools.reduce(torch.minimum, provided) if provided else None


def joint_words(*words: Tensor | None) -> Tensor | None:
    # words: (..., P) int64, the id of each row's word  ->  (..., P), the id of each row's tuple of words
    provided = [ids for ids in words if ids is not None]
    if not provided:
        return None
    size = provided[0].shape[-1]
    if len(provided) < len(words):  # each row of the other sets is a word, so each tuple is distinct
        return torch.arange(size, device=provided[0].device)
    tuple_indices = [dense_word_indices(torch.ones_like(ids, dtype=torch.bool), ids) for ids in provided]
    return functools.reduce(lambda joint, indices: joint * size + indices, tuple_indices)


def mixed_words(*words: Tensor | None) -> Tensor | None:
    # as in `joint_words`, but the id of a tuple depends only on the ids of its words: 64 mixed bits
    if all(ids is not None for ids in words):
        return functools.reduce(random_bits_at, (ids for ids in words if ids is not None))
    return joint_words(*words)


def dense_word_indices(valid_mask: Tensor, words: Tensor | None) -> Tensor:
    # valid_mask: (..., N) bool  words: (..., N) int64, None if every row is a word  ->  (..., N) int64
    """Renumber the words of valid rows as 0, 1, ... in the order of their ids; invalid rows get any number."""
    if words is None:
        return (valid_mask.cumsum(-1) - 1).clamp(min=0)
    if not valid_mask.shape[-1]:
        return valid_mask.long()
    ordered, order = words.long().masked_fill(~valid_mask, torch.iinfo(torch.int64).max).sort(dim=-1, stable=True)
    indices = pad((ordered.diff(dim=-1) != 0).cumsum(-1), (1, 0))
    return torch.empty_like(indices).scatter(-1, order, indices)


def count_words(word_indices: Tensor, valid_mask: Tensor) -> Tensor:
    # word_indices, valid_mask: (..., N), as in `dense_word_indices`  ->  (...) int64
    return pad((word_indices + 1) * valid_mask, (1, 0)).amax(-1)


def joined_words(batch_shape: torch.Size, *sets: tuple[Tensor | None, int, torch.device]) -> Tensor | None:
    # sets: words (..., W) or None, W, device  ->  (*lead, sum of W) int64
    """Join the word ids of several sets; equal ids in two sets are two words. None if every row is a word."""
    if all(words is None for words, _, _ in sets):
        return None
    set_indices, start = [], 0
    for words, rows, device in sets:
        indices = torch.arange(rows, device=device)
        if words is not None:
            indices = dense_word_indices(torch.ones_like(words, dtype=torch.bool), words)
        set_indices.append((start + indices).expand(*batch_shape, rows))
        start += rows
    return torch.cat(set_indices, -1)


def word_ids_by_index(words: Tensor, valid_mask: Tensor, word_indices: Tensor, width: int) -> Tensor:
    # words, valid_mask, word_indices: (..., N), as in `dense_word_indices`  ->  (..., width) int64
    """Return the id of the word at each index; repeated ids are made distinct by mixing in their occurrence."""
    words, valid_mask, word_indices = torch.broadcast_tensors(words, valid_mask, word_indices)
    no_id = torch.iinfo(torch.int64).min
    word_ids = torch.full((*word_indices.shape[:-1], width), no_id, device=words.device)
    valid_words = words.long().masked_fill(~valid_mask, no_id)
    word_ids = word_ids.scatter_reduce(-1, word_indices.clamp(max=max(width - 1, 0)), valid_words, "amax")
    ordered, order = word_ids.sort(dim=-1, stable=True)
    index = torch.arange(width, device=words.device)
    is_repeated = pad(ordered.diff(dim=-1) == 0, (1, 0)) if width else ordered.bool()
    occurrence = index - index.masked_fill(is_repeated, 0).cummax(-1).values
    return random_bits_at(word_ids, torch.empty_like(order).scatter(-1, order, occurrence))


def word_means(units: Tensor, valid_mask: Tensor, word_indices: Tensor) -> tuple[Tensor, Tensor]:
    # units: (B, N) int64  valid_mask, word_indices: (B, N)  ->  (B, W) int64, (B, W) bool
    """Return the mean over the rows of each word and whether the word exists. Synchronizes to read their number."""
    width = max(1, int(pad(count_words(word_indices, valid_mask), (1, 0)).amax()))
    word_indices, zeros = word_indices.clamp(max=width - 1), units.new_zeros(len(units), width)
    sums = zeros.scatter_add(-1, word_indices, units * valid_mask)
    num_rows = zeros.scatter_add(-1, word_indices, valid_mask.long())
    return (sums.double() / num_rows.clamp(min=1)).round().long(), num_rows > 0


def row_fractions(words: Tensor, valid_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    # words: (..., W) integer  valid_mask: (..., W) bool, None: all  ->  (..., W) float64, (..., W) int64
    """Return 1 / (rows of its word) for each row, 0 for invalid rows, and the index of its word."""
    if valid_mask is None:
        valid_mask = torch.ones_like(words, dtype=torch.bool)
    valid_mask, words = torch.broadcast_tensors(valid_mask, words)
    word_indices = dense_word_indices(valid_mask, words)
    num_rows = torch.zeros_like(word_indices).scatter_add(-1, word_indices, valid_mask.long()).gather(-1, word_indices)
    return valid_mask.double() / num_rows.clamp(min=1), word_indices
