"""Sets of words as samples of populations: weights of rows in bootstrap replicates and jackknife samples."""

from typing import NamedTuple

import torch
from torch import Tensor

from ...core.resampling.weights import replicate_weights
from ..sets.word_ids import count_words, dense_word_indices

SET_BITS, GROUP_BITS = 48, 24  # positions of the set and group index above the word index in a resampling unit


class WordSample(NamedTuple):
    """A set of words, *shape = (W,), or the sets of G groups, (G, W), each drawn from a separate population."""

    valid_mask: Tensor  # (..., *shape) bool
    word_indices: Tensor  # (..., *shape) int64, index of each row's word among the valid words
    sizes: Tensor  # (..., G) int64, words of each group

    @property
    def shape(self) -> torch.Size:
        return self.valid_mask.shape[self.sizes.ndim - 1 :] if self.is_grouped else self.valid_mask.shape[-1:]

    @property
    def is_grouped(self) -> bool:
        return self.valid_mask.ndim > self.sizes.ndim

    @property
    def num_words(self) -> int:
        """Upper bound of the number of words of all groups."""
        return self.shape.numel()

    def units(self) -> Tensor:
        # ->  (num_words,) int64
        group, index = (torch.arange(count, device=self.valid_mask.device) for count in (1, *self.shape)[-2:])
        return ((group[:, None] << GROUP_BITS) + index).flatten()

    def unchanged(self) -> Tensor:
        # ->  (..., 1, *shape) float64
        return self._by_row(self.valid_mask).double()

    def reweighted(self, weights: Tensor) -> Tensor:
        # weights: (R, num_words) by index  ->  (..., R, *shape)
        """Return weights of rows, of mean 1 in each group."""
        word_indices = self._by_row(self.word_indices)
        by_word = weights.view(-1, *self.shape)
        by_word = by_word.expand(*word_indices.shape[: -len(self.shape) - 1], *by_word.shape)
        return self._normalized(by_word.take_along_dim(word_indices, -1) * self._by_row(self.valid_mask))

    def without(self, start: int, count: int) -> Tensor:
        # ->  (..., count, *shape)
        """Return weights of rows without the word `start`, `start + 1`, ...; of all rows if no other word is left."""
        word_index, width = self._by_row(self.word_indices), self.shape[-1]
        if self.is_grouped:
            word_index = word_index + width * torch.arange(self.shape[0], device=word_index.device)[:, None]
        word = torch.arange(start, start + count, device=word_index.device).view(-1, *[1] * len(self.shape))
        valid_mask = self._by_row(self.valid_mask)
        rest = valid_mask & (word_index != word)
        return self._normalized(torch.where(rest.any(-1, keepdim=True), rest, valid_mask).double())

    def _by_row(self, tensor: Tensor) -> Tensor:
        return tensor.unsqueeze(-1 - len(self.shape))

    def _normalized(self, weights: Tensor) -> Tensor:
        num_rows = self._by_row(self.valid_mask).sum(-1, keepdim=True)
        return weights * (num_rows / weights.sum(-1, keepdim=True)).nan_to_num(0)


def word_sample(mask: Tensor | None, words: Tensor | None, shape: torch.Size, device: torch.device) -> WordSample:
    # mask, words: (..., *shape)
    """Return the sample of a set's words; without `words` each row is a word."""
    valid_mask = torch.ones(shape, dtype=torch.bool, device=device) if mask is None else mask
    if words is not None:
        valid_mask, words = torch.broadcast_tensors(valid_mask, words)
    word_indices = dense_word_indices(valid_mask, words)
    sizes = valid_mask.sum(-1) if words is None else count_words(word_indices, valid_mask)
    return WordSample(valid_mask, word_indices, sizes if len(shape) > 1 else sizes.unsqueeze(-1))


def word_weights(samples: list[WordSample], replicates: int, seed: int) -> list[Tensor]:
    # ->  (R, num_words) float64 for each sample
    """Return the weights that the words have in all replicates, by their indices."""
    units = [sample.units() + (position << SET_BITS) for position, sample in enumerate(samples)]
    weights = torch.cat([part for _, part in replicate_weights(torch.cat(units), replicates, seed)])
    return list(weights.split_with_sizes([len(set_units) for set_units in units], 1))
