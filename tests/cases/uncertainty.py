"""Rows of the words that all domains share."""

import numpy as np
import torch
from torch import Generator, Tensor
from torchmetrics import MeanSquaredError

from tensormetrics import uncertainty

from .case import FunctionCase, LeftOut, MetricCase


def two_sides(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    return tuple(torch.randint(0, 9, (2, items), generator=generator).double())  # sums in float32 are exact


METRICS = {
    "Uncertain": MetricCase(
        lambda: uncertainty.Uncertain(MeanSquaredError(), replicates=0),  # with replicates: test_table.py
        two_sides,
        lambda preds, target: [np.mean((preds - target) ** 2)],
        rtol=1e-6,
        not_finite="nan",
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
