"""Rows of the words that all domains share."""

import numpy as np
import torch
from torch import Generator, Tensor
from torchmetrics.classification import MulticlassF1Score

from tensormetrics import uncertainty

from .case import MetricCase


def some_classes(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    target, noise = torch.randint(0, 4, (2, items), generator=generator)
    return torch.where(torch.rand(items, generator=generator) < 0.6, target, noise), target


def macro_f1(preds: np.ndarray, target: np.ndarray) -> list[float]:
    scores = []
    for c in range(4):
        hits = np.sum((preds == c) & (target == c))
        scores.append(2 * hits / (np.sum(preds == c) + np.sum(target == c)))
    return [np.mean(scores)]


METRICS = {
    "Uncertain": MetricCase(
        lambda: uncertainty.Uncertain(MulticlassF1Score(4, validate_args=False), replicates=20),
        some_classes,
        macro_f1,
        rtol=1e-6,
        bad=((torch.zeros(3).long(), torch.zeros(4).long()),),
        not_finite="no floats",
    ),
}
ROWLESS = {"as_scalars": "it writes numbers for loggers"}
