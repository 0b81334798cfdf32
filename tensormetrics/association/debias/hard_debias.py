"""Hard debiasing for two or more groups: words lose a direction or subspace, and tuples are equalized."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..embeddings.model import WordEmbeddingModel
from ..sets import word_sets
from . import base
from .base import Debias

CASES = (str.lower, str.title, str.upper)


class HardDebias(Debias):
    """Hard debiasing: unit vectors u become unit(u - (u.g) g), and the words of an equalized pair differ only along g.

    g (`bias_direction`) is the first right singular vector of the unit vectors of the definitional pairs, each pair
    centered, and points to their first words. Equalized pairs keep the part of their mean orthogonal to g; they change
    even if they are ignored. All rows of the transformed model have length 1, zero rows stay. `pca_args` is accepted;
    only the first component is used. Bolukbasi et al. 2016, arXiv:1607.06520.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> fair = HardDebias().fit(model, definitional_pairs=[["he", "she"], ["him", "her"]]).transform(model)
    >>> fair["work"].round(3), fair["home"].round(3)
    (array([0.707, 0.707], dtype=float32), array([0.707, 0.707], dtype=float32))
    """

    fitted = ("bias_direction",)

    def __init__(self, pca_args: dict[str, int] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        base.num_components(pca_args)  # only the first component is used

    def fit(
        self,
        model: WordEmbeddingModel,
        definitional_pairs: Sequence[Sequence[str]],
        equalize_pairs: Sequence[Sequence[str]] | None = None,
    ) -> "HardDebias":
        """Fit the direction. `equalize_pairs` (default: these pairs) are equalized in lower, title and upper case.

        Pairs with an unknown word are left out; ValueError for tuples of other sizes, or if all pairs are left out.
        """
        base.check_table(model)
        pairs = base.word_tuples("definitional_pairs", definitional_pairs, 2)
        equalize = pairs if equalize_pairs is None else base.word_tuples("equalize_pairs", equalize_pairs, 2)
        cased_pairs = dict.fromkeys(tuple(map(change_case, pair)) for pair in equalize for change_case in CASES)
        definitional = base.vectors_of_tuples("definitional_pairs", model, pairs)
        base.require_rows("equalize_pairs", model, list(cased_pairs), quiet=True)
        self.fit_tensors(definitional)
        self.words = {"equalize": [list(pair) for pair in cased_pairs]}
        return self

    @torch.no_grad()
    def fit_tensors(self, pairs: Tensor) -> "HardDebias":
        # pairs: (..., P, 2, D)
        pairs = word_sets.unit(base.read("pairs", pairs, "...", "P", 2, "D"))
        self.bias_direction = base.subspace(pairs, 1).squeeze(-2)
        return self

    def forward(self, vectors: Tensor) -> Tensor:
        """Return unit vectors orthogonal to the direction.

        Shapes: vectors: (..., N, D) -> (..., N, D) float64.
        """
        self.check_fitted()
        vectors = base.read("vectors", vectors, "...", "N", self.bias_direction.shape[-1])
        return word_sets.unit(base.without(word_sets.unit(vectors), self.bias_direction.unsqueeze(-2)))

    def equalize(self, pairs: Tensor) -> Tensor:
        """Move the words of each pair to mirror images across the plane orthogonal to the direction.

        Shapes: pairs: (..., E, 2, D), not debiased -> (..., E, 2, D) float64.
        """
        self.check_fitted()
        pairs = word_sets.unit(base.read("pairs", pairs, "...", "E", 2, self.bias_direction.shape[-1]))
        g = self.bias_direction.unsqueeze(-2)
        center = base.without(pairs.mean(-2), g)  # (..., E, D)
        offset = (1 - center.square().sum(-1)).clamp(min=0).sqrt()
        offset = offset * word_sets.matvec(pairs[..., 0, :] - pairs[..., 1, :], self.bias_direction).sign()
        shift = offset.unsqueeze(-1) * g
        return torch.stack([center + shift, center - shift], -2)

    def of_row(self, vectors: Tensor, is_target: bool) -> Tensor:
        return word_sets.unit(super().of_row(vectors, is_target))

    def write(self, table: Tensor, model: WordEmbeddingModel, rows: Tensor) -> None:
        pairs = base.rows_of_tuples(model, self.words.get("equalize", []), quiet=True)
        self.say(f"equalizing {len(pairs)} pairs")
        base.neutralize_and_equalize(self, self.equalize, table, rows, pairs)


class MulticlassHardDebias(Debias):
    """Multiclass hard debiasing: unit vectors lose a subspace, and the words of an equalized set differ only inside it.

    The subspace is spanned by the first k (`pca_args={"n_components": k}`, default 10, at most their rank) right
    singular vectors of the unit vectors of the definitional sets, each set centered. Definitional words are not
    neutralized. All rows of the transformed model have length 1, zero rows stay. Manzini et al. 2019,
    doi:10.18653/v1/N19-1062.

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

    def fit(
        self,
        model: WordEmbeddingModel,
        definitional_sets: Sequence[Sequence[str]],
        equalize_sets: Sequence[Sequence[str]],
    ) -> "MulticlassHardDebias":
        """Fit the subspace to definitional sets of one size; equalized sets have any sizes, at least two words.

        Sets with an unknown word are left out; ValueError for other sizes, or if all sets are left out.
        """
        base.check_table(model)
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

    def forward(self, vectors: Tensor) -> Tensor:
        """Return unit vectors orthogonal to the subspace.

        Shapes: vectors: (..., N, D) -> (..., N, D) float64.
        """
        self.check_fitted()
        vectors = base.read("vectors", vectors, "...", "N", self.bias_subspace.shape[-1])
        return word_sets.unit(base.without(word_sets.unit(vectors), self.bias_subspace))

    def equalize(self, sets: Tensor) -> Tensor:
        """Move the words of each set to equal distances, within the subspace, from the mean of the set outside it.

        Shapes: sets: (..., E, S, D), not debiased -> (..., E, S, D) float64 unit vectors.
        """
        self.check_fitted()
        sets = word_sets.unit(base.read("sets", sets, "...", "E", "S", self.bias_subspace.shape[-1]))
        basis = self.bias_subspace.unsqueeze(-3)
        mean = sets.mean(-2, keepdim=True)
        center = base.without(mean, basis)
        component = sets - mean - base.without(sets - mean, basis)
        shift = (1 - center.square().sum(-1, keepdim=True)).clamp(min=0).sqrt() * word_sets.unit(component)
        return word_sets.unit(center + shift)

    def untouched(self, model: WordEmbeddingModel) -> list[int]:
        words = dict.fromkeys(word for words in self.words.get("definitional", []) for word in words)
        return sum(base.rows_of_tuples(model, [[word] for word in words], quiet=True), [])

    def of_row(self, vectors: Tensor, is_target: bool) -> Tensor:
        return word_sets.unit(super().of_row(vectors, is_target))

    def write(self, table: Tensor, model: WordEmbeddingModel, rows: Tensor) -> None:
        sets = base.rows_of_tuples(model, self.words.get("equalize", []), quiet=True)
        self.say(f"equalizing {len(sets)} sets")
        base.neutralize_and_equalize(self, self.equalize, table, rows, sets)
