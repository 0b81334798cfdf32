"""Predictions of a wrong type, such as those parsed from a malformed answer of a language model."""

from collections.abc import Sequence
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from ..tensors.overlap import Overlap
from .metric import StructuredMetric

INVALID_DOCUMENT = object()  # replaces an invalid prediction
INVALID = "invalid"  # key of the number of invalid predictions
INVALID_FIELDS = "invalid_fields"  # key of the number of invalid fields of other predictions


def mark_invalid(metric: StructuredMetric, preds: Sequence[Any], refs: Sequence[Any]) -> list[Any]:
    """Replace predictions that cannot be read by INVALID_DOCUMENT.

    The cost grows with the number of invalid predictions, each of which is found by bisection.

    Raises:
        TypeError, ValueError: If a reference cannot be read.
    """
    preds = list(preds)
    if _reads(metric, preds, refs):
        return preds
    metric.read([], refs)
    pending = [(0, len(preds))]
    while pending:
        start, stop = pending.pop()
        if _reads(metric, preds[start:stop], []):
            continue
        if stop - start == 1:
            preds[start] = INVALID_DOCUMENT
            continue
        split = (start + stop) // 2
        pending += [(start, split), (split, stop)]
    return preds


def _reads(metric: StructuredMetric, preds: Sequence[Any], refs: Sequence[Any]) -> bool:
    try:
        metric.read(preds, refs)
    except (TypeError, ValueError):
        return False
    return True


def invalid_mask(preds: Sequence[Any], device: torch.device) -> Tensor:
    # B objects  ->  (B,) bool
    """Return the mask of invalid predictions."""
    return torch.tensor([pred is INVALID_DOCUMENT for pred in preds], dtype=torch.bool, device=device)


def overlap_of_valid(
    metric: StructuredMetric, preds: Sequence[Any], refs: Sequence[Any], reads: Sequence[str], self_overlap: float
) -> Overlap:
    # B objects each  ->  (B,) each
    """Compute the overlaps; an invalid prediction has overlap 0 with every reference.

    `self_overlap` is that of an invalid prediction with itself.
    """
    valid = [pred is not INVALID_DOCUMENT for pred in preds]
    if all(valid):
        return metric.cross_and_self_overlaps(preds, refs, reads)
    mask = torch.tensor(valid, device=metric.device)
    overlaps = metric.cross_and_self_overlaps(list(compress(preds, valid)), list(compress(refs, valid)), reads)
    cross, pred, ref = (overlap.new_zeros(len(valid)).index_put_((mask,), overlap) for overlap in overlaps)
    if "pred" in reads:
        pred[~mask] = self_overlap
    if "ref" in reads:
        ref[~mask] = metric.self_overlaps([r for r, is_valid in zip(refs, valid, strict=True) if not is_valid])
    return Overlap(cross, pred, ref)
