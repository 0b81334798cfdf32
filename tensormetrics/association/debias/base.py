"""Base class of the debiasing methods, which reads words and tables, and their linear algebra."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self  # torch brings it

from ...core.arguments import checks
from ...core.arguments.repr import RecordedArguments
from ..embeddings.lookup import log
from ..embeddings.model import WordEmbeddingModel, check_model
from ..embeddings.query import check_words
from ..embeddings.vocabulary import CHUNK, EncodedTable, rewrite
from ..metrics._linear_probe import check_rows
from ..sets import word_sets

Rows = list[list[int]]  # rows of tuples of words


class Debias(RecordedArguments, nn.Module, ABC):
    """Transform of embeddings: fitted to words of a model or to tensors, applied to models or to tensors.

    Fitted tensors are buffers; words that `transform` also needs are the extra state of `state_dict`. A subclass names
    its buffers in `fitted`, computes them in `fit_tensors` and applies them in `forward`; its `fit` looks words up. A
    subclass in which rows depend on each other, or that also changes other rows, overrides `write`.

    Args:
        verbose: Whether `fit` and `transform` print their steps.
        criterion_name: Name of the concept, for the name of the transformed model.
        **kwargs: The two options above.

    Shape:
        - forward: ``(..., N, D)`` to ``(..., N, D)``, float64

    Raises:
        TypeError: If an option, or a set of words in `fit`, has another type.
        ValueError: If an option is out of range, or too few words of `fit` are in the model.
    """

    fitted: tuple[str, ...] = ()
    changes_rows_together = False  # if True, rows on demand must be computed before

    def __init__(self, *, verbose: bool = False, criterion_name: str | None = None) -> None:
        super().__init__()
        checks.check_flag("verbose", verbose)
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
        # table: (V, D), in place  rows: (R,) int64, distinct rows to change
        rewrite(table, rows, self)

    def of_row(self, vectors: Tensor, is_target: bool) -> Tensor:
        # vectors: (n, D) float64  ->  (n, D) float64
        """Transform rows that are computed later, of target words or of other words."""
        return self(vectors) if is_target else vectors

    @torch.no_grad()
    def transform(
        self,
        model: WordEmbeddingModel,
        target: Collection[str] | None = None,
        ignore: Collection[str] | None = None,
        copy: bool = True,
    ) -> WordEmbeddingModel:
        """Return a model with the words in `target` debiased, or without `target` all words except those in `ignore`.

        Its name is "{name}_{criterion_name}_debiased". `copy=False` writes into the model's table and returns the
        model. If rows are computed on demand, later rows are changed, too. RuntimeError before `fit`. ValueError for a
        model with several rows per word, and for rows on demand if the method moves rows jointly.
        """
        self.check_fitted()
        check_table(model)
        checks.check_flag("copy", copy)
        if model._table.on_demand and self.changes_rows_together:
            raise ValueError(
                f"model: {type(self).__name__} moves the rows of {model.name!r} jointly, which are computed on "
                "demand; write WordEmbeddingModel.from_numpy(numpy.stack([*model.arrays(words).values()]), words)"
            )
        if model._table.on_demand:
            rows_of_words(model, _flat(self.words), quiet=True)  # computes their rows
        rows = torch.tensor(self.selected(model, target, ignore), dtype=torch.int64, device=model.vectors.device)
        self.say(f"{type(self).__name__}: {len(rows)} of {len(model)} words of {model.name!r}")
        table = model._table.copied() if copy else model._table
        self.write(table.writable(), model, rows)
        if isinstance(table, EncodedTable):
            # A copy, because this method may be fitted again.
            table.changes += (functools.partial(_changed, deepcopy(self), target is None),)
            table.has_custom_rows = True
        name = "_".join([model.name, *([self.criterion_name] if self.criterion_name else []), "debiased"])
        if copy:
            return type(model)(table, name, model.vocab_prefix)
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
            candidates, left_out = dict.fromkeys(rows_of_words(model, word_list("target", target))), set[int]()
        else:
            left_out = set(rows_of_words(model, word_list("ignore", ignore or [])))
            candidates = dict.fromkeys(model.vocab.values())
        left_out.update(rows_of_words(model, _flat(self.words.get("definitional", [])), quiet=True))
        return [row for row in candidates if row not in left_out]

    def check_fitted(self) -> None:
        if getattr(self, self.fitted[0]) is None:
            raise RuntimeError(
                f"{type(self).__name__} is not fitted; write .fit(model, ...) or .fit_tensors(...) before"
            )

    def read(self, name: str, vectors: Tensor, *shape: int | str) -> Tensor:
        # vectors: (..., *shape, D)  ->  same shape, float64
        """Check and convert vectors of the dimensions that the method is fitted to."""
        self.check_fitted()
        return read(name, vectors, "...", *shape, getattr(self, self.fitted[0]).shape[-1])

    def say(self, text: str) -> None:
        if self.verbose:
            print(text)

    def get_extra_state(self) -> dict[str, list]:
        return self.words

    def set_extra_state(self, state: dict[str, list]) -> None:
        self.words = state

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in self.fitted:  # their shapes are unknown before loading
            if (value := state_dict.get(prefix + name)) is not None:
                self.register_buffer(name, torch.empty_like(value))
        super()._load_from_state_dict(state_dict, prefix, *args)


class DirectionDebias(Debias):
    """Debiasing method that is fitted to the direction of pairs; of `pca_args` only the first component is used."""

    fitted = ("bias_direction",)

    def __init__(self, pca_args: dict[str, int] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        num_components(pca_args)

    @torch.no_grad()
    def fit_tensors(self, pairs: Tensor) -> Self:
        # pairs: (..., P, 2, D)
        self.bias_direction = subspace(word_sets.unit(read("pairs", pairs, "...", "P", 2, "D")), 1).squeeze(-2)
        return self


class GroupDebias(Debias):
    """Debiasing method that is fitted to groups of words, one for each class."""

    def fit(self, model: WordEmbeddingModel, groups: Sequence[Sequence[str]]) -> Self:
        """Fit the map to the words of each class.

        Args:
            model: Model with one vector for each word.
            groups: At least two lists of words, one for each class. Unknown words are left out.

        Returns:
            The fitted method itself.

        Raises:
            ValueError: If there are fewer than two groups, no word of a group is known, or a vector is not finite.
        """
        lists = word_lists("groups", groups)
        if len(lists) < 2:
            raise ValueError(f"groups: got {len(lists)}, wanted at least two lists of words, one for each class")
        vectors = [
            vectors_of_tuples(f"groups[{i}]", model, [[word] for word in words]) for i, words in enumerate(lists)
        ]
        labels = [torch.full((len(rows),), i, device=rows.device) for i, rows in enumerate(vectors)]
        self.fit_tensors(torch.cat(vectors).squeeze(-2), torch.cat(labels))
        self.words = {"groups": lists}
        return self

    @abstractmethod
    def fit_tensors(self, vectors: Tensor, labels: Tensor) -> Self: ...


def _changed(debias: Debias, is_target: bool, vectors: Tensor) -> Tensor:
    # vectors: (n, D) float64  ->  (n, D) float64
    return debias.to(vectors.device).of_row(vectors, is_target)


def _flat(words: Any) -> Iterator[str]:
    """Yield the words in nested lists and dicts."""
    if isinstance(words, str):
        yield words
        return
    for part in words.values() if isinstance(words, dict) else words:
        yield from _flat(part)


def check_table(model: Any) -> None:
    check_model(model)
    if model._table.has_several_rows:
        raise ValueError(
            f"model: got {model.name!r} with several vectors per word, wanted one; write .fit_tensors(...) and "
            ".forward(vectors)"
        )


def num_components(pca_args: Any) -> int:
    """Read `n_components`, the only option in `pca_args`."""
    if pca_args is None:
        return 10
    if not isinstance(pca_args, dict) or set(pca_args) != {"n_components"}:
        raise ValueError(f"pca_args: got {pca_args!r}, wanted {{'n_components': 10}} or another number")
    return checks.check_int("pca_args['n_components']", pca_args["n_components"], 1)


def word_tuples(name: str, tuples: Any, size: int | None = None, sizes_differ: bool = False) -> list[list[str]]:
    """Check and copy tuples of `size` words, by default the size of the first, or of two or more if sizes differ."""
    copies = word_lists(name, tuples)
    for i, words in enumerate(copies):
        expected = size or max(2, len(copies[0]))
        if len(words) < 2 if sizes_differ else len(words) != expected:
            expected = "at least 2" if sizes_differ else expected
            raise ValueError(f"{name}[{i}]: got {len(words)} words, {words}, wanted {expected}")
    return copies


def rows_of_tuples(model: WordEmbeddingModel, tuples: Iterable[Sequence[str]], quiet: bool = False) -> Rows:
    """Return the rows of tuples with only known words; other tuples are logged unless `quiet`."""
    rows = []
    for words in tuples:
        keys = [(model.vocab_prefix or "") + word for word in words]
        if all(key in model for key in keys):
            model._table.add(keys)
            rows.append([model.vocab[key] for key in keys])
        elif not quiet:
            log.warning("%s: left out, not in the vocabulary of %r", ", ".join(words), model.name)
    return rows


def rows_of_words(model: WordEmbeddingModel, words: Iterable[str], quiet: bool = False) -> list[int]:
    return sum(rows_of_tuples(model, ([word] for word in words), quiet), [])


def require_rows(name: str, model: WordEmbeddingModel, tuples: Sequence[Sequence[str]], quiet: bool = False) -> Rows:
    rows = rows_of_tuples(model, tuples, quiet)
    if not rows:
        raise ValueError(
            f"{name}: got {len(tuples)} tuples, none of which is complete in the vocabulary of {model.name!r}"
        )
    return rows


def vectors_of_tuples(name: str, model: WordEmbeddingModel, tuples: Sequence[Sequence[str]]) -> Tensor:
    # -> (known tuples, words per tuple, D)
    """Return the vectors of known tuples; raise a ValueError if there are none, or if a vector is not finite."""
    check_table(model)
    rows = torch.tensor(require_rows(name, model, tuples), device=model.vectors.device)
    check_finite(name, model, rows.flatten())
    return model.vectors.detach()[rows]


def class_indices(labels: Tensor, vectors: Tensor) -> Tensor:
    # vectors: (..., N, D)  labels: (N,) or (..., N), any integers  ->  same shape, in [0, classes)
    checks.integral("labels", labels)
    classes, indices = labels.unique(return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"labels: got {len(classes)} classes, wanted at least two")
    check_rows(vectors, indices)
    return indices


def check_finite_rows(*rows: Tensor) -> None:
    if not all(tensor.isfinite().all() for tensor in rows):
        raise ValueError("vectors: got NaN or infinity, wanted finite numbers")


def check_finite(name: str, model: WordEmbeddingModel, rows: Tensor) -> None:
    # rows: (R,)
    for chunk in rows.split(max(1, CHUNK // model.vectors.shape[1])):
        if len(bad := chunk[~model.vectors[chunk].isfinite().all(-1)]):
            word = next(word for word, row in model.vocab.items() if row == bad[0])
            raise ValueError(f"{name}: the vector of {word!r} holds NaN or infinity, wanted finite numbers")


def read(name: str, vectors: Tensor, *shape: int | str) -> Tensor:
    # -> same shape, float64
    checks.shape(name, vectors, *shape)
    checks.floating(name, vectors)
    return word_sets.as_words(vectors, None).vectors


def subspace(tuples: Tensor, k: int) -> Tensor:
    # tuples: (..., P, S, D)  ->  (..., min(k, P * S, D), D)
    """Return the first right singular vectors of the tuples, each tuple centered; 0 beyond the rank.

    The vectors point to the first words of the tuples.
    """
    rows = (tuples - tuples.mean(-2, keepdim=True)).flatten(-3, -2)
    _, singular, axes = torch.linalg.svd(rows, full_matrices=False)
    singular, axes = singular[..., :k], axes[..., :k, :]
    first = word_sets.matvec(axes, (tuples[..., 0, :] - tuples.mean(-2)).sum(-2)).unsqueeze(-1)
    axes = axes.where(first >= 0, -axes)
    return axes.where(((singular > 1e-10 * singular[..., :1]) & (singular > 0)).unsqueeze(-1), 0)


def without(vectors: Tensor, basis: Tensor) -> Tensor:
    # vectors: (..., N, D)  basis: (..., k, D), orthonormal or 0  ->  (..., N, D)
    return vectors - vectors @ basis.mT @ basis


def word_lists(name: str, lists: Any) -> list[list[str]]:
    if isinstance(lists, str) or not isinstance(lists, Sequence):
        raise TypeError(f"{name}: got a {type(lists).__name__}, wanted a list of lists of words")
    return [word_list(f"{name}[{i}]", words) for i, words in enumerate(lists)]


def word_list(name: str, words: Any) -> list[str]:
    is_collection = isinstance(words, Collection) and not isinstance(words, str)
    return list(check_words(name, list(words) if is_collection else words))
