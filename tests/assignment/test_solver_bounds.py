"""Where rows have more than 1,000 columns the CPU's search leaves out most of a row, with the bits of whole scans.

The same problem is solved as it is, by whole scans, and as the corner of a matrix with many columns, by bounds.
"""

import pytest
import torch
from torch import Tensor

from tensormetrics import _native
from tensormetrics.assignment import _op

MANY = 1030  # columns: csrc/lsa/lsa_cpu.cpp, kMinBoundedColumns
pytestmark = pytest.mark.skipif(not _native.has_kernel("lsa", "cpu"), reason="no native code")


def costs(kind: str, rows: int, cols: int, generator: torch.Generator) -> Tensor:
    x = torch.rand(rows, cols, generator=generator, dtype=torch.float64)
    left, right = (torch.rand(n, 2, generator=generator, dtype=torch.float64) for n in (rows, cols))
    made = {
        "uniform": lambda: x,
        "geometric": lambda: torch.cdist(left, right),
        "ties": lambda: (x < 0.02).double(),
        "few": lambda: (50 * x).floor(),
        "products": lambda: torch.arange(1.0, rows + 1)[:, None] * torch.arange(1.0, cols + 1),
        "scales": lambda: 2.0 ** -(60 * x).floor(),
        "shifted": lambda: x + 1e6,  # float32 rounds prices up and down
        "forbidden": lambda: x.where(x < 0.1, torch.inf),
    }
    return made[kind]()


def options(name: str, rows: int, cols: int, generator: torch.Generator) -> dict[str, Tensor]:
    made = {
        "plain": {},
        "mask": {"mask": torch.rand(rows, cols, generator=generator) < 0.2},
        "capacity": {"col_capacity": torch.randint(0, 3, (cols,), generator=generator)},
        "unmatched": {"unmatched_cost": torch.tensor(0.02)},
    }
    return made[name]


def solved(cost: Tensor, maximize: bool, given: dict[str, Tensor], padded: bool) -> list[Tensor]:
    rows, cols = cost.shape
    lengths = [torch.tensor(rows), torch.tensor(cols)] if padded else [None, None]
    if padded:
        given = {name: wider(x, MANY) if name != "unmatched_cost" else x for name, x in given.items()}
        cost = wider(cost, MANY)
    mask, capacity, unmatched = (given.get(name) for name in ("mask", "col_capacity", "unmatched_cost"))
    unmatched = None if unmatched is None else unmatched.to(cost)
    results = _op.lsa(cost, maximize, *lengths, mask, capacity, unmatched)
    return [x[..., :cols] if x.dim() and x.shape[-1] == MANY else x for x in results]


def wider(x: Tensor, width: int) -> Tensor:
    return torch.cat([x, x.new_ones(*x.shape[:-1], width - x.shape[-1])], -1)


def same_bits(one: Tensor, other: Tensor) -> bool:
    return one.reshape(-1).view(torch.uint8).equal(other.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(203, 203), (150, 301), (301, 150), (40, 9), (3, 5)])
@pytest.mark.parametrize("kind", ["uniform", "geometric", "ties", "few", "products", "scales", "shifted", "forbidden"])
def test_bits_are_those_of_whole_scans(kind, shape, dtype, generator):
    cost = costs(kind, *shape, generator).to(dtype)
    for name in ("plain", "mask", "capacity", "unmatched"):
        given = options(name, *shape, generator)
        for maximize in (False, True) if name == "plain" and kind != "forbidden" else (False,):
            whole, bounded = (solved(cost, maximize, given, padded) for padded in (False, True))
            for one, other in zip(whole, bounded, strict=True):
                assert same_bits(one, other), (name, maximize)
