"""Matching predictions to targets in set-prediction losses (DETR and its descendants)."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import grid_sample, softplus

from .. import _checks
from .._repr import RecordedArguments
from .solver import linear_sum_assignment

Pairs = list[tuple[Tensor, Tensor]]
ClassCost = Literal["softmax", "focal"]


class Input(NamedTuple):
    """What a term of the cost reads: names and shapes in the outputs and in the targets."""

    given: str
    given_shape: tuple[int | str, ...]
    wanted: str
    wanted_shape: tuple[int | str, ...]


LOGITS = Input("pred_logits", ("B", "Q", "K"), "labels", ("n",))
BOXES = Input("pred_boxes", ("B", "Q", 4), "boxes", ("n", 4))
MASKS = Input("pred_masks", ("B", "Q", "H", "W"), "masks", ("n", "H'", "W'"))
INPUTS = {"cost_class": LOGITS, "cost_bbox": BOXES, "cost_giou": BOXES, "cost_mask": MASKS, "cost_dice": MASKS}


class HungarianMatcher(RecordedArguments, nn.Module):
    """For every image, the pairs of queries and targets of least total cost, found where the predictions live.

    The cost of a pair is the sum, weighted by `cost_class`, `cost_bbox`, `cost_giou`, `cost_mask` and `cost_dice`, of
    * class: minus the probability of the target's class (`class_cost="softmax"`), or the difference of the focal losses
      of having and not having it, from sigmoids (`"focal"`, with `alpha` and `gamma`);
    * L1 distance, and minus generalised IoU, of boxes (cx, cy, w, h);
    * binary cross entropy, and 1 - Dice coefficient, of masks at `num_points` random points per image (None: at all
      pixels; predicted and target masks then have one resolution).
    A weight of 0 leaves a term and its inputs out. All images are solved at once; no cost leaves the device and, by
    default on every device, nothing waits for it:

    `nonfinite="avoid"` matches pairs whose cost is NaN or infinite only where no others are left, and tells by `status`
    (B,) int8 of the last call: 0 all costs finite; 1 some were not, and were avoided; 2 one had to be taken.
    "raise" reads one flag, which a GPU must be waited for, and raises a ValueError that names the image.

    Carion et al. 2020, doi:10.1007/978-3-030-58452-8_13; Zhu et al. 2021, doi:10.48550/arXiv.2010.04159;
    Cheng et al. 2022, doi:10.1109/CVPR52688.2022.00135; Rezatofighi et al. 2019, doi:10.1109/CVPR.2019.00075

    >>> boxes = torch.full((1, 2, 4), 0.5)  # of one image with two queries
    >>> outputs = {"pred_logits": torch.tensor([[[2.0, 0.0], [0.0, 2.0]]]), "pred_boxes": boxes}
    >>> targets = [{"labels": torch.tensor([1]), "boxes": boxes[0, :1]}]
    >>> HungarianMatcher()(outputs, targets)  # query 1 has the target 0
    [(tensor([1]), tensor([0]))]
    """

    def __init__(
        self,
        cost_class: float = 1.0,
        cost_bbox: float = 1.0,
        cost_giou: float = 1.0,
        cost_mask: float = 0.0,
        cost_dice: float = 0.0,
        *,
        class_cost: ClassCost = "softmax",
        alpha: float = 0.25,
        gamma: float = 2.0,
        num_points: int | None = 12544,
        nonfinite: Literal["avoid", "raise"] = "avoid",
    ) -> None:
        super().__init__()
        _checks.one_of("nonfinite", nonfinite, ("avoid", "raise"))
        weights = cost_class, cost_bbox, cost_giou, cost_mask, cost_dice
        _checks.one_of("class_cost", class_cost, ("softmax", "focal"))
        numbers = zip((*INPUTS, "alpha", "gamma"), (*weights, alpha, gamma), strict=True)
        for name, number in numbers:
            _checks.number(name, number, "a finite number", math.isfinite)
        self.weights = dict(zip(INPUTS, weights, strict=True))
        if not any(self.weights.values()):
            raise ValueError(f"got weights 0 for all of {', '.join(INPUTS)}, wanted at least one other")
        self.class_cost: ClassCost = class_cost
        self.alpha, self.gamma = alpha, gamma
        self.num_points = None if num_points is None else _checks.integer_at_least("num_points", num_points, 1)
        self.nonfinite, self.status = nonfinite, torch.zeros(0, dtype=torch.int8, device="cpu")

    @torch.no_grad()
    def forward(
        self, outputs: dict[str, Tensor], targets: Sequence[dict[str, Tensor]], generator: Generator | None = None
    ) -> Pairs:
        """Per image (query indices, ascending, and target indices), int64 of min(Q, number of targets) entries.

        `outputs`: "pred_logits" (B, Q, K), "pred_boxes" (B, Q, 4), "pred_masks" (B, Q, H, W) logits.
        `targets`, one per image: "labels" (n,) int64, "boxes" (n, 4), "masks" (n, H', W'); n may be 0.
        `generator` draws the points at which masks are compared.
        """
        lengths = self._check(outputs, targets)
        if not lengths:
            self.status = torch.zeros(0, dtype=torch.int8, device="cpu")
            return []
        with torch.autocast(next(iter(outputs.values())).device.type, enabled=False):
            cost = self._costs(outputs, targets, max(lengths), generator)
        counts = torch.tensor(lengths, device="cpu").to(cost.device, non_blocking=True)
        inside = torch.arange(cost.shape[2], device=cost.device) < counts[:, None, None]
        broken = inside & ~cost.isfinite()
        if self.nonfinite == "raise" and bool(broken.any()):
            self._raise(broken, outputs, targets)
        solved = linear_sum_assignment(dearest(cost, broken, inside), col_lengths=counts, check=False)
        taken = solved.col_of_row[..., None] == torch.arange(cost.shape[2], device=cost.device)
        some, one_taken = (pairs.flatten(1).any(1).to(torch.int8) for pairs in (broken, broken & taken))
        self.status = some + one_taken
        queries = torch.arange(cost.shape[1], device=cost.device)
        return [
            (*query_of[:n].sort(),) if n <= len(queries) else (queries, target_of)
            for query_of, target_of, n in zip(solved.row_of_col, solved.col_of_row, lengths, strict=True)
        ]

    def _costs(
        self, outputs: dict[str, Tensor], targets: Sequence[dict[str, Tensor]], n: int, generator: Generator | None
    ) -> Tensor:
        # ->  (B, Q, n)
        terms = {}
        given = {name: tensor.float() if tensor.dtype.itemsize < 4 else tensor for name, tensor in outputs.items()}
        if self.weights["cost_class"]:
            labels = pad_to(n, [target["labels"].long() for target in targets])
            logits = given["pred_logits"]
            check_labels(labels, logits.shape[2])
            probable = class_costs(logits, self.class_cost, self.alpha, self.gamma)
            terms["cost_class"] = probable.gather(2, labels[:, None].expand(-1, logits.shape[1], -1))
        if self.weights["cost_bbox"] or self.weights["cost_giou"]:
            boxes = pad_to(n, [target["boxes"] for target in targets]).to(given["pred_boxes"])
            terms["cost_bbox"] = torch.cdist(given["pred_boxes"], boxes, p=1)
            terms["cost_giou"] = -generalized_iou(given["pred_boxes"][:, :, None], boxes[:, None])
        if self.weights["cost_mask"] or self.weights["cost_dice"]:
            masks = [target["masks"].to(given["pred_masks"]) for target in targets]
            sampled = at_points(given["pred_masks"], masks, self.num_points, n, generator)
            terms["cost_mask"], terms["cost_dice"] = mask_costs(*sampled)
        weighted = [self.weights[name] * term for name, term in terms.items() if self.weights[name]]
        return functools.reduce(torch.add, weighted)

    def _raise(self, broken: Tensor, outputs: dict[str, Tensor], targets: Sequence[dict[str, Tensor]]) -> None:
        image, query, target = broken.nonzero()[0].tolist()
        read = [names for weight, names in INPUTS.items() if self.weights[weight]]
        given, wanted = sorted({names.given for names in read}), sorted({names.wanted for names in read})
        sources = {f"outputs[{name!r}]": outputs[name][image] for name in given}
        sources |= {f"targets[{image}][{name!r}]": targets[image][name] for name in wanted}
        faults = [name for name, value in sources.items() if not value.isfinite().all()] or ["no input, by overflow"]
        raise ValueError(
            f"image {image}: got a cost that is no finite number for query {query} and target {target}, from "
            f"{', '.join(faults)}; wanted finite numbers, or nonfinite='avoid' to match the others"
        )

    def _check(self, outputs: dict[str, Tensor], targets: Sequence[dict[str, Tensor]]) -> list[int]:
        if not isinstance(outputs, Mapping):
            raise TypeError(f"outputs: got a {type(outputs).__name__}, wanted a dict such as {{'pred_logits': ...}}")
        if isinstance(targets, Mapping) or not all(isinstance(t, Mapping) for t in _checks.listed("targets", targets)):
            raise TypeError("targets: got no list of dicts, wanted one for each image; write [{'labels': ...}, ...]")
        if not targets:
            return []
        lengths: dict[str, list[int]] = {}
        for weight, (given, given_shape, wanted, wanted_shape) in INPUTS.items():
            if not self.weights[weight] or wanted in lengths:
                continue
            if given not in outputs:
                raise ValueError(f"outputs: got {sorted(outputs)}, wanted {given!r} too, or {weight}=0")
            _checks.shape(f"outputs[{given!r}]", outputs[given], *given_shape)
            _checks.floating(f"outputs[{given!r}]", outputs[given])
            if len(outputs[given]) != len(targets):
                raise ValueError(f"targets: got {len(targets)} for {len(outputs[given])} images, wanted one per image")
            for i, target in enumerate(targets):
                if wanted not in target:
                    raise ValueError(f"targets[{i}]: got {sorted(target)}, wanted {wanted!r} too, or {weight}=0")
                _checks.shape(f"targets[{i}][{wanted!r}]", target[wanted], *wanted_shape)
                _checks.same_device(outputs=outputs[given], targets=target[wanted])
                if wanted == "labels":
                    _checks.integral(f"targets[{i}]['labels']", target[wanted])
            lengths[wanted] = [len(target[wanted]) for target in targets]
        counts = list(lengths.values())
        if any(other != counts[0] for other in counts):
            raise ValueError(f"targets: {' and '.join(lengths)} differ in length: {counts}")
        return counts[0]


def check_labels(labels: Tensor, classes: int) -> None:
    # labels: (B, n), zeros behind
    """On a CPU; a GPU would have to be waited for, and stops by itself."""
    if labels.device.type == "cpu" and labels.numel():
        low, high = (int(end) for end in labels.aminmax())
        if low < 0 or high >= classes:
            wanted = f"0 to {classes - 1} for {classes} classes in outputs['pred_logits']"
            raise ValueError(f"targets: got the label {low if low < 0 else high}, wanted {wanted}")


def dearest(cost: Tensor, broken: Tensor, inside: Tensor) -> Tensor:
    # cost, broken: (B, Q, N)  inside: (B, 1, N)  ->  (B, Q, N)
    """Broken costs made finite: with k pairs to match, at least k + 1 times the range of the others above the highest
    of them, so that a matching with fewer of them always costs less."""
    if cost.numel() == 0:
        return cost
    pairs = min(cost.shape[1:])
    finite = cost.clamp(*(torch.finfo(cost.dtype).max / (4 * pairs + 4) * sign for sign in (-1, 1)))  # sums stay finite
    counted = inside & ~broken
    low, high = (finite.masked_fill(~counted, -sign * torch.inf) for sign in (-1, 1))
    low, high = low.amin((1, 2), keepdim=True), high.amax((1, 2), keepdim=True)
    spread = torch.maximum(high - low, high.abs()).clamp(min=torch.finfo(cost.dtype).eps)
    above = (high + (pairs + 1) * spread).nan_to_num(0.0, 0.0, 0.0)  # 0 if none is finite: all are worth the same
    return above.where(broken, finite)


def pad_to(n: int, rows: list[Tensor]) -> Tensor:
    # rows: B of (n_b, ...)  ->  (B, n, ...), zeros behind
    padded = rows[0].new_zeros(len(rows), n, *rows[0].shape[1:])
    for image, row in zip(padded, rows, strict=True):
        image[: len(row)] = row
    return padded


def class_costs(logits: Tensor, kind: ClassCost, alpha: float, gamma: float) -> Tensor:
    # logits: (B, Q, K)  ->  (B, Q, K)
    if kind == "softmax":
        return -logits.softmax(-1)
    p = logits.sigmoid()
    have = alpha * (1 - p) ** gamma * softplus(-logits)
    have_not = (1 - alpha) * p**gamma * softplus(logits)
    return have - have_not


def generalized_iou(a: Tensor, b: Tensor) -> Tensor:
    # a, b: (..., 4) as cx, cy, w, h  ->  (...) in [-1, 1]
    """Intersection over union, minus the share of the smallest enclosing box that neither covers."""
    (a_low, a_high), (b_low, b_high) = ((x[..., :2] - x[..., 2:] / 2, x[..., :2] + x[..., 2:] / 2) for x in (a, b))
    overlap = (torch.minimum(a_high, b_high) - torch.maximum(a_low, b_low)).clamp(min=0).prod(-1)
    union = a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - overlap
    hull = (torch.maximum(a_high, b_high) - torch.minimum(a_low, b_low)).prod(-1)
    # Two boxes without area have no union; they overlap in nothing.
    return torch.where(union > 0, overlap / union, 0.0) - torch.where(hull > 0, (hull - union) / hull, 0.0)


def at_points(
    logits: Tensor, masks: list[Tensor], num_points: int | None, n: int, generator: Generator | None
) -> tuple[Tensor, Tensor]:
    # logits: (B, Q, H, W)  masks: B of (n_b, H', W')  ->  (B, Q, P), (B, n, P)
    """Both sides at the same points: random ones, bilinearly interpolated, or all pixels."""
    if num_points is None:
        for i, mask in enumerate(masks):
            _checks.shape(f"targets[{i}]['masks']", mask, "n", *logits.shape[2:])
        return logits.flatten(2), pad_to(n, [mask.flatten(1) for mask in masks])
    points = torch.rand(len(logits), num_points, 1, 2, device=logits.device, dtype=logits.dtype, generator=generator)
    grid = 2 * points - 1
    values = grid_sample(logits, grid, align_corners=False)[..., 0]
    wanted = [
        grid_sample(mask[None], grid[i : i + 1], align_corners=False)[0, ..., 0]
        if len(mask)
        else grid.new_empty(0, num_points)
        for i, mask in enumerate(masks)
    ]
    return values, pad_to(n, wanted)


def mask_costs(logits: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
    # logits: (B, Q, P)  masks: (B, n, P) in [0, 1]  ->  (B, Q, n), (B, Q, n)
    """Mean binary cross entropy, and 1 - Dice coefficient (with 1 added to both of its sides), of every pair."""
    cross_entropy = (softplus(-logits) @ masks.mT + softplus(logits) @ (1 - masks).mT) / logits.shape[-1]
    p = logits.sigmoid()
    dice = 1 - (2 * p @ masks.mT + 1) / (p.sum(-1)[:, :, None] + masks.sum(-1)[:, None] + 1)
    return cross_entropy, dice
