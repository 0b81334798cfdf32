"""Tiny problems are solved side by side in the lanes of vectors, with the bits of each alone, at every width."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from tensormetrics import _native
from tensormetrics.assignment import _op, linear_sum_assignment

SHAPES = [(1, 1), (1, 5), (2, 2), (5, 7), (7, 5), (8, 8), (13, 16), (16, 16)]
KINDS = ["uniform", "ties", "few", "products", "sizes"]
BATCH = 21  # no multiple of a vector

needs_kernel = pytest.mark.skipif(not _native.has_kernel("lsa", "cpu"), reason="no native code")


def costs(kind: str, shape: tuple[int, int], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    x = torch.rand(BATCH, *shape, generator=generator, dtype=torch.float64)
    index = torch.arange(1, shape[0] + 1)[:, None] * torch.arange(1, shape[1] + 1)
    made = {
        "uniform": x,
        "ties": (x < 0.5).double(),
        "few": (4 * x).floor() - 2,
        "products": index + 0 * x,
        "sizes": x * 10.0 ** torch.randint(-6, 7, (BATCH, 1, 1), generator=generator),
    }
    return made[kind].to(dtype)


def assert_as_alone(cost: Tensor, maximize: bool, *lengths: Tensor) -> None:
    together = _op.lsa(cost, maximize, *lengths)
    for b in range(len(cost)):
        alone = _op.lsa(cost[b : b + 1].contiguous(), maximize, *(each[b : b + 1].contiguous() for each in lengths))
        for one, other in zip(together, alone, strict=True):
            # Bits: of zeros the sign, of what is not a number the same.
            assert one[b : b + 1].contiguous().view(torch.uint8).equal(other.view(torch.uint8)), (b, one[b], other)


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_are_those_of_each_problem_alone(kind, dtype, generator):
    for shape in SHAPES:
        cost = costs(kind, shape, dtype, generator)
        rows, cols = (torch.randint(0, size + 1, (BATCH,), generator=generator) for size in shape)
        for maximize in (False, True):
            assert_as_alone(cost, maximize)
            assert_as_alone(cost.mT, maximize)
            assert_as_alone(cost, maximize, rows, cols)


@needs_kernel
def test_what_is_not_plain_is_left_to_the_common_way(generator):
    cost = costs("uniform", (6, 6), torch.float32, generator)
    cost[3, 0, 0], cost[5, 2], cost[7, 1, 1], cost[9] = torch.nan, torch.inf, -torch.inf, cost[9] * 2.0**126
    assert_as_alone(cost, False)
    status = _op.lsa(cost, False)[4]
    assert status.nonzero()[:, 0].tolist() == [3, 5, 7]
    mask = torch.rand(BATCH, 6, 6, generator=generator) < 0.8
    found = linear_sum_assignment(cost[10:], mask=mask[10:], check=False)
    for b in range(BATCH - 10):
        alone = linear_sum_assignment(cost[10 + b], mask=mask[10 + b], check=False)
        assert found.col_of_row[b].equal(alone.col_of_row)


@needs_kernel
@pytest.mark.parametrize("width", [16, 32])
def test_narrower_vectors_give_the_same_bits(width, tmp_path):
    """In a process of its own, for which the choice of the vectors is forced."""
    here = solved()
    code = f"import torch; from tests.assignment.test_tiny import solved; torch.save(solved(), {str(tmp_path / 'x')!r})"
    environment = {**os.environ, "TENSORMETRICS_VECTOR_BYTES": str(width), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    for one, other in zip(here, torch.load(tmp_path / "x"), strict=True):
        assert one.contiguous().view(torch.uint8).equal(other.contiguous().view(torch.uint8))


def solved() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    cases = [
        (kind, shape, dtype)
        for kind in KINDS
        for shape in [*SHAPES, (30, 30), (20, 140), (20, 1030)]
        for dtype in (torch.float32, torch.float64)
    ]
    found = (_op.lsa(costs(*case, generator), False) for case in cases)
    return [each for results in found for each in results]
