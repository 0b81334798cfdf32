"""What the debiasing methods share: tables and words at the door, directions and planes below it."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from ... import _checks
from ..._repr import RecordedArguments
from ..embeddings.lookup import check_flag, log
from ..embeddings.model import WordEmbeddingModel, check_model
from ..embeddings.vocabulary import CHUNK, EncodedTable, rewrite
from ..sets import word_sets

Rows = list[list[int]]  # the rows of tuples of words


class Debias(RecordedArguments, nn.Module, ABC):
    """A transform of embeddings: fitted to words of a model or to tensors, applied to models or to tensors.

    What is fitted lies in buffers, and the words that `transform` needs beside the extra state of `state_dict`.
    A subclass names its buffers in `fitted`, computes them in `fit_tensors` and applies them in `forward`; its `fit`
    looks words up. One whose rows depend on each other, or that changes more of them, overrides `write`.
    """

    fitted: tuple[str, ...] = ()
    changes_rows_together = False  # so that a table whose rows are computed on demand has to be made whole before

    def __init__(self, *, verbose: bool = False, criterion_name: str | None = None) -> None:
        super().__init__()
        check_flag("verbose", verbose)
        if not isinstance(criterion_name, str | None):
            raise TypeError(f"criterion_name: got a {type(criterion_name).__name__}, wanted a str or None")
        self.verbose = verbose
        self.criterion_name = criterion_name
        self.words: dict[str, list] = {}
        for name in self.fitted:
            self.register_buffer(name, None)

    @abstractmethod
    def fit(self, model: WordEmbeddingModel, *args: Any, **kwargs: Any) -> "Debias": ...

    def write(self, table: Tensor, model: WordEmbeddingModel, rows: Tensor) -> None:
        # table: (V, D), in place  rows: (R,) int64, distinct, those that are to change
        rewrite(table, rows, self)

    def of_row(self, vectors: Tensor, is_target: bool) -> Tensor:
        # vectors: (n, D) float64  ->  the same
        """Return what becomes of rows that are computed later, of words that are to change and of others."""
        return self(vectors) if is_target else vectors

    @torch.no_grad()
    def transform(
        self,
        model: WordEmbeddingModel,
        target: Collection[str] | None = None,
        ignore: Collection[str] | None = None,
        copy: bool = True,
    ) -> WordEmbeddingModel:
        """A debiased model, of the words in `target`, or of all but those in `ignore`, which counts without `target`.

        Its name is "{name}_{criterion_name}_debiased". `copy=False` writes into the model's table and returns the
        model. Where rows are computed on demand, those that come later are changed, too. RuntimeError before `fit`.
        ValueError for a model with several rows a word, and for one computed on demand if the method moves rows
        together.
        """
        self.check_fitted()
        check_table(model)
        check_flag("copy", copy)
        if model._table.on_demand and self.changes_rows_together:
            raise ValueError(
                f"model: {type(self).__name__} moves the rows of {model.name!r} together, which are computed on "
                "demand; write WordEmbeddingModel.from_numpy(numpy.stack([*model.arrays(words).values()]), words)"
            )
        if model._table.on_demand:
            found_rows(model, [[word] for word in _flat(self.words)], quiet=True)  # they have rows from here on
        rows = torch.tensor(self.selected(model, target, ignore), dtype=torch.int64, device=model.vectors.device)
        self.say(f"{type(self).__name__}: {len(rows)} of {len(model)} words of {model.name!r}")
        table = model._table.copied() if copy else model._table
        self.write(table.writable(), model, rows)
        if isinstance(table, EncodedTable):
            # A copy, as this method may be fitted again.
            table.changes += (functools.partial(_changed, deepcopy(self), target is None),)
            table.has_own_rows = True
        name = "_".join([model.name, *([self.criterion_name] if self.criterion_name else []), "debiased"])
        if copy:
            return WordEmbeddingModel(table, name, model.vocab_prefix)
        model.name = name
        return model

    def fit_transform(
        self,
        model: WordEmbeddingModel,
        target: Collection[str] | None = None,
        ignore: Collection[str] | None = None,
        copy: bool = True,
        **fit: Any,
    ) -> WordEmbeddingModel:
        return self.fit(model, **fit).transform(model, target, ignore, copy)

    def selected(self, model: WordEmbeddingModel, target: Any, ignore: Any) -> list[int]:
        if target is not None:
            chosen = dict.fromkeys(sum(found_rows(model, [[word] for word in word_list("target", target)]), []))
        else:
            left_out = set(sum(found_rows(model, [[word] for word in word_list("ignore", ignore or [])]), []))
            chosen = (row for row in model.vocab.values() if row not in left_out)
        kept = set(self.untouched(model))
        return [row for row in chosen if row not in kept]

    def untouched(self, model: WordEmbeddingModel) -> list[int]:
        """Rows that never change as others do."""
        return []

    def check_fitted(self) -> None:
        if getattr(self, self.fitted[0]) is None:
            raise RuntimeError(
                f"{type(self).__name__} is not fitted; write .fit(model, ...) or .fit_tensors(...) before"
            )

    def say(self, text: str) -> None:
        if self.verbose:
            print(text)

    def get_extra_state(self) -> dict[str, list]:
        return self.words

    def set_extra_state(self, state: dict[str, list]) -> None:
        self.words = state

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in self.fitted:  # their shapes are not known before
            if (value := state_dict.get(prefix + name)) is not None:
                self.register_buffer(name, torch.empty_like(value))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _changed(debias: Debias, is_target: bool, vectors: Tensor) -> Tensor:
    # vectors: (n, D) float64  ->  the same
    return debias.to(vectors.device).of_row(vectors, is_target)


def _flat(words: Any) -> Iterator[str]:
    """The words in nested lists and dicts."""
    if isinstance(words, str):
        yield words
        return
    for each in words.values() if isinstance(words, dict) else words:
        yield from _flat(each)


def check_table(model: Any) -> None:
    check_model(model)
    if model._table.has_several_rows:
        raise ValueError(
            f"model: got {model.name!r} with several vectors a word, wanted one for each; write .fit_tensors(...) and "
            ".forward(vectors)"
        )


def subspace_size(pca_args: Any) -> int:
    """`n_components` of the only option that `pca_args` knows."""
    if pca_args is None:
        return 10
    if not isinstance(pca_args, dict) or set(pca_args) != {"n_components"}:
        raise ValueError(f"pca_args: got {pca_args!r}, wanted {{'n_components': 10}} or another number")
    return _checks.integer_at_least("pca_args['n_components']", pca_args["n_components"], 1)


def word_tuples(name: str, tuples: Any, size: int | None = None, own_sizes: bool = False) -> list[list[str]]:
    """Checked copies; each has `size` words, or as many as the first, or at least two if all have `own_sizes`."""
    if isinstance(tuples, str) or not isinstance(tuples, Sequence):
        raise TypeError(f"{name}: got a {type(tuples).__name__}, wanted a list of lists of words")
    copies = [word_list(f"{name}[{i}]", words) for i, words in enumerate(tuples)]
    for i, words in enumerate(copies):
        wanted = size or max(2, len(copies[0]))
        if len(words) < 2 if own_sizes else len(words) != wanted:
            wanted = "at least 2" if own_sizes else wanted
            raise ValueError(f"{name}[{i}]: got {len(words)} words, {words}, wanted {wanted}")
    return copies


def found_rows(model: WordEmbeddingModel, tuples: Iterable[Sequence[str]], quiet: bool = False) -> Rows:
    """The rows of the tuples that the vocabulary has whole; the others are logged unless `quiet`."""
    found = []
    for words in tuples:
        keys = [(model.vocab_prefix or "") + word for word in words]
        if all(key in model for key in keys):
            model._table.add(keys)
            found.append([model.vocab[key] for key in keys])
        elif not quiet:
            log.warning("%s: left out, not in the vocabulary of %r", ", ".join(words), model.name)
    return found


def found_some(name: str, model: WordEmbeddingModel, tuples: Sequence[Sequence[str]], quiet: bool = False) -> Rows:
    rows = found_rows(model, tuples, quiet)
    if not rows:
        raise ValueError(
            f"{name}: got {len(tuples)} tuples, none of which is whole in the vocabulary of {model.name!r}"
        )
    return rows


def found_vectors(name: str, model: WordEmbeddingModel, tuples: Sequence[Sequence[str]]) -> Tensor:
    # -> (tuples found, words of each, D)
    """ValueError also if one of the vectors is not finite: nothing could be fitted to them."""
    rows = torch.tensor(found_some(name, model, tuples), device=model.vectors.device)
    check_finite(name, model, rows.flatten())
    return model.vectors.detach()[rows]


def check_finite(name: str, model: WordEmbeddingModel, rows: Tensor) -> None:
    # rows: (R,)
    for chunk in rows.split(max(1, CHUNK // model.vectors.shape[1])):
        if len(bad := chunk[~model.vectors[chunk].isfinite().all(-1)]):
            word = next(word for word, row in model.vocab.items() if row == bad[0])
            raise ValueError(f"{name}: the vector of {word!r} holds NaN or infinity, wanted finite numbers")


def read(name: str, vectors: Tensor, *shape: int | str) -> Tensor:
    # -> the same shape, float64
    _checks.shape(name, vectors, *shape)
    _checks.floating(name, vectors)
    return word_sets.as_words(vectors, None).vectors


def subspace(tuples: Tensor, k: int) -> Tensor:
    # tuples: (..., P, S, D)  ->  (..., min(k, P * S, D), D)
    """The first right singular vectors of the tuples, each of them centred; 0 beyond the rank.

    Each points to the first words of the tuples.
    """
    rows = (tuples - tuples.mean(-2, keepdim=True)).flatten(-3, -2)
    _, singular, axes = torch.linalg.svd(rows, full_matrices=False)
    singular, axes = singular[..., :k], axes[..., :k, :]
    first = word_sets.times(axes, (tuples[..., 0, :] - tuples.mean(-2)).sum(-2)).unsqueeze(-1)
    axes = axes.where(first >= 0, -axes)
    return axes.where(((singular > 1e-10 * singular[..., :1]) & (singular > 0)).unsqueeze(-1), 0)


def without(vectors: Tensor, basis: Tensor) -> Tensor:
    # vectors: (..., N, D)  basis: (..., k, D), orthonormal or 0  ->  (..., N, D)
    return vectors - vectors @ basis.mT @ basis


def neutralize_and_equalize(
    debias: Debias, equalize: Callable[[Tensor], Tensor], table: Tensor, rows: Tensor, tuples: Rows
) -> None:
    # table: (V, D), in place  rows: (R,)
    """Chosen rows by `debias`, tuples of words by `equalize` of what they were before, and all at length 1.

    Of a word that is in two tuples, the last counts.
    """
    sizes = sorted(set(map(len, tuples)))
    of_size = [[i for i, words in enumerate(tuples) if len(words) == size] for size in sizes]
    equalized: dict[int, Tensor] = {}  # tuple -> its words (S, D)
    for chosen in of_size:
        found = equalize(table[torch.tensor([tuples[i] for i in chosen], device=table.device)])
        equalized |= dict(zip(chosen, found, strict=True))
    last = {row: equalized[i][place] for i, words in enumerate(tuples) for place, row in enumerate(words)}
    rewrite(table, rows, debias)
    if last:
        table[list(last)] = torch.stack(list(last.values())).to(table.dtype)
    rewrite(table, torch.arange(len(table), device=table.device), word_sets.unit)


def word_list(name: str, words: Any) -> list[str]:
    if isinstance(words, str) or not isinstance(words, Collection):
        raise TypeError(f"{name}: got a {type(words).__name__}, wanted a list of words")
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"{name}: got a {type(word).__name__} among the words, wanted str")
    return list(words)
