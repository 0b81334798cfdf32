"""Hard debiasing for two or more groups: words lose a direction or subspace, and tuples are equalized."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..embeddings.model import WordEmbeddingModel
from ..embeddings.vocabulary import rewrite
from ..sets import word_sets
from . import base
from .base import Debias, DirectionDebias

CASES = (str.lower, str.title, str.upper)


class EqualizingDebias(Debias):
    """Debiasing method that removes a subspace from unit vectors and equalizes tuples of words."""

    @property
    @abstractmethod
    def basis(self) -> Tensor: ...  # (..., k, D), of the subspace

    @abstractmethod
    def equalize(self, sets: Tensor) -> Tensor: ...

    def forward(self, vectors: Tensor) -> Tensor:
        """Return unit vectors orthogonal to the direction or subspace.

        Shapes: vectors: (..., N, D) -> (..., N, D) float64.
        """
        vectors = self.read("vectors", vectors, "N")
        return word_sets.unit(base.without(word_sets.unit(vectors), self.basis))

    def of_row(self, vectors: Tensor, is_target: bool) -> Tensor:
        return word_sets.unit(super().of_row(vectors, is_target))

    def write(self, table: Tensor, model: WordEmbeddingModel, rows: Tensor) -> None:
        """Debias rows, replace tuples by their equalized former vectors, and scale all rows to length 1."""
        tuples = base.rows_of_tuples(model, self.words.get("equalize", []), quiet=True)
        self.say(f"equalizing {len(tuples)} tuples of words")
        equalized: dict[int, Tensor] = {}  # tuple -> vectors of its words (S, D)
        for size in sorted(set(map(len, tuples))):
            indices = [i for i, words in enumerate(tuples) if len(words) == size]
            vectors = self.equalize(table[torch.tensor([tuples[i] for i in indices], device=table.device)])
            equalized |= dict(zip(indices, vectors, strict=True))
        # For a word in several tuples the last one counts.
        last = {row: equalized[i][index] for i, words in enumerate(tuples) for index, row in enumerate(words)}
        rewrite(table, rows, self)
        if last:
            table[list(last)] = torch.stack(list(last.values())).to(table.dtype)
        rewrite(table, torch.arange(len(table), device=table.device), word_sets.unit)


class HardDebias(DirectionDebias, EqualizingDebias):
    """Hard debiasing: unit vectors u become unit(u - (u.g) g), and the words of an equalized pair differ only along g.

    g (`bias_direction`) is the first right singular vector of the unit vectors of the definitional pairs, each pair
    centered, and points to their first words. Equalized pairs keep the part of their mean orthogonal to g; they change
    even if they are ignored. All rows of the transformed model have length 1, zero rows stay. Bolukbasi et al. 2016,
    arXiv:1607.06520.

    Args:
        pca_args: {"n_components": k}, of which only the first component is used.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> fair = HardDebias().fit(model, definitional_pairs=[["he", "she"], ["him", "her"]]).transform(model)
    >>> fair["work"].round(3), fair["home"].round(3)
    (array([0.707, 0.707], dtype=float32), array([0.707, 0.707], dtype=float32))
    """

    @property
    def basis(self) -> Tensor:
        return self.bias_direction.unsqueeze(-2)

    def fit(
        self,
        model: WordEmbeddingModel,
        definitional_pairs: Sequence[Sequence[str]],
        equalize_pairs: Sequence[Sequence[str]] | None = None,
    ) -> "HardDebias":
        """Fit the direction. `equalize_pairs` (default: these pairs) are equalized in lower, title and upper case.

        Pairs with an unknown word are left out; ValueError for tuples of other sizes, or if all pairs are left out.
        """
        pairs = base.word_tuples("definitional_pairs", definitional_pairs, 2)
        equalize = pairs if equalize_pairs is None else base.word_tuples("equalize_pairs", equalize_pairs, 2)
        cased_pairs = dict.fromkeys(tuple(map(change_case, pair)) for pair in equalize for change_case in CASES)
        definitional = base.vectors_of_tuples("definitional_pairs", model, pairs)
        base.require_rows("equalize_pairs", model, list(cased_pairs), quiet=True)
        self.fit_tensors(definitional)
        self.words = {"equalize": [list(pair) for pair in cased_pairs]}
        return self

    def equalize(self, pairs: Tensor) -> Tensor:
        """Move the words of each pair to mirror images across the plane orthogonal to the direction.

        Shapes: pairs: (..., E, 2, D), not debiased -> (..., E, 2, D) float64.
        """
        pairs = word_sets.unit(self.read("pairs", pairs, "E", 2))
        g = self.basis
        center = base.without(pairs.mean(-2), g)  # (..., E, D)
        offset = (1 - center.square().sum(-1)).clamp(min=0).sqrt()
        offset = offset * word_sets.matvec(pairs[..., 0, :] - pairs[..., 1, :], self.bias_direction).sign()
        shift = offset.unsqueeze(-1) * g
        return torch.stack([center + shift, center - shift], -2)


class MulticlassHardDebias(EqualizingDebias):
    """Multiclass hard debiasing: unit vectors lose a subspace, and the words of an equalized set differ only inside it.

    The subspace is spanned by the first k right singular vectors of the unit vectors of the definitional sets, each set
    centered. Definitional words are not neutralized. All rows of the transformed model have length 1, zero rows stay.
    Manzini et al. 2019, doi:10.18653/v1/N19-1062.

    Args:
        pca_args: {"n_components": k}, by default 10, at most the rank.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> pairs = [["he", "she"], ["him", "her"]]
    >>> method = MulticlassHardDebias({"n_components": 1}).fit(model, definitional_sets=pairs, equalize_sets=pairs)
    >>> method.transform(model)["work"].round(3)
    array([0.707, 0.707], dtype=float32)
    """

    fitted = ("bias_subspace",)

    def __init__(self, pca_args: dict[str, int] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.n_components = base.num_components(pca_args)

    @property
    def basis(self) -> Tensor:
        return self.bias_subspace

    def fit(
        self,
        model: WordEmbeddingModel,
        definitional_sets: Sequence[Sequence[str]],
        equalize_sets: Sequence[Sequence[str]],
    ) -> "MulticlassHardDebias":
        """Fit the subspace to definitional sets of one size; equalized sets have any sizes, at least two words.

        Sets with an unknown word are left out; ValueError for other sizes, or if all sets are left out.
        """
        definitional = base.word_tuples("definitional_sets", definitional_sets)
        equalize = base.word_tuples("equalize_sets", equalize_sets, sizes_differ=True)
        vectors = base.vectors_of_tuples("definitional_sets", model, definitional)
        base.require_rows("equalize_sets", model, equalize)
        self.fit_tensors(vectors)
        self.words = {"definitional": definitional, "equalize": equalize}
        return self

    @torch.no_grad()
    def fit_tensors(self, sets: Tensor) -> "MulticlassHardDebias":
        # sets: (..., P, S, D)
        sets = word_sets.unit(base.read("sets", sets, "...", "P", "S", "D"))
        self.bias_subspace = base.subspace(sets, self.n_components)
        return self

    def equalize(self, sets: Tensor) -> Tensor:
        """Move the words of each set to equal distances, within the subspace, from the mean of the set outside it.

        Shapes: sets: (..., E, S, D), not debiased -> (..., E, S, D) float64 unit vectors.
        """
        sets = word_sets.unit(self.read("sets", sets, "E", "S"))
        basis = self.bias_subspace.unsqueeze(-3)
        mean = sets.mean(-2, keepdim=True)
        center = base.without(mean, basis)
        component = sets - mean - base.without(sets - mean, basis)
        shift = (1 - center.square().sum(-1, keepdim=True)).clamp(min=0).sqrt() * word_sets.unit(component)
        return word_sets.unit(center + shift)
