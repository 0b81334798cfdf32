"""Linear classifiers of labelled rows, one against the rest, for several choices of training rows at once."""

import torch
from torch import Tensor

from ...core.arguments import checks
from ..embeddings.vocabulary import CHUNK
from ._logistic import fit_margins

TOLERANCE = 1e-8  # for the gradient at rows of variance 1; predictions do not depend on less


def check_rows(vectors: Tensor, labels: Tensor) -> None:
    # vectors: (..., N, D)  labels: (N,) or (..., N)
    checks.shape("vectors", vectors, "...", "N", "D")
    checks.floating("vectors", vectors)
    checks.integral("labels", labels)
    checks.same_device(vectors=vectors, labels=labels)
    if labels.shape not in (vectors.shape[-2:-1], vectors.shape[:-1]):
        sizes = " or ".join(str(tuple(shape)) for shape in dict.fromkeys((vectors.shape[-2:-1], vectors.shape[:-1])))
        raise ValueError(f"labels: got shape {tuple(labels.shape)}, wanted {sizes}, one for each row")


def standardize(rows: Tensor, weights: Tensor) -> Tensor:
    # rows: (..., N, D)  weights: (..., N)  ->  (..., N, D)
    """Center the rows and divide them by one number, so that the mean variance of a dimension is 1."""
    fractions = (weights / weights.sum(-1, keepdim=True)).unsqueeze(-1)
    centered = rows - (fractions * rows).sum(-2, keepdim=True)
    variance = (fractions * centered.square()).sum((-2, -1), keepdim=True) / rows.shape[-1]
    return centered * torch.where(variance > 0, variance, 1).rsqrt()


def fit_probes(rows: Tensor, members: Tensor, weights: Tensor, C: float) -> tuple[Tensor, Tensor]:
    # rows: (..., N, D)  members: (..., N, K) float64, 1 where a row is of the class  weights: (..., F, N)
    # ->  w (..., F, L, D), c (..., F, L): L is 1 for two classes, whose second is positive, and else K
    """Fit F logistic regressions with a free intercept per class, with the given weights of training rows."""
    signs = (2 * members - 1).mT  # (..., K, N)
    signs = signs[..., 1:, :] if signs.shape[-2] == 2 else signs
    x = (signs.unsqueeze(-1) * rows.unsqueeze(-3)).unsqueeze(-4)  # (..., 1, L, N, D)
    parts = (C * weights).split(max(1, CHUNK // max(1, x.numel())), -2)
    solutions = [fit_margins(x, signs.unsqueeze(-3), part.unsqueeze(-2), False, TOLERANCE) for part in parts]
    w, c = zip(*solutions, strict=True)
    return torch.cat(w, -3), torch.cat(c, -2)


def predicted_classes(rows: Tensor, w: Tensor, c: Tensor) -> Tensor:
    # rows: (..., N, D)  w: (..., L, D)  c: (..., L)  ->  (..., N) int64, -1 where the fit failed
    margins = rows @ w.mT + c.unsqueeze(-2)
    classes = (margins[..., 0] > 0).long() if margins.shape[-1] == 1 else margins.argmax(-1)
    return classes.where(w.isfinite().all(-1).all(-1, keepdim=True), -1)
