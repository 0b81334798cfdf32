"""One side of a query, its target sets or its attribute sets, as rows of a table of vectors."""

import hashlib
from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..sets.word_sets import Vectors, WordSet

Numbers = tuple[int, ...]
Form = int | Literal["n", "joined", "distinct"]  # how a side arrives in a score, see `IndexedQuery.sets`


class Side(NamedTuple):
    """The target sets or the attribute sets of a query, or of a batch of them, as rows of a table."""

    rows: Tensor  # (..., N) int64, one set after the other, each as wide as the longest of its place in the batch
    mask: Tensor | None  # (..., N), True = a word; None where all places are words
    shortest: Numbers  # the fewest rows of each set
    longest: Numbers
    words: Tensor | None = None  # (..., N) int64, the number of each row's word in its set; None: each row is a word
    word_counts: Numbers | None = None  # of each set, None: as many as rows, or a batch

    @staticmethod
    def of(sets: Sequence[Sequence[int]], words: Sequence[Sequence[int] | None], device: Any) -> "Side":
        lengths = tuple(map(len, sets))
        rows = torch.from_numpy(np.fromiter(chain.from_iterable(sets), np.int64, sum(lengths)))
        side = Side(rows if device.type == "cpu" else rows.to(device), None, lengths, lengths)
        if all(numbers is None for numbers in words):
            return side
        numbers = [range(size) if each is None else each for each, size in zip(words, lengths, strict=True)]
        counts = tuple(len(set(each)) for each in numbers)
        of_rows = torch.tensor(list(chain.from_iterable(numbers)), device=device)
        return side._replace(words=of_rows, word_counts=counts)

    def identified(self, row_words: Sequence[Sequence[str]]) -> "Side":
        """Return this side of one query with words whose numbers are `word_keys`."""
        given = (None,) * len(self.longest) if self.words is None else self.words.split_with_sizes(self.longest)
        numbers = [None if each is None else each.tolist() for each in given]
        of_sets = (word_keys(keys, each) for keys, each in zip(row_words, numbers, strict=True))
        words = torch.tensor(list(chain.from_iterable(of_sets)), dtype=torch.int64, device=self.rows.device)
        counts = tuple(
            len(set(keys)) if each is None else len(set(each)) for keys, each in zip(row_words, numbers, strict=True)
        )
        return self._replace(words=words, word_counts=counts)

    @staticmethod
    def stack(sides: "Sequence[Side]") -> "Side":
        """(Q, ..., N) of (..., N)."""
        shortest = tuple(map(min, zip(*(side.shortest for side in sides), strict=True)))
        longest = tuple(map(max, zip(*(side.longest for side in sides), strict=True)))
        rows = torch.stack([_fitted(side.rows, side.longest, longest) for side in sides])
        words = None
        if any(side.words is not None for side in sides):
            own = (torch.arange(len(s.rows), device=s.rows.device) if s.words is None else s.words for s in sides)
            words = torch.stack([_fitted(w, side.longest, longest) for w, side in zip(own, sides, strict=True)])
        if shortest == longest:
            return Side(rows, None, shortest, longest, words)
        masks = (torch.ones_like(s.rows, dtype=torch.bool) if s.mask is None else s.mask for s in sides)
        mask = torch.stack([_fitted(m, side.longest, longest) for m, side in zip(masks, sides, strict=True)])
        return Side(rows, mask, shortest, longest, words)

    @staticmethod
    def choose(
        rows: Tensor, mask: Tensor, lengths: np.ndarray, chosen: Sequence[Numbers], words: Tensor | None = None
    ) -> "Side":
        # rows, mask, words: (S, W)  lengths: (S,)  chosen: (Q, sets) numbers of sets
        chosen = np.array(chosen, dtype=np.int64).reshape(len(chosen), -1)
        shortest, longest = (tuple(extreme(lengths[chosen], 0).tolist()) for extreme in (np.min, np.max))
        widths = (rows.shape[-1],) * chosen.shape[1]
        chosen = torch.from_numpy(chosen).to(rows.device)
        rows, mask = (_fitted(table[chosen].flatten(-2), widths, longest) for table in (rows, mask))
        words = None if words is None else _fitted(words[chosen].flatten(-2), widths, longest)
        return Side(rows, None if shortest == longest else mask, shortest, longest, words)

    def stacked(self) -> tuple[Tensor, Tensor | None]:
        # ->  rows (..., sets, W), mask (..., sets, W), at the width of the longest set; row 0 in the padding
        sets, width = len(self.longest), max(self.longest, default=0)
        mask = self.mask
        if mask is None and min(self.longest, default=0) < width:
            mask = torch.ones_like(self.rows, dtype=torch.bool)

        def fitted(t: Tensor) -> Tensor:
            return _fitted(t, self.longest, (width,) * sets).unflatten(-1, (sets, width))

        return fitted(self.rows), None if mask is None else fitted(mask)

    def sets(self, vectors: Tensor, form: Form) -> Sequence[Vectors]:
        # vectors: (..., V, D)  ->  (..., W, D) each
        rows = self.stacked()[0] if form == "n" else self.rows
        values = vectors.index_select(-2, rows.flatten())
        if rows.ndim > 1:
            values = values.unflatten(-2, rows.shape)
        sets = (values,) if isinstance(form, str) else values.split_with_sizes(self.longest, -2)
        if self.mask is None and self.words is None and not isinstance(form, str):
            return sets
        given = map(WordSet, sets, self._masks(form), self._words_of_rows(form))
        return tuple(each.values if each.mask is None and each.words is None else each for each in given)

    def _masks(self, form: Form) -> Sequence[Tensor | None]:
        # ->  (..., W) each
        if form == "n":
            return (self.stacked()[1],)
        if form == "distinct":
            return (_first_places(self.rows, self.mask),)
        if form == "joined":
            return (self.mask,)
        if self.mask is None:
            return (None,) * len(self.longest)
        masks = self.mask.split_with_sizes(self.longest, -1)
        sizes = zip(masks, self.shortest, self.longest, strict=True)
        return tuple(None if least == most else mask for mask, least, most in sizes)

    def _words_of_rows(self, form: Form) -> Sequence[Tensor | None]:
        # ->  (..., W) each
        if self.words is None:
            return (None,) * (1 if isinstance(form, str) else len(self.longest))
        if form == "n":
            sets, width = len(self.longest), max(self.longest, default=0)
            return (_fitted(self.words, self.longest, (width,) * sets).unflatten(-1, (sets, width)),)
        if isinstance(form, str):  # one set of all: equal numbers in two sets are two words
            starts = np.repeat(np.cumsum((0, *self.longest))[:-1], self.longest)
            return (self.words + torch.from_numpy(starts).to(self.words.device),)
        return self.words.split_with_sizes(self.longest, -1)


def number_words(keys: Sequence[int], origins: Sequence[int] | None) -> Sequence[int] | None:
    """The number of each row's word, from that of its key and the number of each key's word; None if none has two."""
    if origins is None:
        return None if isinstance(keys, range) or len(set(keys)) == len(keys) else keys
    numbers = [origins[key] for key in keys]
    return None if len(set(numbers)) == len(numbers) else numbers


def word_keys(keys: Sequence[str], numbers: Sequence[int] | None) -> list[int]:
    """Return 63 bits for each row that depend on its word alone: on the first key of those of its number.

    `keys` are of each row, `numbers` of its word in the set (None: each row is a word).
    """
    first: dict[int, str] = {}
    words = [
        first.setdefault(n, key) for n, key in zip(range(len(keys)) if numbers is None else numbers, keys, strict=True)
    ]
    bits = {word: hashlib.blake2b(word.encode(errors="surrogatepass"), digest_size=8).digest() for word in set(words)}
    return [int.from_bytes(bits[word], "little") >> 1 for word in words]


def padded(sets: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    # -> (sets, W) int64, (sets, W) bool; row 0 in the padding
    lengths = list(map(len, sets))
    width = max(lengths, default=0)
    rows = [[*members, *[0] * (width - len(members))] for members in sets]
    rows = torch.tensor(rows, dtype=torch.int64, device=device).view(len(sets), width)
    if min(lengths, default=0) == width:
        return rows, torch.ones_like(rows, dtype=torch.bool)
    return rows, torch.arange(width, device=device) < torch.tensor(lengths, device=device).unsqueeze(-1)


def _fitted(places: Tensor, widths: Numbers, wanted: Numbers) -> Tensor:
    # places: (..., sum of widths)  ->  (..., sum of wanted), each set cut or padded with 0
    if widths == wanted:
        return places
    parts = zip(places.split_with_sizes(widths, -1), wanted, strict=True)
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[-1])) for part, width in parts], -1)


def _first_places(rows: Tensor, mask: Tensor | None) -> Tensor | None:
    # rows: (..., W)  mask: (..., W)  ->  (..., W) True where a row stands for the first time; None if all do
    if mask is None and rows.ndim == 1 and rows.device.type == "cpu" and len(set(rows.tolist())) == len(rows):
        return None
    equal = rows[..., :, None] == rows[..., None, :]
    if mask is None:
        return ~equal.tril(-1).any(-1)
    return mask & ~(equal & mask[..., None, :]).tril(-1).any(-1)
