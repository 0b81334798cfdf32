"""Half-sibling regression."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...core.arguments import checks
from ..embeddings.model import WordEmbeddingModel
from . import base
from .base import Debias


class HalfSiblingRegression(Debias):
    """Half-sibling regression: subtract the prediction of a ridge regression on definitional words, v -> P v.

    P = I - B (B'B + alpha I)^-1 B' with the definitional vectors as columns of B: a fixed linear map, and vectors are
    not normalized. Definitional words do not change. Yang & Feng 2020, doi:10.1609/aaai.v34i05.6486.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> method = HalfSiblingRegression().fit(model, definitional_words=["he", "him", "she", "her"], alpha=1.0)
    >>> method.transform(model)["work"].round(3)
    array([ 0.103, -0.064], dtype=float32)
    """

    fitted = ("definitional", "coefficients")

    def fit(
        self, model: WordEmbeddingModel, definitional_words: Sequence[str], alpha: float = 60.0
    ) -> "HalfSiblingRegression":
        """Fit the map; unknown words are left out. ValueError if all are unknown, or `alpha` is not positive."""
        words = [[word] for word in base.word_list("definitional_words", definitional_words)]
        self.fit_tensors(base.vectors_of_tuples("definitional_words", model, words).squeeze(-2), alpha)
        self.words = {"definitional": words}
        return self

    @torch.no_grad()
    def fit_tensors(self, definitional: Tensor, alpha: float = 60.0) -> "HalfSiblingRegression":
        # definitional: (..., d, D)
        checks.check_number("alpha", alpha, "a number > 0", lambda x: x > 0)
        rows = base.read("definitional", definitional, "...", "d", "D").clone()  # the table may change
        ridge = rows @ rows.mT + alpha * torch.eye(rows.shape[-2], dtype=rows.dtype, device=rows.device)
        self.definitional, self.coefficients = rows, torch.linalg.solve(ridge, rows)
        return self

    def forward(self, vectors: Tensor) -> Tensor:
        """Return debiased vectors.

        Shapes: vectors: (..., N, D) -> (..., N, D) float64.
        """
        vectors = self.read("vectors", vectors, "N")
        return vectors - vectors @ self.definitional.mT @ self.coefficients
