"""Costs of pairs of queries and targets, as defined by the matchers of DETR and its descendants."""

from typing import Literal

import torch
from torch import Generator, Tensor
from torch.nn.functional import grid_sample, softplus

from ..core.arguments import checks

ClassCost = Literal["softmax", "focal"]


def check_labels(labels: Tensor, classes: int, where: str = "") -> None:
    # labels: any shape, on the CPU
    if labels.numel():
        low, high = (int(end) for end in labels.aminmax())
        if low < 0 or high >= classes:
            expected = f"0 to {classes - 1} for {classes} classes in outputs['pred_logits']"
            raise ValueError(f"targets: got the label {low if low < 0 else high}{where}, wanted {expected}")


def pad_to(n: int, rows: list[Tensor]) -> Tensor:
    # rows: B of (n_b, ...)  ->  (B, n, ...), padded with zeros
    padded = rows[0].new_zeros(len(rows), n, *rows[0].shape[1:])
    for image, row in zip(padded, rows, strict=True):
        image[: len(row)] = row
    return padded


def class_costs(logits: Tensor, labels: Tensor, kind: ClassCost, alpha: float, gamma: float) -> Tensor:
    # logits: (B, Q, K)  labels: (B, n)  ->  (B, Q, n)
    index = labels[:, None].expand(-1, logits.shape[1], -1)
    if kind == "softmax":
        return logits.softmax(-1).gather(2, index).neg_()
    logits = logits.gather(2, index)  # costs depend only on the target's class
    p, loss = logits.sigmoid(), softplus(-logits)
    have = alpha * (1 - p) ** gamma * loss
    have_not = (1 - alpha) * p**gamma * (loss + logits)
    return have - have_not


def generalized_iou(a: Tensor, b: Tensor) -> Tensor:
    # a: (B, Q, 4)  b: (B, n, 4) as cx, cy, w, h  ->  (B, Q, n) in [-1, 1]
    """Compute intersection over union, minus the fraction of the smallest enclosing box that neither covers."""
    # One coordinate at a time, to vectorize along the targets instead of along two coordinates.
    ends_a, ends_b = ((x[..., :2] - x[..., 2:] / 2, x[..., :2] + x[..., 2:] / 2) for x in (a, b))
    sizes = []
    for axis in (0, 1):
        low_a, high_a = (end[:, :, axis, None] for end in ends_a)
        low_b, high_b = (end[:, None, :, axis].contiguous() for end in ends_b)
        overlap = torch.minimum(high_a, high_b).sub_(torch.maximum(low_a, low_b)).clamp_(min=0)
        sizes.append((overlap, torch.maximum(high_a, high_b).sub_(torch.minimum(low_a, low_b))))
    overlap, hull = (width.mul_(height) for width, height in zip(*sizes, strict=True))
    union = (a[..., 2] * a[..., 3])[:, :, None] + (b[..., 2] * b[..., 3])[:, None]
    union -= overlap
    # Two boxes without area have union and overlap 0; with an empty hull the uncovered fraction is 0.
    tiny = torch.finfo(union.dtype).tiny
    overlap /= union.clamp(min=tiny)
    covered = union.add_(tiny).div_(hull.add_(tiny))
    return overlap.add_(covered).sub_(1)


def at_points(
    logits: Tensor, masks: list[Tensor], num_points: int | None, n: int, generator: Generator | None
) -> tuple[Tensor, Tensor]:
    # logits: (B, Q, H, W)  masks: B of (n_b, H', W')  ->  (B, Q, P), (B, n, P)
    """Sample predicted and target masks at the same points: random ones, by bilinear interpolation, or all pixels."""
    if num_points is None:
        for i, mask in enumerate(masks):
            checks.shape(f"targets[{i}]['masks']", mask, "n", *logits.shape[2:])
        return logits.flatten(2), pad_to(n, [mask.flatten(1) for mask in masks])
    points = torch.rand(len(logits), num_points, 1, 2, device=logits.device, dtype=logits.dtype, generator=generator)
    grid = 2 * points - 1
    values = grid_sample(logits, grid, align_corners=False)[..., 0]
    targets = [
        grid_sample(mask[None], grid[i : i + 1], align_corners=False)[0, ..., 0]
        if len(mask)
        else grid.new_empty(0, num_points)
        for i, mask in enumerate(masks)
    ]
    return values, pad_to(n, targets)


def mask_costs(logits: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
    # logits: (B, Q, P)  masks: (B, n, P) in [0, 1]  ->  (B, Q, n), (B, Q, n)
    """Compute mean binary cross entropy and 1 - Dice coefficient (smoothed by 1) of all pairs."""
    cross_entropy = (softplus(-logits) @ masks.mT + softplus(logits) @ (1 - masks).mT) / logits.shape[-1]
    p = logits.sigmoid()
    dice = 1 - (2 * p @ masks.mT + 1) / (p.sum(-1)[:, :, None] + masks.sum(-1)[:, None] + 1)
    return cross_entropy, dice
