"""Where a model's rows come from: a table with a vocabulary, or an encoder that makes rows when words are asked for."""

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Table:
    """Rows of `vectors` (V, D) under the words of `vocab`; `members` has the rows of words that have several."""

    def __init__(self, vectors: Tensor, vocab: dict[str, int], members: dict[str, list[int]] | None = None) -> None:
        self.vectors = vectors
        self.vocab = vocab
        self.members = members or {}

    def __contains__(self, word: Any) -> bool:
        return isinstance(word, str) and word in self.vocab

    @property
    def vocabulary(self) -> Container[str]:
        """What words are looked up in."""
        return self.vocab

    def add(self, words: Iterable[str]) -> None:
        """Make rows for words that are in this table but have none yet; here all of them have."""

    def rows(self, word: str) -> Sequence[int]:
        return self.members[word] if word in self.members else (self.vocab[word],)

    def places(self, words: Sequence[str]) -> tuple[list[int], Sequence[int]]:
        """The rows of all these words, and which of the words each row belongs to."""
        if not self.members:
            return [self.vocab[word] for word in words], range(len(words))
        found = [(row, i) for i, word in enumerate(words) for row in self.rows(word)]
        return [row for row, _ in found], [i for _, i in found]

    def to(self, device: Any, dtype: torch.dtype | None) -> "Table":
        return Table(_moved(self.vectors, device, dtype), self.vocab, self.members)


class EncodedTable(Table):
    """Every word is in it: its templates, filled in, are encoded once and kept. "mean" adds a row for their mean."""

    def __init__(
        self,
        encode: Callable[[list[str]], Tensor],
        templates: Sequence[str],
        contexts: str,
        batch_size: int,
        device: Any,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(torch.empty(0, 0, device=device, dtype=dtype), {})
        self.options = (encode, templates, contexts, batch_size)
        self.device, self.dtype = device, dtype
        self.row_of: dict[str, int] = {}  # of an encoded string

    def __contains__(self, word: Any) -> bool:
        return isinstance(word, str)

    @property
    def vocabulary(self) -> Container[str]:
        return self

    @torch.no_grad()
    def add(self, words: Iterable[str]) -> None:
        encode, templates, contexts, batch_size = self.options
        words = [word for word in dict.fromkeys(words) if word not in self.vocab]
        contexts_of = {word: [template.replace("{}", word) for template in templates] for word in words}
        new = [s for s in dict.fromkeys(sum(contexts_of.values(), [])) if s not in self.row_of]
        for start in range(0, len(new), batch_size):
            strings = new[start : start + batch_size]
            self._append(self._checked(encode(strings), len(strings)))
            self.row_of.update(zip(strings, range(len(self.vectors) - len(strings), len(self.vectors)), strict=True))
        members = {word: [self.row_of[s] for s in strings] for word, strings in contexts_of.items()}
        if contexts == "mean" and words and len(templates) > 1:
            means = torch.stack([self.vectors[rows].mean(0) for rows in members.values()])
            members = {word: [len(self.vectors) + i] for i, word in enumerate(words)}
            self._append(means)
        self.vocab.update((word, rows[0]) for word, rows in members.items())
        self.members.update(members)

    def rows(self, word: str) -> Sequence[int]:
        self.add([word])
        return super().rows(word)

    def to(self, device: Any, dtype: torch.dtype | None) -> "EncodedTable":
        table = EncodedTable(*self.options, device or self.device, dtype or self.dtype)
        table.vectors = _moved(self.vectors, device, dtype)
        table.vocab, table.members, table.row_of = dict(self.vocab), dict(self.members), dict(self.row_of)
        return table

    def _checked(self, rows: Any, strings: int) -> Tensor:
        # rows: (strings, D), or an array, or a list of rows
        got = type(rows).__name__
        try:
            if isinstance(rows, list | tuple) and rows and all(isinstance(row, Tensor) for row in rows):
                rows = torch.stack(tuple(rows))
            elif not isinstance(rows, Tensor):
                rows = torch.from_numpy(np.array(rows))  # a copy, as torch shares no memory that is read-only
        except (TypeError, ValueError, RuntimeError):
            wanted = f"a tensor, an array or a list of {strings} rows of one length"
            raise TypeError(f"encode: got a {got} for {strings} strings, wanted {wanted}") from None
        dim = self.vectors.shape[1] if len(self.vectors) else "D"
        if rows.ndim != 2 or len(rows) != strings or dim not in ("D", rows.shape[1]):
            raise ValueError(
                f"encode: got the shape {tuple(rows.shape)} for {strings} strings, wanted ({strings}, {dim})"
            )
        if not rows.is_floating_point():
            raise TypeError(f"encode: got {rows.dtype}, wanted a floating dtype")
        return rows.to(device=self.device, dtype=self.dtype)

    def _append(self, rows: Tensor) -> None:
        self.vectors = torch.cat([self.vectors, rows]) if len(self.vectors) else rows.clone()


def _moved(vectors: Tensor, device: Any, dtype: torch.dtype | None) -> Tensor:
    """The tensor itself if nothing changes, else a copy that is no part of a graph."""
    if torch.device(device or vectors.device) == vectors.device and (dtype or vectors.dtype) == vectors.dtype:
        return vectors
    return vectors.detach().to(device=device, dtype=dtype)
