"""Iterative null-space projection (INLP)."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...core.arguments import checks
from ...core.resampling.weights import units
from ..metrics._linear_probe import fit_probes, predicted_classes, standardize
from ..resampling.folds import deal_words
from . import base
from .base import GroupDebias

HELD_OUT = 5  # hold out a fifth of the words of each class, at least one of two


class INLP(GroupDebias):
    """Iterative null-space projection: remove directions of linear classifiers until none predicts the classes.

    In each iteration logistic regression (one-vs-rest for more than two classes) is fitted to four fifths of the words,
    and the rows are projected onto the null space of its weights. Iteration ends when a classifier is, on the held-out
    words, not better than always predicting the most frequent training class, or after `n_iterations`. x becomes
    x - B'B x, where the rows of B are an orthonormal basis of all weights. `LEACE` needs no iterations and changes the
    rows less.

    Args:
        n_iterations: Largest number of classifiers.
        C: Inverse strength of the penalty |w|^2 / 2, for rows whose dimensions have a mean variance of 1.
        seed: Seed that selects the words that are held out.

    Shape:
        - fit_tensors: vectors ``(..., N, D)``, labels ``(N,)`` or ``(..., N)``, integer; words ``(N,)``
        - forward: ``(..., N, D)`` to ``(..., N, D)``, float64

    Example:
        >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
        >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
        >>> fair = INLP().fit(model, groups=[["he", "him"], ["she", "her"]]).transform(model)
        >>> fair["work"].round(2), fair["home"].round(2)
        (array([0.5, 0.5], dtype=float32), array([0.5, 0.5], dtype=float32))

    References:
        Ravfogel et al. 2020, doi:10.18653/v1/2020.acl-main.647
    """

    fitted = ("bias_subspace",)

    def __init__(self, *, n_iterations: int = 35, C: float = 1.0, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.n_iterations = checks.check_int("n_iterations", n_iterations, 1)
        checks.check_number("C", C, "a number > 0", lambda x: x > 0)
        self.C = C
        self.seed = checks.check_int("seed", seed, 0)

    @torch.no_grad()
    def fit_tensors(self, vectors: Tensor, labels: Tensor, words: Any = None) -> "INLP":
        # vectors: (..., N, D)  labels: (N,) or (..., N), the classes, any integers  words: (N,), names or integers
        """Fit the projection to rows; all rows of a word are held out together, and by default each row is a word."""
        classes = base.class_indices(labels, vectors).expand(vectors.shape[:-1])
        rows = base.read("vectors", vectors, "...", "N", "D")
        base.check_finite_rows(rows)
        size, device = rows.shape[-2], rows.device
        word_ids = torch.arange(size, device=device) if words is None else units("words", words, size, device)
        _, position_in_class = deal_words(classes, word_ids, self.seed)
        is_training = position_in_class % HELD_OUT != 1  # (..., N)
        if is_training.all(-1).any():
            raise ValueError("labels: got one word of each class, wanted at least two of a class, one to hold out")
        self.words = {}
        self.bias_subspace = self._basis(rows, classes, is_training)
        return self

    def _basis(self, rows: Tensor, classes: Tensor, is_training: Tensor) -> Tensor:
        # rows: (..., N, D)  classes, is_training: (..., N)  ->  (..., R, D), orthonormal or 0
        members = one_hot(classes).to(rows.dtype)  # (..., N, K)
        training, held_out = is_training.to(rows.dtype), (~is_training).to(rows.dtype)
        rows = standardize(rows, training)
        total = held_out.sum(-1)
        largest = (members * training.unsqueeze(-1)).sum(-2).argmax(-1, keepdim=True)
        majority = ((classes == largest) * held_out).sum(-1) / total
        basis, remains = rows[..., :0, :], torch.ones_like(majority, dtype=torch.bool)
        for iteration in range(self.n_iterations):
            projected = base.without(rows, basis)
            weights, intercepts = fit_probes(projected, members, training.unsqueeze(-2), self.C)
            w, c = weights.squeeze(-3), intercepts.squeeze(-2)
            accuracy = ((predicted_classes(projected, w, c) == classes) * held_out).sum(-1) / total
            remains = remains & (accuracy > majority)
            if self.verbose:
                print(f"INLP: iteration {iteration}, accuracy {accuracy.tolist()}, largest class {majority.tolist()}")
            if not remains.any():
                break
            basis = torch.cat([basis, orthonormal(w, basis) * remains[..., None, None]], -2)
        return basis.contiguous()

    def forward(self, vectors: Tensor) -> Tensor:
        """Project vectors onto the null space of all classifiers.

        Shapes: vectors: (..., N, D) -> (..., N, D) float64.
        """
        return base.without(self.read("vectors", vectors, "N"), self.bias_subspace)


def orthonormal(weights: Tensor, basis: Tensor) -> Tensor:
    # weights: (..., L, D)  basis: (..., R, D), orthonormal or 0  ->  (..., L, D), orthonormal or 0
    """Return an orthonormal basis of the part of the weights' span that is orthogonal to the basis."""
    rest = base.without(base.without(weights, basis), basis)  # twice, because the first time leaves rounding errors
    _, singular, axes = torch.linalg.svd(rest, full_matrices=False)
    return axes * (singular > 1e-10 * singular[..., :1]).unsqueeze(-1)
