"""Predictions that are no values of their type, such as what a parser made of a language model's broken answer."""

from collections.abc import Sequence
from itertools import compress
from typing import Any

import torch

from ..tensors.overlap import Overlap
from .metric import StructuredMetric

EMPTY = object()  # in the place of an invalid prediction
INVALID = "invalid"  # the key of their number


def with_empty(metric: StructuredMetric, preds: Sequence[Any], refs: Sequence[Any]) -> list[Any]:
    """The predictions, EMPTY where one cannot be read; an error for references that cannot."""
    try:
        metric.read(preds, refs)
        return list(preds)
    except (TypeError, ValueError):
        metric.read([], refs)
    return [pred if _reads(metric, pred) else EMPTY for pred in preds]


def _reads(metric: StructuredMetric, pred: Any) -> bool:
    try:
        metric.read([pred], [])
    except (TypeError, ValueError):
        return False
    return True


def overlap_of_valid(
    metric: StructuredMetric, preds: Sequence[Any], refs: Sequence[Any], reads: Sequence[str]
) -> Overlap:
    # B objects each  ->  (B,) each
    """The overlaps, where an EMPTY prediction shares nothing and has nothing in itself."""
    valid = [pred is not EMPTY for pred in preds]
    if all(valid):
        return metric.cross_and_selves(preds, refs, reads)
    known = torch.tensor(valid, device=metric.device)
    found = metric.cross_and_selves(list(compress(preds, valid)), list(compress(refs, valid)), reads)
    cross, pred, ref = (side.new_zeros(len(valid)).index_put_((known,), side) for side in found)
    if "ref" in reads:
        ref[~known] = metric.selves([r for r, is_known in zip(refs, valid, strict=True) if not is_known])
    return Overlap(cross, pred, ref)
