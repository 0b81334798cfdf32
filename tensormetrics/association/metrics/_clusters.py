"""k-means and nearest neighbors of weighted rows, in batches; draws and ties do not depend on the device."""

import torch
from torch import Tensor

from ...core.native.convergence import Convergence
from ...core.numbers.exact_sums import cumulative_mass
from ..resampling.random import random_uniform, stream


def k_means(
    points: Tensor, k: int, seed: int | None, weights: Tensor | None = None, starts: int = 10, steps: int = 100
) -> tuple[Tensor, Tensor]:
    # points: (..., N, D)  weights: (..., N)  ->  clusters (..., N) int64 in [0, k), centers (..., k, D)
    """Cluster by k-means++ and return the best of several starts. Rows of weight 0 are assigned but not averaged."""
    # Draws on the host give the same starts on every device.
    draws = random_uniform(stream(seed, "two-means"), 0, k, starts, torch.device("cpu")).to(points)
    weights = points.new_ones(points.shape[-2]) if weights is None else weights
    batch_shape = torch.broadcast_shapes(points.shape[:-2], weights.shape[:-1])
    weights = weights.expand(*batch_shape, weights.shape[-1])
    offset = points.mean(-2, keepdim=True)
    points = points - offset
    centers = _first_centers(points, weights, draws)  # (..., k, starts, D)
    convergence = Convergence()
    nearest: Tensor | None = None
    for _ in range(steps):
        nearest, before = _assigned(points, centers), nearest
        if before is not None and convergence.is_reached((nearest != before).any()):
            break
        index = torch.arange(k, device=points.device).view(k, 1, 1)
        members = (nearest.mT.unsqueeze(-3) == index) * weights[..., None, None, :]  # (..., k, starts, N)
        sizes = members.sum(-1, keepdim=True)
        means = (members.flatten(-3, -2) @ points).unflatten(-2, (k, starts)) / torch.where(sizes > 0, sizes, 1)
        centers = means.where(sizes > 0, centers)
    assert nearest is not None  # there is at least one step
    between = (sizes * centers.square().sum(-1, keepdim=True)).sum((-3, -1))  # largest for the tightest clusters
    best = between.argmax(-1)[..., None, None]
    clusters = nearest.gather(-1, best.expand(*batch_shape, nearest.shape[-2], 1)).squeeze(-1)
    index = best.unsqueeze(-1).expand(*batch_shape, k, 1, points.shape[-1])
    return clusters, centers.gather(-2, index).squeeze(-2) + offset


def _first_centers(points: Tensor, weights: Tensor, draws: Tensor) -> Tensor:
    # points: (..., N, D)  weights: (..., N), of all leading dimensions  draws: (k, starts)  ->  (..., k, starts, D)
    """Draw the first center by weight, and each further one by weight times squared distance to the nearest."""
    squares = points.square().sum(-1, keepdim=True)
    mass, centers = weights.unsqueeze(-2), []
    distances = points.new_full((), torch.inf)
    for draw in draws:
        sums = cumulative_mass(mass).expand(*mass.shape[:-2], len(draw), mass.shape[-1]).contiguous()
        index = torch.searchsorted(sums, (draw.unsqueeze(-1) * sums[..., -1:]).contiguous(), right=True).squeeze(-1)
        center = rows_at(points, index.clamp(max=points.shape[-2] - 1))  # (..., starts, D)
        centers.append(center)
        to_center = (squares - 2 * points @ center.mT + center.square().sum(-1).unsqueeze(-2)).clamp(min=0)
        distances = torch.minimum(distances, to_center)  # (..., N, starts)
        mass = distances.mT * weights.unsqueeze(-2)
    return torch.stack(centers, -3)


def _assigned(points: Tensor, centers: Tensor) -> Tensor:
    # points: (..., N, D)  centers: (..., k, starts, D)  ->  (..., N, starts) int64
    products = (points @ centers.flatten(-3, -2).mT).unflatten(-1, centers.shape[-3:-1])
    return (products - centers.square().sum(-1).unsqueeze(-3) / 2).argmax(-2)


def rows_at(vectors: Tensor, indices: Tensor) -> Tensor:
    # vectors: (..., N, D), broadcast to the leading dimensions of indices: (..., K)  ->  (..., K, D)
    vectors = vectors.expand(*indices.shape[:-1], *vectors.shape[-2:])
    return torch.take_along_dim(vectors, indices.unsqueeze(-1), -2)


def largest_cosines(cosines: Tensor, k: int) -> Tensor:
    # cosines: (..., R, N)  ->  (..., R, k) int64
    """Return the columns of the k largest cosines, rounded to 2^-40, ties in column order; NaN is the smallest."""
    rows = cosines.shape[-1]
    shift = rows.bit_length()
    rank = (cosines * 2.0 ** min(40, 61 - shift)).round().nan_to_num(-torch.inf).clamp(min=-(2.0 ** (61 - shift)))
    # One integer holds the rounded cosine and, in its lower bits, the position from the end.
    return ((rank.long() << shift) + torch.arange(rows - 1, -1, -1, device=cosines.device)).topk(k, -1).indices
