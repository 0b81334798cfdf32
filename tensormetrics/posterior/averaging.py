"""From one value per class to one value: (..., C) -> (..., 1)."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .sums import ConfusionSums


class Averaging(NamedTuple):
    aliases: tuple[str, ...]  # the first is canonical
    full_name: str
    formula: Callable[[Tensor, ConfusionSums], Tensor]  # values and sums: (..., C) -> (..., 1)


def _macro(values: Tensor, sums: ConfusionSums) -> Tensor:
    return values.mean(-1, keepdim=True)


def _weighted(values: Tensor, sums: ConfusionSums) -> Tensor:
    """Weights are the prevalences; a class of prevalence 0 counts for nothing, even where its value is undefined."""
    weights = sums.condition
    weighted = torch.where(weights == 0, 0, weights * values)
    return weighted.sum(-1, keepdim=True) / weights.sum(-1, keepdim=True)


AVERAGINGS = (
    Averaging(("macro", "macro_average", "mean"), "Macro Averaging", _macro),
    Averaging(("weighted", "weighted_average"), "Class Prevalence Weighted Averaging", _weighted),
)
