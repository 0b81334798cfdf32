"""Sources of a model's rows: a table with a vocabulary, or an encoder that computes rows on demand."""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.progress import progress_bar
from ..sets import word_sets
from .query import check_words

Encode = Callable[[list[str]], "Tensor | np.ndarray | Sequence[Any]"]
Change = Callable[[Tensor], Tensor]  # (n, D) float64  ->  (n, D), each row independently
CHUNK = 2**24  # elements converted to float64 at a time
MAX_ROWS = 10_000  # largest number of row tuples of a tuple of words


class RowTable:
    """Rows of `vectors` (V, D) for the words of `vocab`; `members` has the rows of words with several rows."""

    on_demand = False

    def __init__(self, vectors: Tensor, vocab: dict[str, int], members: dict[str, list[int]] | None = None) -> None:
        self.vectors = vectors
        self.vocab = vocab
        self.members = members or {}

    def __len__(self) -> int:
        return len(self.vocab)

    def __contains__(self, word: Any) -> bool:
        return isinstance(word, str) and word in self.vocab

    @property
    def vocabulary(self) -> Container[str]:
        """Container in which words are looked up."""
        return self.vocab

    def add(self, words: Iterable[str]) -> None:
        """Compute the rows of words that have none yet; in this class all words have rows."""

    @property
    def has_several_rows(self) -> bool:
        """Whether a word may have more than one row."""
        return any(len(rows) > 1 for rows in self.members.values())

    @torch.no_grad()
    def change(self, function: Change) -> None:
        """Rewrite all rows in place, and rows that are computed later."""
        rewrite(self.vectors, torch.arange(len(self.vectors), device=self.vectors.device), function)

    def copied(self) -> "RowTable":
        """Return a table with a copy of the rows."""
        return RowTable(self.vectors.detach().clone(), dict(self.vocab), dict(self.members))

    def refresh(self) -> None:
        """Compute the rows again; in this class they are stored, so nothing is computed."""

    def equals(self, other: "RowTable") -> bool:
        a, b = self.vectors, other.vectors
        if (type(self), self.vocab) != (type(other), other.vocab):
            return False
        return (a.device, a.dtype) == (b.device, b.dtype) and torch.equal(a, b)

    def writable(self) -> Tensor:
        # ->  (V, D)
        """Return the rows to write into."""
        return self.vectors

    def rows(self, word: str) -> Sequence[int]:
        return self.members[word] if word in self.members else (self.vocab[word],)

    def indexed_rows(self, words: Sequence[str]) -> tuple[list[int], Sequence[int]]:
        """Return the rows of all words, and the index of the word of each row."""
        if not self.members:
            return [self.vocab[word] for word in words], range(len(words))
        pairs = [(row, i) for i, word in enumerate(words) for row in self.rows(word)]
        return [row for row, _ in pairs], [i for _, i in pairs]

    def to(self, device: Any, dtype: torch.dtype | None) -> "RowTable":
        return RowTable(_moved(self.vectors, device, dtype), self.vocab, self.members)


class EncodedTable(RowTable):
    """Table that encodes templates filled in with a word once and stores the rows; "mean" adds a row for their mean.

    It contains every word, or the words that `can_encode` accepts; `words` are the words that the source lists. `mark`
    is how a word is written in a template; with `sentences` each word has its own texts instead. `changes` have been
    applied to all rows and are applied to new rows; some words may have additional rows (`has_custom_rows`), which
    cannot be computed again.
    """

    on_demand = True

    def __init__(
        self,
        encode: Encode,
        templates: Sequence[str],
        contexts: str,
        batch_size: int,
        device: Any,
        dtype: torch.dtype | None = None,
        can_encode: Callable[[str], bool] = lambda word: True,
        mark: str = "{}",
        words: Sized | None = None,
        sentences: Mapping[str, list[str]] | None = None,
    ) -> None:
        checks.check_choice("contexts", contexts, ("all", "mean"))
        batch_size = checks.check_int("batch_size", batch_size, 1)
        if isinstance(templates, str) or not templates:
            raise TypeError(f"templates: got {templates!r}, wanted a list of str such as ['This is {{}}.']")
        for template in templates:
            if "{}" not in template:
                raise ValueError(f"templates: got {template!r}, wanted a str with {{}} in the place of the word")
        self.options = (encode, tuple(templates), contexts, batch_size)
        self.can_encode, self.mark, self.words, self.sentences = can_encode, mark, words, sentences
        self.device, self.dtype = device, dtype
        self.changes: tuple[Change, ...] = ()
        self.has_custom_rows = False
        self._clear()

    def _clear(self) -> None:
        super().__init__(torch.empty(0, 0, device=self.device, dtype=self.dtype), {})
        self.row_of: dict[str, int] = {}  # encoded string -> row

    @property
    def vectors(self) -> Tensor:  # type: ignore[override]
        # ->  (V, D)
        return self._store[: self._count]

    @vectors.setter
    def vectors(self, vectors: Tensor) -> None:
        self._store, self._count = vectors, len(vectors)

    def strings_of(self, word: str) -> list[str]:
        """Return the strings to encode for a word."""
        if self.sentences is not None:
            return self.sentences[word]
        _, templates, _, _ = self.options
        return [template.replace("{}", self.mark.replace("{}", word)) for template in templates]

    def __len__(self) -> int:
        return len(self.vocab) if self.words is None else len(self.words)

    def __contains__(self, word: Any) -> bool:
        return isinstance(word, str) and (word in self.vocab or self.can_encode(word))

    @property
    def vocabulary(self) -> Container[str]:
        return self

    @property
    def has_several_rows(self) -> bool:
        _, templates, contexts, _ = self.options
        return contexts == "all" and (len(templates) > 1 or self.sentences is not None)

    @torch.no_grad()
    def add(self, words: Iterable[str]) -> None:
        words = [word for word in dict.fromkeys(words) if word not in self.vocab]
        if not words:
            return
        first = self._count
        try:
            rows, members = self._encoded(words)
            for function in self.changes:
                rewrite(self.vectors, torch.arange(first, self._count, device=self.vectors.device), function)
        except BaseException:
            self._count = first  # some of the new rows would lack the changes
            raise
        self.row_of.update(rows)
        self.vocab.update((word, rows_of_word[0]) for word, rows_of_word in members.items())
        self.members.update(members)

    def _encoded(self, words: list[str]) -> tuple[dict[str, int], dict[str, list[int]]]:
        """Append the rows of new words; return the row of each new string and the rows of each word."""
        encode, templates, contexts, batch_size = self.options
        strings_of = {word: self.strings_of(word) for word in words}
        has_means = contexts == "mean" and len(templates) > 1
        known_rows = {} if has_means and self.changes else self.row_of  # a mean is over rows before their changes
        new = [s for s in dict.fromkeys(itertools.chain.from_iterable(strings_of.values())) if s not in known_rows]
        needed = self._count + len(new) + has_means * len(words)
        rows: dict[str, int] = {}  # new string -> row
        with progress_bar(len(new), "text", description="encode", transient=True) as progress:
            for start in range(0, len(new), batch_size):
                strings = new[start : start + batch_size]
                self._append(self._checked(_encode(encode, strings), len(strings)), needed)
                rows.update(zip(strings, range(self._count - len(strings), self._count), strict=True))
                progress.advance(len(strings))
        members = {
            word: [rows[s] if s in rows else self.row_of[s] for s in strings] for word, strings in strings_of.items()
        }
        if has_means:
            means = torch.stack([self.vectors[rows_of_word].mean(0) for rows_of_word in members.values()])
            members = {word: [self._count + i] for i, word in enumerate(words)}
            self._append(means, needed)
        return rows, members

    def rows(self, word: str) -> Sequence[int]:
        self.add([word])
        return super().rows(word)

    def change(self, function: Change) -> None:
        super().change(function)
        self.changes += (function,)

    def copied(self) -> "EncodedTable":
        return self.stored(self.vectors.clone())

    def refresh(self) -> None:
        if self.has_custom_rows:
            raise ValueError(
                "refresh: got a debiased model, wanted the one before; refresh it, fit and transform again"
            )
        words = list(self.vocab)
        self._clear()
        self.add(words)

    def equals(self, other: RowTable) -> bool:
        # Tables are equal if all rows that they will ever compute are equal, whatever was computed so far.
        if not isinstance(other, EncodedTable):
            return False
        names = "options", "can_encode", "mark", "sentences", "changes", "device", "dtype"
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def to(self, device: Any, dtype: torch.dtype | None) -> "EncodedTable":
        return self.stored(_moved(self.vectors, device, dtype), device, dtype)

    def stored(self, vectors: Tensor, device: Any = None, dtype: torch.dtype | None = None) -> "EncodedTable":
        """Return a table that holds these rows and encodes others on the same or another device, in the dtype."""
        table = EncodedTable.__new__(EncodedTable)
        vars(table).update(vars(self), device=device or self.device, dtype=dtype or self.dtype)
        table.vocab, table.members, table.row_of = dict(self.vocab), dict(self.members), dict(self.row_of)
        table.vectors = vectors
        return table

    def _checked(self, rows: Any, num_strings: int) -> Tensor:
        # rows: (strings, D), or an array, or a list of rows
        got = type(rows).__name__
        try:
            if isinstance(rows, list | tuple) and rows and all(isinstance(row, Tensor) for row in rows):
                rows = torch.stack(tuple(rows))
            elif not isinstance(rows, Tensor):
                rows = torch.from_numpy(np.array(rows))  # a copy, because torch does not share read-only memory
        except (TypeError, ValueError, RuntimeError):
            expected = f"a tensor, an array or a list of {num_strings} rows of one length"
            raise TypeError(f"encode: got a {got} for {num_strings} strings, wanted {expected}") from None
        dim = self.vectors.shape[1] if len(self.vectors) else "D"
        if rows.ndim != 2 or len(rows) != num_strings or dim not in ("D", rows.shape[1]):
            raise ValueError(
                f"encode: got the shape {tuple(rows.shape)} for {num_strings} strings, wanted ({num_strings}, {dim})"
            )
        if not rows.is_floating_point():
            raise TypeError(f"encode: got {rows.dtype}, wanted a floating dtype")
        return rows.to(device=self.device, dtype=self.dtype)

    def _append(self, rows: Tensor, needed: int) -> None:
        # needed: total number of rows to reserve
        count = self._count
        dtype = torch.promote_types(self._store.dtype, rows.dtype) if count else rows.dtype
        if not count:
            self._store = rows.new_empty(needed, rows.shape[1])
        elif needed > len(self._store) or dtype != self._store.dtype:
            size = max(needed, 2 * len(self._store)) if needed > len(self._store) else len(self._store)
            store = self._store.new_empty(size, rows.shape[1], dtype=dtype)
            store[:count] = self.vectors
            self._store = store
        self._store[count : count + len(rows)] = rows
        self._count = count + len(rows)


def _encode(encode: Encode, strings: list[str]) -> Any:
    """Call the encoder; raise a ValueError that names the strings if it cannot encode them."""
    try:
        return encode(strings)
    except (ArithmeticError, LookupError, OSError, RuntimeError) as error:  # other errors are bugs of the encoder
        got = f"{type(error).__name__} ({str(error):.200})"
        raise ValueError(f"encode: got {got} for the strings {str(strings):.80}, wanted vectors") from error


def chunks(table: Tensor, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    # table: (V, D)  rows: (R,)  ->  pairs of (r,), (r, D) float64
    for chunk in rows.split(max(1, CHUNK // max(table.shape[1], 1))):
        yield chunk, word_sets.as_words(table[chunk], None).vectors


def rewrite(table: Tensor, rows: Tensor, function: Change) -> None:
    # table: (V, D), in place  rows: (R,)
    for chunk, vectors in chunks(table, rows):
        table[chunk] = function(vectors).to(table.dtype)


def table_of_contexts(contexts: Mapping[str, Tensor]) -> RowTable:
    # contexts: per word (K, D)
    if not contexts:
        raise ValueError("contexts: got no word, wanted at least one")
    pools = [checked_vectors(f"contexts[{word!r}]", pool) for word, pool in contexts.items()]
    for word, pool in zip(contexts, pools, strict=True):
        checks.shape(f"contexts[{word!r}]", pool, "K", pools[0].shape[1])
    ends = np.cumsum([len(pool) for pool in pools]).tolist()
    rows = [list(range(end - len(pool), end)) for pool, end in zip(pools, ends, strict=True)]
    if empty := [word for word, members in zip(contexts, rows, strict=True) if not members]:
        raise ValueError(f"contexts: got no vector for {empty}, wanted at least one each")
    vocabulary_of(list(contexts), len(contexts))  # the words are str
    members = dict(zip(contexts, rows, strict=True))
    return RowTable(torch.cat(pools), {word: rows[0] for word, rows in members.items()}, members)


def _moved(vectors: Tensor, device: Any, dtype: torch.dtype | None) -> Tensor:
    """Return the tensor itself if nothing changes, else a detached copy."""
    moved = vectors.to(device=device, dtype=dtype)
    return vectors if moved is vectors else moved.detach()


def table_of(wv: Any) -> RowTable:
    vectors = getattr(wv, "vectors", None)
    attributes = ("key_to_index", "index_to_key", "vocab")
    # gensim 4 raises on access to `vocab`, so the first existing attribute is used.
    attribute = next((name for name in attributes if hasattr(wv, name)), None)
    if not isinstance(vectors, np.ndarray | Tensor) or attribute is None:
        raise TypeError(
            f"wv: got a {type(wv).__name__}, wanted an object with vectors (an array or tensor) and one of "
            f"{', '.join(attributes)}; or write WordEmbeddingModel.from_tensor, from_word2vec, from_encoder or another "
            "of its from_..."
        )
    entries = getattr(wv, attribute)
    rows = None
    if attribute != "index_to_key":
        rows = list(entries.values()) if attribute == "key_to_index" else [entry.index for entry in entries.values()]
    vectors = vectors if isinstance(vectors, Tensor) else from_array("wv.vectors", vectors)
    vectors = checked_vectors("wv.vectors", vectors)
    return RowTable(vectors, vocabulary_of(list(entries), len(vectors), rows))


def checked_vectors(argument: str, vectors: Any) -> Tensor:
    # -> (V, D) floating, the same tensor
    if not isinstance(vectors, Tensor):
        raise TypeError(f"{argument}: got a {type(vectors).__name__}, wanted a tensor")
    checks.shape(argument, vectors, "V", "D")
    if not vectors.is_floating_point():
        raise TypeError(f"{argument}: got {vectors.dtype}, wanted a floating dtype; write {argument}.float()")
    return vectors


def from_array(argument: str, array: Any, variable: str | None = None) -> Tensor:
    # The memory is shared unless torch cannot: it has no read-only tensors, negative strides or swapped bytes.
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{argument}: got a {type(array).__name__}, wanted an array")
    if array.dtype.kind != "f":
        advice = f"write {variable or argument}.astype('float32')"
        raise TypeError(f"{argument}: got {array.dtype}, wanted a floating dtype; {advice}")
    if not array.flags.writeable or not array.dtype.isnative or any(stride < 0 for stride in array.strides):
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array)


def rows_of(argument: str, rows: Any, num_rows: int) -> Tensor:
    # -> (num_rows, D), unchecked for tensors and arrays
    if isinstance(rows, Tensor):
        return rows
    if isinstance(rows, np.ndarray):
        return from_array(argument, rows)
    if not isinstance(rows, list | tuple):
        raise TypeError(f"{argument}: got a {type(rows).__name__}, wanted an array, a tensor or a list of these")
    rows = [row if isinstance(row, Tensor) else from_array(f"{argument}[{i}]", row) for i, row in enumerate(rows)]
    if len(rows) != num_rows or len({row.shape for row in rows}) != 1:
        raise ValueError(
            f"{argument}: got rows of the shapes {[tuple(row.shape) for row in rows]} for {num_rows} words"
        )
    dtype = functools.reduce(torch.promote_types, (row.dtype for row in rows))
    return torch.stack([row.to(dtype) for row in rows])


def vocabulary_of(words: Any, rows: int, row_of: Sequence[int] | None = None) -> dict[str, int]:
    """Return word -> row; by default rows are in the order of the words."""
    words = list(check_words("words", words))
    if len(words) != rows:
        raise ValueError(f"words: got {len(words)} words for {rows} rows of vectors, wanted one for each")
    vocab = dict(zip(words, range(rows) if row_of is None else map(int, row_of), strict=True))
    if len(vocab) < rows:
        raise ValueError(f"words: got {repeated_words(words)} more than once, wanted distinct words")
    if out_of_range := [word for word, row in vocab.items() if not 0 <= row < rows][:1]:
        raise ValueError(f"words: {out_of_range[0]!r} has the row {vocab[out_of_range[0]]}, wanted 0 to {rows - 1}")
    return vocab


def repeated_words(words: Sequence[str]) -> list[str]:
    """Return the first few words that occur more than once."""
    return [word for word, count in Counter(words).items() if count > 1][:5]


def indexed_rows_of_tuples(sets: list[list[str]], table: RowTable) -> list[tuple[list[int], Sequence[int]]]:
    """Return `RowTable.indexed_rows` of sets in which the words at one position form a tuple, and so do their rows.

    Rows form tuples in order; a word with fewer rows repeats them, so that all rows of a word are used equally often.
    """
    if not table.members:
        return [table.indexed_rows(words) for words in sets]
    indexed_rows: list[tuple[list[int], list[int]]] = [([], []) for _ in sets]
    for i, words in enumerate(zip(*sets, strict=True)):
        word_rows = [table.rows(word) for word in words]
        num_rows = math.lcm(*map(len, word_rows))
        if num_rows > max(MAX_ROWS, *map(len, word_rows)):
            counts = [len(rows) for rows in word_rows]
            raise ValueError(
                f"query: {words} have {counts} vectors, which form {num_rows} tuples; wanted equal numbers"
            )
        for (rows, word_indices), new_rows in zip(indexed_rows, word_rows, strict=True):
            rows += [*new_rows] * (num_rows // len(new_rows))
            word_indices += [i] * num_rows
    return list(indexed_rows)
