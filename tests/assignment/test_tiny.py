"""Tiny problems, solved in parallel in the lanes of vectors, and wide ones, by bounds, have the bits of plain calls.

With more than 1,000 columns most of a row is skipped: each problem is solved as it is, by full scans, and as the corner
of a wide matrix.
"""

import os
import subprocess
import sys

import pytest
import torch
from oracle import COSTS, costs
from torch import Tensor

from tensormetrics.assignment import _op, linear_sum_assignment

SHAPES = [(1, 1), (1, 5), (2, 2), (5, 7), (7, 5), (8, 8), (13, 16), (16, 16)]
KINDS = ["uniform", "ties", "integers", "products", "sizes"]
BATCH = 21  # no multiple of a vector


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


BOUNDED_COLS = 1030  # columns: csrc/lsa/lsa_cpu.cpp, kMinBoundedColumns


def options(name: str, rows: int, cols: int, generator: torch.Generator) -> dict[str, Tensor]:
    choices = {
        "plain": {},
        "mask": {"mask": torch.rand(rows, cols, generator=generator) < 0.2},
        "capacity": {"col_capacity": torch.randint(0, 3, (cols,), generator=generator)},
        "unmatched": {"unmatched_cost": torch.tensor(0.02)},
    }
    return choices[name]


def solve(cost: Tensor, maximize: bool, tensors: dict[str, Tensor], padded: bool) -> list[Tensor]:
    rows, cols = cost.shape
    lengths = [torch.tensor(rows), torch.tensor(cols)] if padded else [None, None]
    if padded:
        tensors = {name: pad_columns(x, BOUNDED_COLS) if name != "unmatched_cost" else x for name, x in tensors.items()}
        cost = pad_columns(cost, BOUNDED_COLS)
    mask, capacity, unmatched = (tensors.get(name) for name in ("mask", "col_capacity", "unmatched_cost"))
    unmatched = None if unmatched is None else unmatched.to(cost)
    results = _op.lsa(cost, maximize, *lengths, mask, capacity, unmatched)
    return [x[..., :cols] if x.dim() and x.shape[-1] == BOUNDED_COLS else x for x in results]


def pad_columns(x: Tensor, width: int) -> Tensor:
    return torch.cat([x, x.new_ones(*x.shape[:-1], width - x.shape[-1])], -1)


def same_bits(left: Tensor, right: Tensor) -> bool:
    return left.reshape(-1).view(torch.uint8).equal(right.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(203, 203), (150, 301), (301, 150), (40, 9), (3, 5)])
@pytest.mark.parametrize("kind", COSTS)
def test_bounded_search_has_bits_of_full_scans(kind, shape, dtype, generator):
    cost = costs(kind, *shape, dtype=dtype)
    for name in ("plain", "mask", "capacity", "unmatched"):
        tensors = options(name, *shape, generator)
        for maximize in (False, True) if name == "plain" and kind != "forbidden" else (False,):
            full, bounded = (solve(cost, maximize, tensors, padded) for padded in (False, True))
            for full_field, bounded_field in zip(full, bounded, strict=True):
                assert same_bits(full_field, bounded_field), (name, maximize)
