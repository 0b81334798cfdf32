"""The target sets or the attribute sets of a query as rows of a table of vectors."""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..sets.word_sets import Vectors, WordSet

Ints = tuple[int, ...]
Layout = int | Literal["n", "joined", "distinct"]  # how a score receives sets, see `IndexedQuery.sets`


class IndexedSets(NamedTuple):
    """Target sets or attribute sets of a query, or of a batch of queries, as rows of a table."""

    rows: Tensor  # (..., N) int64, sets concatenated, each as wide as the longest at its position in the batch
    mask: Tensor | None  # (..., N), True = a word; None if nothing is padded
    shortest: Ints  # smallest number of rows of each set
    longest: Ints  # largest number of rows of each set
    words: Tensor | None = None  # (..., N) int64, the id of each row's word in its set; None: each row is a word
    word_counts: Ints | None = None  # words of each set; None: each row is a word, or a batch

    @staticmethod
    def of(sets: Sequence[Sequence[int]], words: Sequence[Sequence[int] | None], device: Any) -> "IndexedSets":
        lengths = tuple(map(len, sets))
        rows = torch.from_numpy(np.fromiter(chain.from_iterable(sets), np.int64, sum(lengths)))
        indexed = IndexedSets(rows if device.type == "cpu" else rows.to(device), None, lengths, lengths)
        if all(word_ids is None for word_ids in words):
            return indexed
        word_ids = [
            range(size) if set_words is None else set_words for set_words, size in zip(words, lengths, strict=True)
        ]
        counts = tuple(len(set(set_words)) for set_words in word_ids)
        row_words = torch.tensor(list(chain.from_iterable(word_ids)), device=device)
        return indexed._replace(words=row_words, word_counts=counts)

    def identified(self, row_words: Sequence[Sequence[str]]) -> "IndexedSets":
        """Return the sets of one query with `word_keys` as word ids."""
        words_by_set = (None,) * len(self.longest) if self.words is None else self.words.split_with_sizes(self.longest)
        word_ids = [None if set_words is None else set_words.tolist() for set_words in words_by_set]
        keys_by_set = (word_keys(keys, set_words) for keys, set_words in zip(row_words, word_ids, strict=True))
        words = torch.tensor(list(chain.from_iterable(keys_by_set)), dtype=torch.int64, device=self.rows.device)
        counts = tuple(
            len(set(keys)) if set_words is None else len(set(set_words))
            for keys, set_words in zip(row_words, word_ids, strict=True)
        )
        return self._replace(words=words, word_counts=counts)

    @staticmethod
    def stack(batch: "Sequence[IndexedSets]") -> "IndexedSets":
        # (..., N) each  ->  (Q, ..., N)
        shortest = tuple(map(min, zip(*(sets.shortest for sets in batch), strict=True)))
        longest = tuple(map(max, zip(*(sets.longest for sets in batch), strict=True)))

        def stacked(tensors: Iterable[Tensor]) -> Tensor:
            pairs = zip(tensors, batch, strict=True)
            return torch.stack([_pad_or_truncate(tensor, sets.longest, longest) for tensor, sets in pairs])

        rows, mask, words = stacked(s.rows for s in batch), None, None
        if any(s.words is not None for s in batch):
            words = stacked(
                torch.arange(len(s.rows), device=s.rows.device) if s.words is None else s.words for s in batch
            )
        if shortest != longest:
            mask = stacked(torch.ones_like(s.rows, dtype=torch.bool) if s.mask is None else s.mask for s in batch)
        return IndexedSets(rows, mask, shortest, longest, words)

    @staticmethod
    def choose(
        rows: Tensor, mask: Tensor, lengths: np.ndarray, set_indices: Sequence[Ints], words: Tensor | None = None
    ) -> "IndexedSets":
        # rows, mask, words: (S, W)  lengths: (S,)  set_indices: (Q, sets)
        set_indices = np.array(set_indices, dtype=np.int64).reshape(len(set_indices), -1)
        shortest, longest = (tuple(extreme(lengths[set_indices], 0).tolist()) for extreme in (np.min, np.max))
        widths = (rows.shape[-1],) * set_indices.shape[1]
        set_indices = torch.from_numpy(set_indices).to(rows.device)
        rows, mask = (_pad_or_truncate(table[set_indices].flatten(-2), widths, longest) for table in (rows, mask))
        words = None if words is None else _pad_or_truncate(words[set_indices].flatten(-2), widths, longest)
        return IndexedSets(rows, None if shortest == longest else mask, shortest, longest, words)

    def stacked(self) -> tuple[Tensor, Tensor | None]:
        # ->  rows (..., sets, W), mask (..., sets, W), at the width of the longest set; padded with row 0
        mask = self.mask
        if mask is None and len(set(self.longest)) > 1:
            mask = torch.ones_like(self.rows, dtype=torch.bool)
        return self._as_stack(self.rows), None if mask is None else self._as_stack(mask)

    def _as_stack(self, tensor: Tensor) -> Tensor:
        # tensor: (..., N)  ->  (..., sets, W)
        sets, width = len(self.longest), max(self.longest, default=0)
        return _pad_or_truncate(tensor, self.longest, (width,) * sets).unflatten(-1, (sets, width))

    def sets(self, vectors: Tensor, layout: Layout) -> Sequence[Vectors]:
        # vectors: (..., V, D)  ->  (..., W, D) each
        rows = self.stacked()[0] if layout == "n" else self.rows
        values = vectors.index_select(-2, rows.flatten())
        if rows.ndim > 1:
            values = values.unflatten(-2, rows.shape)
        sets = (values,) if isinstance(layout, str) else values.split_with_sizes(self.longest, -2)
        if self.mask is None and self.words is None and not isinstance(layout, str):
            return sets
        word_sets = map(WordSet, sets, self._masks(layout), self._words_of_rows(layout))
        return tuple(
            word_set.values if word_set.mask is None and word_set.words is None else word_set for word_set in word_sets
        )

    def _masks(self, layout: Layout) -> Sequence[Tensor | None]:
        # ->  (..., W) each
        if layout == "n":
            return (self.stacked()[1],)
        if layout == "distinct":
            return (_first_occurrences(self.rows, self.mask),)
        if layout == "joined":
            return (self.mask,)
        if self.mask is None:
            return (None,) * len(self.longest)
        masks = self.mask.split_with_sizes(self.longest, -1)
        sizes = zip(masks, self.shortest, self.longest, strict=True)
        return tuple(None if min_size == max_size else mask for mask, min_size, max_size in sizes)

    def _words_of_rows(self, layout: Layout) -> Sequence[Tensor | None]:
        # ->  (..., W) each
        if self.words is None:
            return (None,) * (1 if isinstance(layout, str) else len(self.longest))
        if layout == "n":
            return (self._as_stack(self.words),)
        if isinstance(layout, str):  # one joint set: equal ids in two sets are two words
            starts = np.repeat(np.cumsum((0, *self.longest))[:-1], self.longest)
            return (self.words + torch.from_numpy(starts).to(self.words.device),)
        return self.words.split_with_sizes(self.longest, -1)


def row_word_ids(keys: Sequence[int], origins: Sequence[int] | None) -> Sequence[int] | None:
    """Return the word id of each row, from the index of its key and the word of each key; None if no word has two."""
    if origins is None:
        return None if isinstance(keys, range) or len(set(keys)) == len(keys) else keys
    word_ids = [origins[key] for key in keys]
    return None if len(set(word_ids)) == len(word_ids) else word_ids


def word_keys(keys: Sequence[str], word_ids: Sequence[int] | None) -> list[int]:
    """Return 63 bits for each row that depend only on its word, by the first key of that word.

    `keys` has the key of each row, `word_ids` the id of its word in the set (None: each row is a word).
    """
    first: dict[int, str] = {}
    words = [
        first.setdefault(n, key)
        for n, key in zip(range(len(keys)) if word_ids is None else word_ids, keys, strict=True)
    ]
    bits = {word: hashlib.blake2b(word.encode(errors="surrogatepass"), digest_size=8).digest() for word in set(words)}
    return [int.from_bytes(bits[word], "little") >> 1 for word in words]


def padded(sets: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    # -> (sets, W) int64, (sets, W) bool; padded with row 0
    lengths = list(map(len, sets))
    width = max(lengths, default=0)
    rows = [[*members, *[0] * (width - len(members))] for members in sets]
    rows = torch.tensor(rows, dtype=torch.int64, device=device).view(len(sets), width)
    if min(lengths, default=0) == width:
        return rows, torch.ones_like(rows, dtype=torch.bool)
    return rows, torch.arange(width, device=device) < torch.tensor(lengths, device=device).unsqueeze(-1)


def _pad_or_truncate(tensor: Tensor, widths: Ints, new_widths: Ints) -> Tensor:
    # tensor: (..., sum of widths)  ->  (..., sum of new_widths), each set truncated or padded with 0
    if widths == new_widths:
        return tensor
    parts = zip(tensor.split_with_sizes(widths, -1), new_widths, strict=True)
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[-1])) for part, width in parts], -1)


def _first_occurrences(rows: Tensor, mask: Tensor | None) -> Tensor | None:
    # rows: (..., W)  mask: (..., W)  ->  (..., W), True for the first occurrence of a row; None if rows are distinct
    if mask is None and rows.ndim == 1 and rows.device.type == "cpu" and len(set(rows.tolist())) == len(rows):
        return None
    equal = rows[..., :, None] == rows[..., None, :]
    if mask is None:
        return ~equal.tril(-1).any(-1)
    return mask & ~(equal & mask[..., None, :]).tril(-1).any(-1)
