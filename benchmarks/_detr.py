"""The matcher that DETR publishes (Carion et al. 2020, doi:10.1007/978-3-030-58452-8_13), as a rival.

One matrix holds the costs of the queries and targets of all images; scipy solves the block of each image.
"""

from typing import Any

import scipy.optimize
import torch
from torch import Tensor

Outputs = dict[str, Any]
Targets = list[dict[str, Tensor]]
Pairs = list[tuple[Tensor, Tensor]]


def corners(box: Tensor) -> Tensor:
    # (n, 4) center and size  ->  (n, 4) corners
    x, y, w, h = box.unbind(-1)
    return torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1)


def pairwise_giou(a: Tensor, b: Tensor) -> Tensor:
    # (n, 4), (m, 4) corners  ->  (n, m)
    area_a, area_b = ((box[:, 2:] - box[:, :2]).prod(1) for box in (a, b))
    low, high = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    size = (high - low).clamp(min=0)
    overlap = size[..., 0] * size[..., 1]
    union = area_a[:, None] + area_b - overlap
    hull_size = (torch.max(a[:, None, 2:], b[:, 2:]) - torch.min(a[:, None, :2], b[:, :2])).clamp(min=0)
    hull = hull_size[..., 0] * hull_size[..., 1]
    return overlap / union - (hull - union) / hull


@torch.no_grad()
def match_layer(outputs: Outputs, targets: Targets, weights: dict[str, float], class_cost: str) -> Pairs:
    """Match one layer as DETR does, or with the class cost of Deformable DETR."""
    images, queries = outputs["pred_logits"].shape[:2]
    logits, predicted = outputs["pred_logits"].flatten(0, 1), outputs["pred_boxes"].flatten(0, 1)
    labels, boxes = (torch.cat([target[name] for target in targets]) for name in ("labels", "boxes"))
    if class_cost == "softmax":
        class_term = -logits.softmax(-1)[:, labels]
    else:
        p = logits.sigmoid()
        negative = 0.75 * p**2 * -(1 - p + 1e-8).log()
        positive = 0.25 * (1 - p) ** 2 * -(p + 1e-8).log()
        class_term = positive[:, labels] - negative[:, labels]
    box_term = torch.cdist(predicted, boxes, p=1)
    giou_term = -pairwise_giou(corners(predicted), corners(boxes))
    cost = weights["cost_bbox"] * box_term + weights["cost_class"] * class_term + weights["cost_giou"] * giou_term
    blocks = cost.view(images, queries, -1).cpu().split([len(target["labels"]) for target in targets], -1)
    matches = (scipy.optimize.linear_sum_assignment(block[image]) for image, block in enumerate(blocks))
    return [(torch.as_tensor(rows), torch.as_tensor(cols)) for rows, cols in matches]
