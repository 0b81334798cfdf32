"""Bounds of single items for torchmetrics' metrics of confusion counts."""

import re

import torch
import torchmetrics
from torch import Tensor

ROW = tuple[float, float, float, float]  # true positives, false positives, true negatives, false negatives
TRUE_POSITIVE: ROW = (1, 0, 0, 0)
HALF_WRONG: ROW = (0, 0.5, 0, 0.5)
WRONG: ROW = (0, 1, 0, 1)
BOUNDS: dict[str, tuple[ROW, ROW]] = {  # name without "Binary", ...  ->  worst, best
    "Accuracy": (WRONG, TRUE_POSITIVE),
    "HammingDistance": (WRONG, TRUE_POSITIVE),
    "FBetaScore": (HALF_WRONG, TRUE_POSITIVE),
    "JaccardIndex": (HALF_WRONG, TRUE_POSITIVE),
    "Precision": ((0, 1, 0, 0), TRUE_POSITIVE),
    "Recall": ((0, 0, 0, 1), TRUE_POSITIVE),
    "Specificity": ((0, 1, 0, 0), (0, 0, 1, 0)),
    "NegativePredictiveValue": ((0, 0, 0, 1), (0, 0, 1, 0)),
}


def item_bounds(metric: torchmetrics.Metric) -> tuple[dict[str, Tensor], dict[str, Tensor]] | None:
    """Return the states of the worst and the best possible item; None for metrics that are not in the table."""
    for cls in type(metric).__mro__:
        match = re.fullmatch(r"(Binary|Multiclass|Multilabel)(\w+)", cls.__name__)
        if match and match[2] in BOUNDS and cls.__module__.startswith("torchmetrics."):
            worst, best = BOUNDS[match[2]]
            if match[1] != "Multiclass" and worst is WRONG:  # an item is one kind of error
                worst = HALF_WRONG
            return _states(metric, worst), _states(metric, best)
    return None


def _states(metric: torchmetrics.Metric, row: ROW) -> dict[str, Tensor]:
    states = {name: torch.as_tensor(default) for name, default in metric._defaults.items()}
    is_averaged = getattr(metric, "average", None) in ("micro", "macro", "weighted")
    if "confmat" not in states:
        fraction = 1 / max(states["tp"].numel(), 1) if is_averaged else 1.0  # of the item that falls to each class
        counts = dict(zip(("tp", "fp", "tn", "fn"), row, strict=True))
        return {
            name: torch.full(state.shape, fraction * counts[name], dtype=torch.float64, device="cpu")
            for name, state in states.items()
        }
    shape = states["confmat"].shape
    classes = shape[-1]
    right = torch.eye(classes, dtype=torch.float64, device="cpu")
    wrong = 1 - right
    if classes == 2 and "Multiclass" not in type(metric).__name__:
        right = torch.diag(torch.tensor([0.0, 1.0], dtype=torch.float64, device="cpu"))  # of class 1
    matrix = right / right.sum() if row is TRUE_POSITIVE else wrong / wrong.sum()
    return {"confmat": matrix.expand(shape) / (shape[0] if len(shape) > 2 and is_averaged else 1)}


def items_of(metric: torchmetrics.Metric, states: dict[str, Tensor]) -> Tensor:
    # ->  () float64
    """Count the items of the states of a metric in the table."""
    if "confmat" in states:
        shape = states["confmat"].shape
        return states["confmat"].sum() / (shape[0] if len(shape) > 2 else 1)
    if any(cls.__name__.startswith("Multiclass") for cls in type(metric).__mro__):
        return (states["tp"] + states["fn"]).sum()
    return torch.stack(list(states.values())).sum() / max(states["tp"].numel(), 1)
