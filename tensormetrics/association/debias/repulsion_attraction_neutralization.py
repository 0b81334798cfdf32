"""Repulsion, attraction and neutralization."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.arguments import checks
from ..embeddings.model import WordEmbeddingModel
from ..embeddings.vocabulary import rewrite
from ..metrics._clusters import largest_cosines
from ..sets import word_sets
from . import base
from .base import DirectionDebias

CHUNK = 2**22  # elements of neighbors' vectors, or similarities, at a time


class RepulsionAttractionNeutralization(DirectionDebias):
    """Repulsion from neighbors with shared bias, attraction to the former vector, and neutralization, by Adam.

    On unit vectors, from w_d = w, the objective is the mean of |cos(w_d, n)| over the repulsion set, |cos(w_d, w) - 1|
    / 2 and |cos(w_d, g)|, times `weights`. The repulsion set contains the nearest words v with an indirect bias
    (w.v - cos(w', v')) / (w.v) above `theta`, w' = w - (w.g) g; an empty set adds 0. g is the first right singular
    vector of the unit vectors of the definitional pairs, each centered. All rows of the transformed model have length
    1. Kumar, Bhotia & Chakraborty 2020, doi:10.1162/tacl_a_00327, arXiv:2006.01938.

    Args:
        pca_args: {"n_components": k}, of which only the first component is used.
        epochs: Number of steps of Adam.
        theta: Indirect bias above which a neighbor is repelled.
        n_neighbours: Number of nearest words, by cosine.
        learning_rate: Step size of Adam.
        weights: Weights of repulsion, attraction and neutralization.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> method = RepulsionAttractionNeutralization(epochs=10, n_neighbours=2)
    >>> method = method.fit(model, definitional_pairs=[["he", "she"], ["him", "her"]])
    >>> method.transform(model, target=["work"])["work"].round(2)
    array([0.99, 0.11], dtype=float32)
    """

    changes_rows_together = True

    def __init__(
        self,
        pca_args: dict[str, int] | None = None,
        *,
        epochs: int = 300,
        theta: float = 0.05,
        n_neighbours: int = 100,
        learning_rate: float = 0.01,
        weights: Sequence[float] = (0.33, 0.33, 0.33),
        **kwargs: Any,
    ) -> None:
        super().__init__(pca_args, **kwargs)
        self.epochs = checks.check_int("epochs", epochs, 1)
        self.n_neighbours = checks.check_int("n_neighbours", n_neighbours, 1)
        if len(weights) != 3:
            raise ValueError(f"weights: got {weights!r}, wanted three numbers: repulsion, attraction, neutralization")
        checks.check_number("learning_rate", learning_rate, "a number > 0", lambda x: x > 0)
        self.theta, self.learning_rate, self.weights = theta, learning_rate, tuple(weights)

    def fit(
        self, model: WordEmbeddingModel, definitional_pairs: Sequence[Sequence[str]]
    ) -> "RepulsionAttractionNeutralization":
        """Fit the bias direction; pairs with an unknown word are left out.

        ValueError for tuples of other sizes, or if no pair is left.
        """
        pairs = base.word_tuples("definitional_pairs", definitional_pairs, 2)
        return self.fit_tensors(base.vectors_of_tuples("definitional_pairs", model, pairs))

    @torch.no_grad()
    def forward(self, vectors: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the debiased rows; all of `vectors` are candidate neighbors.

        Shapes: vectors: (..., N, D); rows: (R,) int64, None for all -> (..., R, D) float64 unit vectors.
        """
        units = word_sets.unit(self.read("vectors", vectors, "N"))
        units, _ = torch.broadcast_tensors(units, self.bias_direction.unsqueeze(-2))
        n, dims = units.shape[-2:]
        rows = torch.arange(n, device=units.device) if rows is None else rows
        batch = units[..., 0, 0].numel()
        size = max(1, CHUNK // max(1, batch * max(n, min(self.n_neighbours, n) * dims)))
        debiased = [self._debiased(units, chunk) for chunk in rows.split(size)]
        return torch.cat(debiased, -2) if debiased else units[..., :0, :]

    def write(self, table: Tensor, model: WordEmbeddingModel, rows: Tensor) -> None:
        self.say(f"{self.epochs} steps for {len(rows)} words")
        changed = self.forward(table, rows).to(table.dtype)
        rewrite(table, torch.arange(len(table), device=table.device), word_sets.unit)
        table[rows] = changed

    def _debiased(self, units: Tensor, rows: Tensor) -> Tensor:
        # units: (..., N, D)  rows: (R,)  ->  (..., R, D)
        words = units[..., rows, :]
        neighbors, repels = self._repulsion_sets(units, rows)
        repulsion_weights = repels / repels.sum(-1, keepdim=True).clamp(min=1)  # (..., R, K)
        repulsion, attraction, neutralization = self.weights
        with torch.enable_grad():
            moved = words.clone().requires_grad_()
            adam = torch.optim.Adam([moved], lr=self.learning_rate)
            for _ in range(self.epochs):
                w = word_sets.unit(moved)
                repelled = ((neighbors @ w.unsqueeze(-1)).squeeze(-1).abs() * repulsion_weights).sum(-1)
                attracted = (word_sets.dot(w, words) - 1).abs() / 2
                neutral = word_sets.matvec(w, self.bias_direction).abs()
                loss = repulsion * repelled + attraction * attracted + neutralization * neutral
                (moved.grad,) = torch.autograd.grad(loss.sum(), moved)
                adam.step()
        return word_sets.unit(moved.detach())

    def _repulsion_sets(self, units: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        # units: (..., N, D)  rows: (R,)  ->  nearest (..., R, K, D), and 1 for those that repel (..., R, K) float64
        is_self = torch.arange(units.shape[-2], device=units.device) == rows.unsqueeze(-1)
        cosines = (units[..., rows, :] @ units.mT).masked_fill(is_self, -torch.inf)
        nearest_indices = largest_cosines(cosines, min(self.n_neighbours, units.shape[-2] - 1))
        cosines = torch.take_along_dim(cosines, nearest_indices, -1)
        flat_indices = nearest_indices.flatten(-2)
        nearest = torch.take_along_dim(units, flat_indices.unsqueeze(-1), -2).unflatten(-2, nearest_indices.shape[-2:])
        projections = word_sets.matvec(units, self.bias_direction)  # (..., N)
        w, v = (
            projections[..., rows].unsqueeze(-1),
            torch.take_along_dim(projections, flat_indices, -1).unflatten(-1, nearest_indices.shape[-2:]),
        )
        lengths = ((1 - w.square()) * (1 - v.square())).clamp(min=0).sqrt()  # |w'| |v'|
        rest_cosines = (cosines - w * v) / lengths.masked_fill(lengths == 0, torch.inf)
        return nearest, ((cosines - rest_cosines) / cosines > self.theta).to(units.dtype)
