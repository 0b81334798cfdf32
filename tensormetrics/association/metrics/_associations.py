"""Associations of target words with two attribute sets, shared by several metrics."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...core.native.device_cache import cached_per_device
from ...core.native.gpu_kernels import is_tracing
from ..resampling.null_distribution import NullDistribution
from ..resampling.permutation import partition_null
from ..sets import marks, word_sets
from ..sets.word_sets import Values, Vectors, WordSet


def associations(
    x: word_sets.Words, y: word_sets.Words, a: word_sets.Words, b: word_sets.Words
) -> tuple[word_sets.Values, word_sets.Values]:
    # ->  associations s of the words of x (..., X) and of y (..., Y), with their counts
    if word_sets.has_several_counts(x, y, a, b):
        u, v = _resampled_associations(x, y, a, b)
        return (x.by_word(u), x.counts), (y.by_word(v), y.counts)
    if not word_sets.is_large(x, y, a, b):
        x, y, a, b = word_sets.units(x, y, a, b)
    axis = a.unit().mean() - b.unit().mean()
    return (x.by_word(x.unit().project(axis)), x.counts), (y.by_word(y.unit().project(axis)), y.counts)


def batched_associations(*sets: Vectors) -> Tensor | None:
    # x: (B, X, D)  y: (B, Y, D)  a: (B, A, D)  b: (B, B', D)  ->  (B, X + Y)
    """Compute the associations of words with few launches, for valid sets without masks in a batch on a GPU."""
    tensors = [s for s in sets if isinstance(s, Tensor) and s.ndim == 3 and s.is_floating_point() and s.numel()]
    if len(tensors) < len(sets) or tensors[0].device.type in ("cpu", "mps") or is_tracing():
        return None
    if len({(t.device, len(t), t.shape[-1]) for t in tensors}) > 1 or any(t.requires_grad for t in tensors):
        return None
    vectors = torch.cat(tensors, -2).double()
    length = torch.threshold(torch.linalg.vector_norm(vectors, dim=-1), 0, torch.inf)
    n, m = tensors[2].shape[1], tensors[3].shape[1]
    targets, attributes = vectors.split_with_sizes([vectors.shape[1] - n - m, n + m], 1)
    axis = torch.bmm((_attribute_weights(vectors, n, m) / length[:, -n - m :]).unsqueeze(1), attributes)
    return torch.bmm(axis, targets.mT).squeeze(1) / length[:, : -n - m]


@cached_per_device
def _attribute_weights(device: torch.device, n: int, m: int) -> Tensor:  # (n + m,)
    weights = torch.tensor([1 / n] * n + [-1 / m] * m, dtype=torch.float64, device="cpu")
    return weights.to(device, non_blocking=True)


@cached_per_device
def _target_weights(device: torch.device, n: int, m: int, correction: int | None) -> Tensor:
    # ->  (n + m, 1) of the difference of sums; with a correction (n + m, 2) of the scaled difference of means and of
    # the mean
    rows = [[1.0] * n + [-1.0] * m]
    if correction is not None:
        root = (n + m - correction) ** 0.5
        rows = [[root / n] * n + [-root / m] * m, [1 / (n + m)] * (n + m)]
    return torch.tensor(rows, dtype=torch.float64, device="cpu").to(device, non_blocking=True).mT


def batched_score(scores: Tensor, n: int, correction: int | None) -> Tensor:
    # scores: (B, n + m) of `batched_associations`  ->  (B,), `weat`, or with a correction `weat_effect_size`
    m = scores.shape[1] - n
    moments = torch.matmul(scores, _target_weights(scores, n, m, correction))
    if correction is None:
        return moments[:, 0]
    std = torch.linalg.vector_norm(scores - moments[:, 1:], dim=-1)
    return word_sets.in_deviations(moments[:, 0], std, (n + m - correction) ** 0.5 / word_sets.GRID)


def _resampled_associations(
    x: word_sets.Words, y: word_sets.Words, a: word_sets.Words, b: word_sets.Words
) -> Sequence[Tensor]:
    # ->  (..., X), (..., Y), from cosines that all replicates share
    targets, attributes = (word_sets.unit(word_sets.join(s.vectors, t.vectors, dim=-2)) for s, t in ((x, y), (a, b)))
    weights = word_sets.join(a.mean_weights(), -b.mean_weights())
    scores = word_sets.matvec(word_sets.products(targets, attributes), weights)
    return scores.split_with_sizes([x.vectors.shape[-2], y.vectors.shape[-2]], -1)


@marks.score(contrast=("x", "y"))
def effect_size(x: Vectors, y: Vectors, a: Vectors, b: Vectors, correction: int) -> Tensor:
    """Compute `weat_effect_size`."""
    if (scores := batched_associations(x, y, a, b)) is not None:
        return batched_score(scores, WordSet.of(x).values.shape[1], correction)
    words = word_sets.units(*word_sets.read(x=x, y=y, a=a, b=b))
    return word_sets.effect_size(*associations(*words), correction)[1]


def null_of(u: Values, v: Values, first: Vectors, second: Vectors, seed: int | None) -> NullDistribution:
    """Return the null distribution of associations under permutations of the words of two sets."""
    (u, v) = (WordSet.of(vectors)._replace(values=scores) for (scores, _), vectors in ((u, first), (v, second)))
    return partition_null(u, v, seed)
