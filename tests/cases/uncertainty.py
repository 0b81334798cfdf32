"""Rows of the words that all domains share."""

import numpy as np
import torch
from torch import Generator, Tensor
from torchmetrics.classification import MulticlassF1Score

from tensormetrics import uncertainty

from .case import FunctionCase, LeftOut, MetricCase


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


def some_p_values(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor]:
    return (torch.rand(*lead, 9, generator=generator).double() ** 2,)


def without_them(p_values: Tensor) -> tuple[Tensor, ...]:
    kept = p_values.isfinite()
    return tuple(
        torch.stack(
            [
                torch.full_like(row, torch.nan).masked_scatter(here, uncertainty.correct_p_values(row[here], how))
                for row, here in zip(p_values, kept, strict=True)
            ]
        )
        for how in ("holm", "bh")
    )


FUNCTIONS = {
    "correct_p_values": FunctionCase(
        lambda p: tuple(uncertainty.correct_p_values(p, how) for how in ("holm", "bh")),
        some_p_values,
        not_finite=LeftOut("it is no test, and NaN", without_them),
    ),
}
ROWLESS = {}
