"""Bounded search on the CPU: with more than 1,000 columns most of a row is skipped, with the bits of full scans.

Each problem is solved twice: as it is, by full scans, and as the corner of a wide matrix, by bounds.
"""

import pytest
import torch
from oracle import COSTS, costs
from torch import Tensor

from tensormetrics.assignment import _op
from tensormetrics.core.native import native

BOUNDED_COLS = 1030  # columns: csrc/lsa/lsa_cpu.cpp, kMinBoundedColumns
pytestmark = pytest.mark.skipif(not native.has_kernel("lsa", "cpu"), reason="no native code")


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
