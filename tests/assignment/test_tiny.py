"""Tiny problems are solved in parallel in the lanes of vectors, with the bits of separate calls, at every width."""

import os
import subprocess
import sys

import pytest
import torch
from oracle import costs
from torch import Tensor

from tensormetrics.assignment import _op, linear_sum_assignment
from tensormetrics.core.native import native

SHAPES = [(1, 1), (1, 5), (2, 2), (5, 7), (7, 5), (8, 8), (13, 16), (16, 16)]
KINDS = ["uniform", "ties", "integers", "products", "sizes"]
BATCH = 21  # no multiple of a vector

needs_kernel = pytest.mark.skipif(not native.has_kernel("lsa", "cpu"), reason="no native code")


def assert_batch_equals_single(cost: Tensor, maximize: bool, *lengths: Tensor) -> None:
    batched = _op.lsa(cost, maximize, *lengths)
    for b in range(len(cost)):
        single = _op.lsa(
            cost[b : b + 1].contiguous(), maximize, *(length[b : b + 1].contiguous() for length in lengths)
        )
        for left, right in zip(batched, single, strict=True):
            # Compare bits: these include the sign of zeros, and NaN equals NaN.
            assert left[b : b + 1].contiguous().view(torch.uint8).equal(right.view(torch.uint8)), (
                b,
                left[b],
                right,
            )


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiny_problems_in_batch_equal_single_problems(kind, dtype, generator):
    for shape in SHAPES:
        cost = costs(kind, BATCH, *shape, dtype=dtype)
        rows, cols = (torch.randint(0, size + 1, (BATCH,), generator=generator) for size in shape)
        for maximize in (False, True):
            assert_batch_equals_single(cost, maximize)
            assert_batch_equals_single(cost.mT, maximize)
            assert_batch_equals_single(cost, maximize, rows, cols)


@needs_kernel
def test_tiny_nonfinite_huge_or_masked_problems_equal_single_ones(generator):
    cost = costs("uniform", BATCH, 6, 6, dtype=torch.float32)
    cost[3, 0, 0], cost[5, 2], cost[7, 1, 1], cost[9] = torch.nan, torch.inf, -torch.inf, cost[9] * 2.0**126
    assert_batch_equals_single(cost, False)
    status = _op.lsa(cost, False)[4]
    assert status.nonzero()[:, 0].tolist() == [3, 5, 7]
    mask = torch.rand(BATCH, 6, 6, generator=generator) < 0.8
    batched = linear_sum_assignment(cost[10:], mask=mask[10:], check=False)
    for b in range(BATCH - 10):
        single = linear_sum_assignment(cost[10 + b], mask=mask[10 + b], check=False)
        assert batched.col_of_row[b].equal(single.col_of_row)


@pytest.mark.full
@needs_kernel
@pytest.mark.parametrize("width", [16, 32])
def test_tiny_narrower_vectors_give_same_bits(width, tmp_path):
    """Run in a separate process, for which the width of the vectors is forced."""
    expected = solve_all()
    code = f"import torch, tests.assignment.test_tiny as t; torch.save(t.solve_all(), {str(tmp_path / 'x')!r})"
    environment = {**os.environ, "TENSORMETRICS_VECTOR_BYTES": str(width), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    for expected_field, field in zip(expected, torch.load(tmp_path / "x"), strict=True):
        assert expected_field.contiguous().view(torch.uint8).equal(field.contiguous().view(torch.uint8))


def solve_all() -> list[Tensor]:
    problems = [
        costs(kind, BATCH, *shape, dtype=dtype)
        for kind in KINDS
        for shape in [*SHAPES, (30, 30), (20, 140), (20, 1030)]
        for dtype in (torch.float32, torch.float64)
    ]
    return [field for cost in problems for field in _op.lsa(cost, False)]
