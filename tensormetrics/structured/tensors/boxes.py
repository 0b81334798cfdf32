"""Scores of detected boxes matched to reference boxes."""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.resampling.weights import ResamplingUnits
from ._lengths import documents, in_chunks, read_tables
from .normalizers import normalize
from .overlap import set_overlap
from .reduction import CountMetric


class BoxMatch(CountMetric):
    """Scores of boxes after the best one-to-one matching of each image, in [0, 1]; higher is better.

    `precision`, `recall` and `f1` count pairs, of equal labels if labels are given; "iou" adds `mean_iou` of the pairs
    and `soft-precision`, `soft-recall`, `soft-f1`, which sum their IoU. At threshold 0.5 and for one class `soft-f1` is
    panoptic quality (A. Kirillov et al. 2019, doi:10.1109/CVPR.2019.00963). A box with x2 < x1 or y2 < y1, or with a
    negative width or height, is an error, on a GPU raised by `compute`. A box that is not finite makes the scores of an
    image with predicted and reference boxes NaN, and the micro averages too.

    Args:
        threshold: IoU from which a pair may match (if > 0); several add `@0.5` and so on to the keys.
        format: "xyxy", "xywh" (x, y, width and height) or "cxcywh" (center).
        objective: "iou" selects the matching of largest total IoU, "count" the one with the most pairs.

    >>> metric = BoxMatch(threshold=0.5)
    >>> metric.update(torch.tensor([[[0.0, 0, 2, 2], [5, 5, 6, 6]]]), torch.tensor([[[0.0, 0, 2, 3]]]))  # one image
    >>> {name: round(float(metric.compute()[name]), 3) for name in ("precision", "recall", "mean_iou")}
    {'precision': 0.5, 'recall': 1.0, 'mean_iou': 0.667}
    """

    def __init__(
        self,
        threshold: float | Sequence[float] = 0.5,
        format: str = "xyxy",
        objective: str = "iou",
        average: str = "micro",
        **kwargs: Any,
    ) -> None:
        checks.check_choice("format", format, ("xyxy", "xywh", "cxcywh"))
        checks.check_choice("objective", objective, ("iou", "count"))
        several = not isinstance(threshold, Real)
        thresholds = (threshold,) if isinstance(threshold, Real) else tuple(checks.as_list("threshold", threshold))
        for t in thresholds:
            if not (isinstance(t, Real) and 0 <= float(t) <= 1):
                raise ValueError(f"threshold: got {t!r}, wanted a number in [0, 1], or several")
        self.suffixes = {t: f"@{t:g}" if several else "" for t in thresholds}
        self.format, self.objective = format, objective
        super().__init__(2 + 2 * len(self.suffixes), average, **kwargs)
        self.add_invalid(f"boxes that are no {format}, with x2 < x1 or y2 < y1, or a negative width or height")

    def update(
        self,
        pred_boxes: Tensor | Sequence[Any],
        ref_boxes: Tensor | Sequence[Any],
        n_pred: Tensor | None = None,
        n_ref: Tensor | None = None,
        pred_labels: Tensor | Sequence[Any] | None = None,
        ref_labels: Tensor | Sequence[Any] | None = None,
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Add images.

        Boxes and labels may be lists of arrays, one for each image, or the boxes dictionaries of detectors with "boxes"
        and "labels", which are compared if both sides have them. "scores" are not used: first leave out boxes below a
        threshold.

        Shapes: pred_boxes: (..., N, 4); ref_boxes: (..., M, 4); n_pred: (...); n_ref: (...); pred_labels: (..., N) int;
        ref_labels: (..., M) int.
        """
        if isinstance(pred_boxes, list | tuple) and isinstance(ref_boxes, list | tuple):
            checks.check_consistent_length(pred_boxes=pred_boxes, ref_boxes=ref_boxes)
            if n_pred is not None or n_ref is not None:
                raise ValueError("n_pred, n_ref: got numbers beside lists of images, which have their own")
            sides = pred_boxes, ref_boxes
            is_labelled = all(any(isinstance(x, Mapping) and "labels" in x for x in side) for side in sides)
            pred_boxes, n_pred, pred_labels = _padded("pred_boxes", pred_boxes, pred_labels, is_labelled)
            ref_boxes, n_ref, ref_labels = _padded("ref_boxes", ref_boxes, ref_labels, is_labelled)
        pred, ref = cast(Tensor, pred_boxes), cast(Tensor, ref_boxes)
        tables, lengths = read_tables([4], {"n_pred": n_pred, "n_ref": n_ref}, pred_boxes=pred, ref_boxes=ref)
        if (pred_labels is None) != (ref_labels is None):
            raise ValueError("pred_labels, ref_labels: got one of them, wanted both or neither")
        if pred_labels is not None and ref_labels is not None:
            labels = [cast(Tensor, pred_labels), cast(Tensor, ref_labels)]
            checks.same_device(pred_boxes=pred, pred_labels=labels[0], ref_labels=labels[1])
            checks.shape("pred_labels", labels[0], *pred.shape[:-1])
            checks.shape("ref_labels", labels[1], *ref.shape[:-1])
            tables += [documents(column, 1) for column in labels]
            lengths *= 2
        for name, boxes, length in zip(("pred_boxes", "ref_boxes"), tables, lengths, strict=False):
            self._check_sides(name, boxes, length)
        self.add_documents(in_chunks(self._count, tables, lengths), **items)

    def _check_sides(self, name: str, boxes: Tensor, length: Tensor) -> None:
        # boxes: (D, N, 4)  length: (D,)
        least = boxes[..., :2] if self.format == "xyxy" else 0
        is_wrong = (boxes[..., 2:] < least).any(-1) & boxes.isfinite().all(-1)
        is_wrong = is_wrong & (torch.arange(boxes.shape[1], device=boxes.device) < length[:, None])
        if not boxes.is_cpu:
            self.num_invalid = self.num_invalid + is_wrong.sum()
        elif bool(is_wrong.any()):
            box = boxes[is_wrong][0].tolist()
            if self.format != "xyxy":
                raise ValueError(f"{name}: got {box}, wanted {self.format} with widths and heights >= 0")
            advice = "; this looks like x, y, width, height: write format='xywh'" if min(box[2:]) >= 0 else ""
            raise ValueError(f"{name}: got {box}, wanted x1, y1, x2, y2 with x1 <= x2 and y1 <= y2{advice}")

    def _count(self, pred_boxes: Tensor, ref_boxes: Tensor, *rest: Tensor) -> Tensor:
        # pred_boxes: (D, N, 4)  ref_boxes: (D, M, 4)  ->  (D, 2 + 2 per threshold)
        *labels, n_pred, n_ref = rest[:4] if len(rest) > 2 else rest
        iou = box_iou(_corners(pred_boxes, self.format), _corners(ref_boxes, self.format))
        if labels:
            iou = iou * (labels[0][..., None] == labels[1][..., None, :])
        counts = [n_pred.double(), n_ref.double()]
        for threshold in self.suffixes:
            allowed = (iou >= threshold) & (iou > 0)
            score = iou.where(allowed, 0) if self.objective == "iou" else allowed.to(iou.dtype)
            matching = set_overlap(score.masked_fill(iou.isnan(), torch.nan), n_pred, n_ref, return_pairs=True)
            assert matching.ref_of_pred is not None  # boxes are matched one-to-one
            pairs = (matching.ref_of_pred >= 0).sum(-1).double()
            counts += [pairs.masked_fill(matching.value.isnan(), torch.nan), matching.value]
        return torch.stack(counts, -1)

    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        # counts: (..., 2 + 2 per threshold)  ->  name: (...)
        n_pred, n_ref, *sums = counts.unbind(-1)
        scores = {}
        for suffix, pairs, total in zip(self.suffixes.values(), sums[::2], sums[1::2], strict=True):
            for name in ("precision", "recall", "f1"):
                scores[name + suffix] = normalize(pairs, n_pred, n_ref, name)
            if self.objective == "iou":
                scores["mean_iou" + suffix] = normalize(total, pairs, pairs, "precision")
                for name in ("precision", "recall", "f1"):
                    scores[f"soft-{name}{suffix}"] = normalize(total, n_pred, n_ref, name)
        return scores


def _padded(name: str, images: Sequence[Any], labels: Any, is_labelled: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    # images: B of (N, 4) or dictionaries  labels: B of (N,)  ->  (B, N, 4), (B,), (B, N)
    if not images:
        raise ValueError(f"{name}: got no images, wanted at least one")
    wanted = ("boxes", "labels") if is_labelled and labels is None else ("boxes",)
    for i, image in enumerate(images):
        for key in wanted if isinstance(image, Mapping) else ():
            if key not in image:
                raise ValueError(f"{name}: image {i} has {', '.join(map(repr, image)) or 'no key'}, wanted {key!r}")
    labels = [image["labels"] for image in images] if len(wanted) > 1 else labels
    boxes = [checks.as_tensor(image["boxes"] if isinstance(image, Mapping) else image) for image in images]
    boxes = [rows.reshape(-1, 4) if rows.numel() == 0 else rows for rows in boxes]
    for i, rows in enumerate(boxes):
        checks.shape(f"{name}[{i}]", rows, "N", 4)
    sizes = [len(rows) for rows in boxes]
    if isinstance(labels, list | tuple):
        columns = [checks.as_tensor(label).reshape(-1).long() for label in labels]
        if [*map(len, columns)] != sizes:
            raise ValueError(f"{name}: got {[*map(len, columns)]} labels, wanted {sizes}, one for each box")
        labels = pad_sequence(columns, batch_first=True)
    return pad_sequence(boxes, batch_first=True), torch.tensor(sizes, device=boxes[0].device), labels


@takes_arrays
def box_iou(a: Tensor, b: Tensor) -> Tensor:
    """Compute the intersection over union of all pairs of boxes.

    It is 0 for a box without area, and NaN if a coordinate or an area is not finite.

    Shapes: a: (..., N, 4); b: (..., M, 4) as x1, y1, x2, y2 -> (..., N, M), float32, or float64 if an input is.

    >>> box_iou(torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([[0.0, 0, 2, 3], [4, 4, 5, 5]]))
    tensor([[0.6667, 0.0000]])
    """
    checks.shape("a", a, "...", "N", 4)
    checks.shape("b", b, "...", "M", 4)
    checks.same_device(a=a, b=b)
    if any(n != m and 1 not in (n, m) for n, m in zip(a.shape[-3::-1], b.shape[-3::-1], strict=False)):
        shapes = f"{tuple(a.shape[:-2])} of a, {tuple(b.shape[:-2])} of b"
        raise ValueError(f"leading dimensions do not broadcast: got {shapes}")
    a, b = (_corners(boxes, "xyxy") for boxes in (a, b))
    a, b = a[..., :, None, :], b[..., None, :, :]
    extent = torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])
    shared = extent.clamp(min=0).prod(-1)
    area_a, area_b = ((box[..., 2:] - box[..., :2]).clamp(min=0).prod(-1) for box in (a, b))
    union = area_a + area_b - shared
    is_finite = a.isfinite().all(-1) & b.isfinite().all(-1) & union.isfinite()
    ratio = (shared / union.where(union > 0, 1)).where((area_a > 0) & (area_b > 0), 0)
    return ratio.masked_fill(~is_finite, torch.nan)


def _corners(boxes: Tensor, format: str) -> Tensor:
    boxes = boxes if boxes.dtype == torch.float64 else boxes.float()
    if format == "xyxy":
        return boxes
    start, size = boxes[..., :2], boxes[..., 2:]
    start = start - size / 2 if format == "cxcywh" else start
    return torch.cat([start, start + size], -1)
