"""Hard debiasing for more than two groups."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..embeddings.model import WordEmbeddingModel
from ..sets import word_sets
from . import base
from .base import Debias


class MulticlassHardDebias(Debias):
    """Unit vectors lose their part in a subspace; the words of an equalised set then differ inside it alone.

    The subspace is spanned by the first k (`pca_args={"n_components": k}`, default 10, at most their rank) right
    singular vectors of the unit vectors of the definitional sets, each set centred. Definitional words are not
    neutralised. All rows of the transformed model have length 1, zero rows stay.
    Manzini et al. 2019, doi:10.18653/v1/N19-1062.

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
        self.n_components = base.subspace_size(pca_args)

    def fit(
        self,
        model: WordEmbeddingModel,
        definitional_sets: Sequence[Sequence[str]],
        equalize_sets: Sequence[Sequence[str]],
    ) -> "MulticlassHardDebias":
        """Definitional sets are of one size, each equalised set is of its own, at least two words.

        Sets with an unknown word are left out; ValueError for other sizes, or if no set is left.
        """
        base.check_table(model)
        definitional = base.word_tuples("definitional_sets", definitional_sets)
        equalize = base.word_tuples("equalize_sets", equalize_sets, own_sizes=True)
        vectors = base.found_vectors("definitional_sets", model, definitional)
        base.found_some("equalize_sets", model, equalize)
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
        """vectors: (..., N, D) -> (..., N, D) float64, unit vectors orthogonal to the subspace."""
        self.check_fitted()
        vectors = base.read("vectors", vectors, "...", "N", self.bias_subspace.shape[-1])
        return word_sets.unit(base.without(word_sets.unit(vectors), self.bias_subspace))

    def equalize(self, sets: Tensor) -> Tensor:
        """Each set around its mean outside the subspace, its words at equal distances inside it.

        Shapes: sets: (..., E, S, D), not debiased -> (..., E, S, D) float64 unit vectors.
        """
        self.check_fitted()
        sets = word_sets.unit(base.read("sets", sets, "...", "E", "S", self.bias_subspace.shape[-1]))
        basis = self.bias_subspace.unsqueeze(-3)
        mean = sets.mean(-2, keepdim=True)
        middle = base.without(mean, basis)
        inside = sets - mean - base.without(sets - mean, basis)
        along = (1 - middle.square().sum(-1, keepdim=True)).clamp(min=0).sqrt() * word_sets.unit(inside)
        return word_sets.unit(middle + along)

    def untouched(self, model: WordEmbeddingModel) -> list[int]:
        words = dict.fromkeys(word for words in self.words.get("definitional", []) for word in words)
        return sum(base.found_rows(model, [[word] for word in words], quiet=True), [])

    def write(self, table: Tensor, model: WordEmbeddingModel, rows: Tensor) -> None:
        sets = base.found_rows(model, self.words.get("equalize", []), quiet=True)
        self.say(f"equalising {len(sets)} sets")
        base.neutralize_and_equalize(self, self.equalize, table, rows, sets)
