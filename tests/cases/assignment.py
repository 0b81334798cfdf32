"""Rows of the assignment solver."""

import numpy as np
import torch
from torch import Generator, Tensor

from tensormetrics.assignment import linear_sum_assignment

from .case import FunctionCase, LeftOut


def ragged_costs(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    cost = torch.randn(*batch_shape, 5, 6, generator=generator)
    return cost, *(torch.randint(0, n + 1, batch_shape, generator=generator) for n in (5, 6))


def solve(cost: Tensor, row_lengths: Tensor, col_lengths: Tensor) -> tuple[Tensor, ...]:
    return tuple(linear_sum_assignment(cost, row_lengths=row_lengths, col_lengths=col_lengths, check=False))


def pad_costs(garbage: float, cost: Tensor, row_lengths: Tensor, col_lengths: Tensor) -> tuple[Tensor, ...]:
    padded = cost.new_full((*cost.shape[:-2], 8, 11), garbage)
    padded[..., :5, :6] = cost
    for index, matrix in zip(np.ndindex(*cost.shape[:-2]), padded.flatten(0, -3), strict=True):
        matrix[row_lengths[index] :] = garbage
        matrix[:, col_lengths[index] :] = garbage
    return padded, row_lengths, col_lengths


def unpad_solution(results: tuple[Tensor, ...], *_: Tensor) -> tuple[Tensor, ...]:
    col_of_row, row_of_col, cost, row_dual, col_dual, status = results
    return col_of_row[..., :5], row_of_col[..., :6], cost, row_dual[..., :5], col_dual[..., :6], status


FUNCTIONS = {
    "linear_sum_assignment": FunctionCase(
        solve,
        ragged_costs,
        pad_costs,
        unpad_solution,
        compiles=True,
        not_finite=lambda position, value: LeftOut(
            "forbids the pair" if value == torch.inf else "status 2 and no pairs"
        ),
    ),
}
