"""Rows read from the input embeddings of a language model whenever they are used."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.numbers.exact_sums import index_add
from ..sets import word_sets
from .formats.transformers import parameter_version
from .vocabulary import EncodedTable, RowTable

Bags = Callable[[Sequence[str]], list[list[int]]]  # strings -> the tokens averaged for the row of each


class InputTable(EncodedTable):
    """Table whose rows are means of a module's token vectors. Only token ids are stored, so rows follow training.

    `changes` are applied to all rows when they are read. Rows have gradients with respect to the module's parameters.
    """

    def __init__(self, bags: Bags, module: torch.nn.Module, *options: Any, **kwargs: Any) -> None:
        self.bags, self.module = bags, module
        self._state: object = None
        super().__init__(self._encode, *options, **kwargs)

    def _clear(self) -> None:
        RowTable.__init__(self, torch.empty(0, 0, dtype=torch.float32, device=self.device), {})
        self.row_of: dict[str, int] = {}
        self.token_ids: list[int] = []
        self.row_ids: list[int] = []  # of each token
        self.weights: list[float] = []  # of each token in its row

    @property
    def vectors(self) -> Tensor:  # type: ignore[override]
        # ->  (V, D)
        state = len(self.token_ids), self.changes, parameter_version(self.module)
        has_graph = torch.is_grad_enabled() and any(p.requires_grad for p in self.module.parameters())
        if has_graph or state != self._state:
            vectors = self._means(self.token_ids, self.row_ids, self.weights)
            for function in self.changes:
                vectors = function(word_sets.as_words(vectors, None).vectors).to(vectors.dtype)
            if has_graph:  # a graph can be used only once
                return vectors
            self._vectors, self._state = vectors, state
        return self._vectors

    @vectors.setter
    def vectors(self, vectors: Tensor) -> None:
        self._vectors, self._state = vectors, None

    def add(self, words: Iterable[str]) -> None:
        words = [word for word in dict.fromkeys(words) if word not in self.vocab]
        has_means = self.options[2] == "mean"
        strings_of = {word: self.strings_of(word) for word in words}
        # no string has a row of its own if words have means
        strings = [s for s in dict.fromkeys(itertools.chain.from_iterable(strings_of.values())) if s not in self.row_of]
        bags = dict(zip(strings, self.bags(strings) if strings else [], strict=True))
        if has_means:
            for word, word_strings in strings_of.items():
                weighted = [(token, 1 / len(bags[s]) / len(word_strings)) for s in word_strings for token in bags[s]]
                self.members[word] = [self._append_row(weighted)]
        else:
            for string, bag in bags.items():
                self.row_of[string] = self._append_row([(token, 1 / len(bag)) for token in bag])
            self.members.update(
                {word: [self.row_of[s] for s in word_strings] for word, word_strings in strings_of.items()}
            )
        self.vocab.update((word, self.members[word][0]) for word in words)

    def change(self, function: Callable[[Tensor], Tensor]) -> None:
        self.changes += (function,)

    def refresh(self) -> None:
        pass  # rows are never stored

    def writable(self) -> Tensor:
        raise ValueError(
            "model: got one by layer='input', whose rows are read from the language model; write copy=True, or to "
            "model.get_input_embeddings()"
        )

    @torch.no_grad()
    def copied(self) -> EncodedTable:
        """Return a table whose rows no longer follow the module."""
        return self.stored(self.vectors.detach().clone())

    @torch.no_grad()
    def to(self, device: Any, dtype: torch.dtype | None) -> EncodedTable:
        if device is None and dtype is None:
            return self
        return self.stored(self.vectors.detach().to(device=device, dtype=dtype, copy=True), device, dtype)

    def equals(self, other: RowTable) -> bool:
        return isinstance(other, InputTable) and self.module is other.module and super().equals(other)

    def _append_row(self, weighted: Sequence[tuple[int, float]]) -> int:
        row = self.row_ids[-1] + 1 if self.row_ids else 0
        self.token_ids += [token for token, _ in weighted]
        self.weights += [weight for _, weight in weighted]
        self.row_ids += [row] * len(weighted)
        return row

    @torch.no_grad()
    def _encode(self, strings: Sequence[str]) -> Tensor:
        # ->  (len(strings), D)
        bags = self.bags(strings)
        columns = [(token, i, 1 / len(bag)) for i, bag in enumerate(bags) for token in bag]
        return self._means(*zip(*columns, strict=True))

    def _means(self, token_ids: Sequence[int], row_ids: Sequence[int], weights: Sequence[float]) -> Tensor:
        # (N,) each  ->  (V, D)
        if not token_ids:
            return torch.empty(0, 0, dtype=torch.float32, device=self.device)
        ids = torch.tensor(token_ids, dtype=torch.int64, device=self.device)
        rows = torch.tensor(row_ids, dtype=torch.int64, device=self.device)
        scale = torch.tensor(weights, dtype=torch.float64, device="cpu").to(self.device)
        states = self.module(ids[None])[0]
        sums = states.new_zeros(row_ids[-1] + 1, states.shape[1], dtype=torch.float64)
        return index_add(sums, 0, rows, states.double() * scale.unsqueeze(-1)).to(states.dtype)
