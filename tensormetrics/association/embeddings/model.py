"""`WordEmbeddingModel`: a table of vectors on one device with the words of its rows."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.arguments import checks
from ..sets import word_sets
from .formats.arrays import npz_table, safetensors_table
from .formats.fasttext import FastText
from .formats.transformers import Transformer, model_name
from .formats.word2vec import Word2VecOptions, read_word2vec
from .layer_tables import TransformerOptions, tables_of_transformer
from .lookup import UNCHANGED, PreprocessorArgs, Strategy, WordSearch, check_threshold, look_up
from .query import IndexedQuery, Query, check_query, check_words
from .vocabulary import (
    Encode,
    EncodedTable,
    RowTable,
    checked_vectors,
    from_array,
    indexed_rows_of_tuples,
    repeated_words,
    rows_of,
    table_of,
    table_of_contexts,
    vocabulary_of,
)

OF_NUMPY = torch.float16, torch.float32, torch.float64


class WordEmbeddingModel:
    """Table of vectors (V, D) and its vocabulary. Not a module: the table may be a parameter of another module.

    Other sources: `from_tensor`, `from_numpy`, `from_word2vec` (and GloVe), `from_fasttext`, `from_npz`,
    `from_safetensors`, `from_transformers`, `from_encoder`, `from_contexts`.

    Args:
        wv: Object with `vectors` (2-d array or tensor) and one of `key_to_index`, `index_to_key`, `vocab`, such as
            gensim's KeyedVectors, or another model; memory is shared unless `device` or `dtype` requires a copy.
        name: Name of the model in tables and messages.
        vocab_prefix: Text before every word that is looked up.
        device: Device of the table.
        dtype: Floating dtype of the table.

    Raises:
        TypeError: If `wv` is no such object.
        ValueError: If the vocabulary does not fit the table.

    >>> model = WordEmbeddingModel.from_tensor(torch.eye(3), ["he", "she", "work"])
    >>> "she" in model, model.rows("she")
    (True, tensor([1]))
    >>> index = model.index_query(Query([["he"], ["she"]], [["work"]]))  # once, for any number of scores
    >>> [tuple(words.shape) for words in index.sets(model.vectors)]
    [(1, 3), (1, 3), (1, 3)]
    """

    def __init__(
        self,
        wv: Any,
        name: str | None = None,
        vocab_prefix: str | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        for argument, value in ("name", name), ("vocab_prefix", vocab_prefix):
            if not isinstance(value, str | None):
                raise TypeError(f"{argument}: got a {type(value).__name__}, wanted a str or None")
        table: RowTable = (
            wv if isinstance(wv, RowTable) else wv._table if isinstance(wv, WordEmbeddingModel) else table_of(wv)
        )
        self._table: RowTable = table.to(device, dtype) if device or dtype else table
        self.wv = None if isinstance(wv, RowTable) else wv
        self.name = "Unnamed model" if name is None else name
        self.vocab_prefix = vocab_prefix

    @classmethod
    def from_tensor(
        cls, vectors: Tensor, words: Sequence[str], name: str | None = None, vocab_prefix: str | None = None
    ) -> "WordEmbeddingModel":
        # vectors: (V, D)
        """Create a model that shares the tensor, also a Parameter, so that it follows training."""
        return cls(
            RowTable(checked_vectors("vectors", vectors), vocabulary_of(words, len(vectors))), name, vocab_prefix
        )

    @classmethod
    def from_numpy(
        cls, array: np.ndarray, words: Sequence[str], name: str | None = None, vocab_prefix: str | None = None
    ) -> "WordEmbeddingModel":
        # array: (V, D), shared if it can be written to
        return cls.from_tensor(from_array("array", array), words, name, vocab_prefix)

    @classmethod
    def from_word2vec(
        cls,
        path: str | PathLike,
        binary: bool | None = None,
        name: str | None = None,
        vocab_prefix: str | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[Word2VecOptions],
    ) -> "WordEmbeddingModel":
        """Read a word2vec or GloVe file, also in a .gz or .zip.

        `binary` is detected by default. Options: `limit` keeps the first rows; `only` keeps these words; `member` names
        the file in a .zip with several; `no_header=True` is for text without a first line of two sizes, which is
        detected by default; `encoding="utf-8"` and `errors="strict"` decode the words. The first row of a repeated word
        counts.
        """
        words, vectors = read_word2vec(path, binary, **options)
        table = RowTable(torch.from_numpy(vectors), vocabulary_of(words, len(vectors)))
        stem = Path(options.get("member") or path).name.removesuffix(".gz")
        return cls(table, Path(stem).stem if name is None else name, vocab_prefix, device=device, dtype=dtype)

    @classmethod
    def from_fasttext(
        cls, path: str | PathLike, name: str | None = None, *, device: torch.device | str | None = None
    ) -> "WordEmbeddingModel":
        """Read a fastText .bin file: unknown words get the mean vector of their subwords. Rows are read on demand."""
        model = FastText(path)
        table = EncodedTable(
            model.encode, ("{}",), "all", 2**14, device, can_encode=model.__contains__, words=model.words
        )
        return cls(table, Path(path).stem if name is None else name)

    @classmethod
    def from_npz(
        cls, path: str | PathLike, words: Any = None, *, vectors: str | None = None, name: str | None = None
    ) -> "WordEmbeddingModel":
        """Read a .npz file: the array `vectors` (V, D), by default the only one with two dimensions.

        `words`: V str, a text file with one word per line, or .json with a list or word -> row; default: the file's
        only array of str.
        """
        table, words = npz_table(path, words, vectors)
        return cls.from_tensor(table, words, Path(path).stem if name is None else name)

    @classmethod
    def from_safetensors(
        cls, path: str | PathLike, words: Any, *, tensor: str | None = None, name: str | None = None
    ) -> "WordEmbeddingModel":
        """Read the `tensor` (V, D) of a .safetensors file, by default its only one with two dimensions.

        `words` as in `from_npz`. ImportError without safetensors.
        """
        table, words = safetensors_table(path, words, tensor)
        return cls.from_tensor(table, words, Path(path).stem if name is None else name)

    @overload
    @classmethod
    def from_transformers(
        cls, model: Any, tokenizer: Any, *, layer: int | Literal["input"] = ..., **options: Unpack[TransformerOptions]
    ) -> "WordEmbeddingModel": ...

    @overload
    @classmethod
    def from_transformers(
        cls, model: Any, tokenizer: Any, *, layer: Sequence[Any], **options: Unpack[TransformerOptions]
    ) -> "list[WordEmbeddingModel]": ...

    @classmethod
    def from_transformers(
        cls,
        model: Any,
        tokenizer: Any,
        *,
        layer: Any = "input",
        templates: Sequence[str] = ("{}",),
        contexts: Any = "all",
        pool: str = "word",
        batch_size: int = 64,
        max_length: int | None = None,
        name: str | None = None,
    ) -> Any:
        """Create a model from a language model of the transformers library (the encoder of an encoder-decoder).

        A vector is the mean over the tokens of the word (`pool`; or all that are not special, or the first or last
        token) in a text. Texts are `templates` as in `from_encoder`; write " {}" for tokenizers such as GPT-2's, in
        which a word within a text begins with a space. Words with only unknown tokens are lost. Slow tokenizers are
        supported if the tokens of a prefix of a text are the first tokens of the text.

        Args:
            model: The model, as of `AutoModel.from_pretrained`, in evaluation mode, on any device and in any dtype.
            tokenizer: Its tokenizer.
            layer: ``"input"``: the input embeddings by reference, so that training is seen and rows have gradients. A
                number: hidden states, 0 before the first layer, -1 after the last; they are stored, so write
                ``.refresh()`` after training. A list, such as ``[0, 6, -1]`` or ``[0, ..., -1]`` for all: a list of
                models, one for each layer, which share forward passes; `run_queries` makes a table of them,
                which draws itself.
            templates: Texts with a "{}" for the word.
            contexts: ``"all"`` or ``"mean"`` of the templates as in `from_encoder`. Or the sentences of each word,
                which then has one vector per sentence: ``{"nurse": ["The nurse left.", "Nurses know."]}``. The word is
                searched unchanged, in other case, and with a regular English ending; for other forms write
                ``("Women vote.", "Women")`` or ``("Women vote.", (0, 5))``, its span.
            pool: Tokens to average.
            batch_size: Texts in a forward pass; texts of similar lengths go together.
            max_length: Largest number of tokens of a text, by default the limit of the model. Of longer texts a window
                around the word is used.
            name: Default: the name the model was loaded by, or its class.

        Example:
            ::

                WordEmbeddingModel.from_transformers(bert, tokenizer, layer=-1, templates=["This is {}.", "I see {}."])
                WordEmbeddingModel.from_transformers(bert, tokenizer, layer=-1, contexts={"she": ["Was she there?"]})
        """
        transformer = Transformer(model, tokenizer, pool, batch_size, max_length)
        name = model_name(model) if name is None else name
        tables = tables_of_transformer(transformer, layer, templates, contexts)
        if isinstance(layer, int | str):
            return cls(tables[layer], name)
        return [cls(table, f"{name}, layer {i}") for i, table in tables.items()]

    @classmethod
    def from_encoder(
        cls,
        encode: Encode,
        *,
        templates: Sequence[str] = ("{}",),
        contexts: str = "all",
        batch_size: int = 256,
        name: str | None = None,
        device: torch.device | str | None = None,
    ) -> "WordEmbeddingModel":
        """Create a model that contains every word and computes its vectors on demand.

        `encode` gets lists of at most `batch_size` strings, each string once, and returns (n, D): a tensor, an array or
        a list of rows, as the `encode` of a SentenceTransformer does.

        Each template has a "{}" for the word. "all" makes every filled-in template a row of the word, and the scores of
        its rows are averaged (in metrics with `unit="row"` each row counts: with WEAT that is SEAT, May et al. 2019,
        doi:10.18653/v1/N19-1063); "mean" uses their mean as the word's vector.
        """
        return cls(EncodedTable(encode, templates, contexts, batch_size, device), name)

    @classmethod
    def from_contexts(
        cls, contexts: Mapping[str, Tensor], name: str | None = None, vocab_prefix: str | None = None
    ) -> "WordEmbeddingModel":
        # contexts: per word (K, D)
        """Create a model with one vector per word and context: the pools of CEAT; other metrics average per word."""
        return cls(table_of_contexts(contexts), name, vocab_prefix)

    @property
    def vectors(self) -> Tensor:
        # -> (V, D)
        return self._table.vectors

    @property
    def vocab(self) -> dict[str, int]:
        """Mapping of words to their (first) row of `vectors`; only computed words if rows are computed on demand."""
        return self._table.vocab

    @property
    def model_name(self) -> str:
        return self.name

    def __contains__(self, word: Any) -> bool:
        return word in self._table

    def __len__(self) -> int:
        """Return the number of words; for rows on demand, of the words that the source lists, or of computed words."""
        return len(self._table)

    def __getitem__(self, word: str) -> np.ndarray:
        """Return the vector (D,) on the host; the mean if a word has several vectors."""
        return self.arrays([word])[word]

    def get(self, word: str, default: Any = None) -> Any:
        return self[word] if word in self else default

    def rows(self, word: str) -> Tensor:
        # -> (K,) int64
        """Return the rows of a word in `vectors`, on the device. Read `vectors` afterwards: rows may be new."""
        self._require([word])
        return torch.tensor(self._table.rows(word), device=self.vectors.device)

    def arrays(self, words: Iterable[str], normalize: bool = False) -> dict[str, np.ndarray]:
        """Return word -> vector (D,) in the table's dtype, or float32 if numpy lacks it, in one transfer."""
        words = list(words)
        self._require(words)
        self._table.add(words)
        rows = [self._table.rows(word) for word in words]
        vectors = self.vectors.detach()[torch.tensor(sum(map(list, rows), []), dtype=torch.int64, device="cpu")].cpu()
        vectors = vectors if vectors.dtype in OF_NUMPY else vectors.float()
        parts = [
            part.mean(0) if len(part) > 1 else part[0] for part in vectors.split([len(word_rows) for word_rows in rows])
        ]
        arrays = [part.numpy() for part in parts]
        if normalize:
            arrays = [array / (np.linalg.norm(array) or 1) for array in arrays]
        return dict(zip(words, arrays, strict=True))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "WordEmbeddingModel":
        """Return a model of the same name on another device or dtype; the table is shared if nothing changes."""
        moved = type(self)(self._table.to(device, dtype), self.name, self.vocab_prefix)
        moved.wv = self.wv
        return moved

    def normalize(self) -> None:
        """Divide every row by its L2 norm, in place, also rows that are computed later; zero rows stay."""
        self._table.change(word_sets.unit)

    def refresh(self) -> None:
        """Compute the rows of an encoder again, for example after training; a normalized model stays normalized.

        Rows that `update` wrote are overwritten, too. For a stored table nothing is computed. ValueError for a debiased
        model, because its directions were computed from the previous rows.

        >>> scale = [1.0]
        >>> model = WordEmbeddingModel.from_encoder(lambda words: torch.ones(len(words), 2) * scale[0])
        >>> model["rose"]
        array([1., 1.], dtype=float32)
        >>> scale[0] = 2.0
        >>> model.refresh()
        >>> model["rose"]
        array([2., 2.], dtype=float32)
        """
        self._table.refresh()

    def update(self, word: str, embedding: np.ndarray | Tensor) -> None:
        """Write the row of a word in place.

        Shapes: embedding: (D,).
        """
        if not isinstance(embedding, np.ndarray | Tensor):
            raise TypeError(f"embedding: got a {type(embedding).__name__}, wanted an array or a tensor")
        self.batch_update([word], embedding[None])

    @torch.no_grad()
    def batch_update(
        self, words: Sequence[str], embeddings: np.ndarray | Tensor | Sequence[np.ndarray | Tensor]
    ) -> None:
        """Write the rows of distinct words in place; no row is written if an argument is invalid.

        Shapes: embeddings: (len(words), D), or a list of (D,).
        """
        words = list(check_words("words", words))
        if unknown := [word for word in words if word not in self]:
            raise ValueError(f"words: {unknown[:5]} are not in the vocabulary of the model {self.name!r}")
        vectors = rows_of("embeddings", embeddings, len(words))
        if repeated := repeated_words(words):
            raise ValueError(f"words: got {repeated} more than once, wanted distinct words")
        if several := [word for word in words if len(self._table.rows(word)) > 1]:
            raise ValueError(
                f"words: {several} have several vectors in the model {self.name!r}; write to model.vectors"
            )
        checks.shape("embeddings", vectors, len(words), self.vectors.shape[1])
        if not vectors.is_floating_point() or torch.promote_types(vectors.dtype, self.vectors.dtype) != (
            dtype := self.vectors.dtype
        ):
            raise ValueError(
                f"embeddings: got {vectors.dtype}, which {dtype} of the model {self.name!r} cannot hold without "
                "loss; convert them first"
            )
        table = self._table.writable()
        table[[self.vocab[word] for word in words]] = vectors.to(table)

    def index_query(
        self,
        query: Query,
        *,
        lost_vocabulary_threshold: float = 0.2,
        preprocessors: list[PreprocessorArgs] = UNCHANGED,
        strategy: Strategy = "first",
        paired: bool = False,
        warn_not_found_words: bool = False,
    ) -> IndexedQuery:
        """Look up a query's words once for any number of scores; rows are on the model's device.

        Every distinct word of a set is looked up after each of `preprocessors` (default: unchanged); "first" uses the
        first form in the vocabulary, "all" uses every form. A word without a form in the vocabulary is lost. A set that
        lost a larger fraction of its words than the threshold, or all, makes the query unusable: it has a `reason`, and
        every score is NaN. `paired` aligns the target sets by position (the attribute sets, if there is one target
        set): tuples with a lost word are dropped, the fraction is that of tuples, and unequal lengths are a ValueError.
        """
        check_query(query)
        check_threshold(lost_vocabulary_threshold)
        checks.check_flag("paired", paired)
        checks.check_flag("warn_not_found_words", warn_not_found_words)
        search = self.search(preprocessors, strategy)
        matches, reason = look_up(query, search, self.name, lost_vocabulary_threshold, paired, warn_not_found_words)
        if not reason:
            self._table.add(key for sets in matches for match in sets for key in match.keys)
        rows = [[self._table.indexed_rows([] if reason else match.keys) for match in sets] for sets in matches]
        if paired and not reason:
            aligned = 0 if len(matches[0]) > 1 else 1
            rows[aligned] = indexed_rows_of_tuples([match.keys for match in matches[aligned]], self._table)
        return IndexedQuery.of(query, rows, matches, reason, self.vectors.device)

    def search(self, preprocessors: list[PreprocessorArgs], strategy: Strategy) -> WordSearch:
        """Return the lookup in this model's vocabulary; options as in `index_query`."""
        return WordSearch(self._table.vocabulary, self.vocab_prefix, preprocessors, strategy)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WordEmbeddingModel):
            return NotImplemented
        if (self.name, self.vocab_prefix or "") != (other.name, other.vocab_prefix or ""):
            return False
        return self._table.equals(other._table)

    def __repr__(self) -> str:
        name = "'Unnamed model'" if self.name == "Unnamed model" else f"named {self.name!r}"
        prefix = f" and {self.vocab_prefix!r} as word prefix" if self.vocab_prefix else ""
        dims = f" of {self.vectors.shape[1]} dims" if self.vocab or not self._table.on_demand else ""
        demand = ", computed on demand" if self._table.on_demand else ""
        return f"<WordEmbeddingModel {name} with {len(self)} word embeddings{dims}{demand}{prefix}>"

    def _require(self, words: Iterable[str]) -> None:
        for word in words:
            if not isinstance(word, str):
                raise TypeError(f"word: got a {type(word).__name__}, wanted a str")
            if word not in self:
                raise KeyError(f"the word {word!r} is not in the vocabulary of the model {self.name!r}")


def check_model(model: Any) -> None:
    if not isinstance(model, WordEmbeddingModel):
        raise TypeError(
            f"model: got a {type(model).__name__}, wanted a WordEmbeddingModel; write WordEmbeddingModel(model)"
        )
