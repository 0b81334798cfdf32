"""Folds for cross-validation: all rows of a word are in one fold, and each class is distributed over all folds."""

import torch
from torch import Tensor

from ...core.numbers.splitmix import random_bits_at
from .random import stream


def word_keys(words: Tensor, seed: int) -> Tensor:
    # words: (N,) int64  ->  (N,) int64
    """Draw a random number for each word, a function of the seed and the word alone."""
    return random_bits_at(stream(seed, "folds"), words)


def deal_words(labels: Tensor, words: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    # labels: (..., N) int64  words: (N,) int64  ->  (..., N), (..., N) int64
    """Return the position of each row's word in a random order of the words by class, overall and within its class.

    Folds are remainders of these positions. The class of a word is the smallest label of its rows.
    """
    word_ids, word_of_row = words.unique(return_inverse=True)
    word_of_row = word_of_row.expand_as(labels)
    word_labels = labels.new_zeros(*labels.shape[:-1], len(word_ids))
    word_labels = word_labels.scatter_reduce(-1, word_of_row, labels, "amin", include_self=False)
    order = word_keys(word_ids, seed).argsort().expand_as(word_labels)
    ordered, by_class = word_labels.gather(-1, order).sort(dim=-1, stable=True)
    positions = torch.arange(len(word_ids), device=words.device).expand_as(ordered)
    within = positions - torch.searchsorted(ordered.contiguous(), ordered.contiguous())
    overall, in_class = (
        torch.empty_like(x).scatter(-1, order.gather(-1, by_class), x).gather(-1, word_of_row)
        for x in (positions.contiguous(), within)
    )
    return overall, in_class
