"""How many sums are extreme: the native loops against their references in torch and a loop in numpy."""

import itertools
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from tensormetrics import _native
from tensormetrics.association import permutation_p_value
from tensormetrics.association.resampling import draws, subset_sums
from tensormetrics.association.resampling.random import Tails, stream

needs_kernel = pytest.mark.skipif(not _native.has_kernel("extreme_draws", "cpu"), reason="built without native code")
KINDS = ["any", "ties", "equal", "largest"]


def units_of(kind: str, generator: torch.Generator, *shape: int) -> Tensor:
    if kind == "equal":
        return torch.full(shape, -7)
    bound = {"any": 2**40, "ties": 3, "largest": 2**41}[kind]
    units = torch.randint(-bound, bound + 1, shape, generator=generator)
    return units.sign() * bound if kind == "largest" else units


def bounds_of(units: Tensor, generator: torch.Generator) -> list[Tails]:
    """Bounds that some sums meet exactly, one side and both."""
    low, high = ((units * torch.randint(0, 2, units.shape, generator=generator)).sum(-1) for _ in range(2))
    return [Tails(low, None), Tails(None, high), Tails(low, high), Tails(low, low - 1)]


def counted(units: Tensor, present: Tensor, n: Tensor | None, tails: Tails) -> list[int]:
    """All subsets one by one, in Python's integers."""
    found = []
    for b, (row, there) in enumerate(zip(units.tolist(), present.tolist(), strict=True)):
        values = [value for value, is_there in zip(row, there, strict=True) if is_there or n is None]
        sizes = range(len(values) + 1) if n is None else [int(n[b])]
        sums = [sum(chosen) for size in sizes for chosen in itertools.combinations(values, size)]
        low, high = (
            (math.inf if tails.low is None else tails.low[b]),
            (-math.inf if tails.high is None else tails.high[b]),
        )
        found.append(sum(s >= low for s in sums) + sum(s <= high for s in sums))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_subsets_against_all_of_them(kind, generator, device):
    for places in (1, 2, 5, 10):
        units = units_of(kind, generator, places + 1, places)
        present = torch.rand(places + 1, places, generator=generator) < 0.8
        size = present.sum(-1).to(device)
        n = torch.arange(places + 1).minimum(present.sum(-1))
        for tails, some in itertools.product(bounds_of(units, generator), (n, None)):
            moved = [None if each is None else each.to(device) for each in (units, present, some, *tails)]
            found = subset_sums.extreme_subsets(*moved[:3], size if some is n else None, Tails(*moved[3:]))
            assert found.tolist() == counted(units, present, some, tails)


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "places", [17, 32, 37, pytest.param(46, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.slow)]
)
def test_many_subsets_against_the_reference(kind, places, generator):
    """Tables of a thread, tables that threads share, and values that are in neither table."""
    units = units_of(kind, generator, 3, places)
    present = torch.rand(3, places, generator=generator) < torch.tensor([[0.9], [1.0], [1.0]])
    n = torch.stack([present[0].sum() // 2, torch.tensor(places // 2), torch.tensor(places - 3)])
    for tails, some in itertools.product(bounds_of(units, generator)[2:3], (n, None) if places <= 40 else (n,)):
        found = subset_sums.OPERATOR(units, present, some, *tails)
        assert torch.equal(found, subset_sums._extreme_subsets(units, present, some, *tails))


def drawn(n: int, size: int, places: int, replicates: int) -> np.ndarray:
    """(replicates, places): the stream of seed 5 by a loop over draws and places."""
    chosen, mask = np.zeros((replicates, places), bool), 2**64 - 1
    for row, place in itertools.product(range(replicates), range(size)):
        z = ((row * 2**24 + place // 2) * 0x9E3779B97F4A7C15 + stream(5)) & mask
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        z ^= z >> 31
        draw = z >> 32 if place % 2 else z & (2**32 - 1)
        chosen[row, place] = draw * (size - place) >> 32 < n - chosen[row].sum()
    return chosen


@pytest.mark.parametrize("kind", KINDS)
def test_draws_against_a_loop(kind, generator, device):
    sizes = [(1, 1), (3, 9), (3, 9), (2, 4), (4, 9), (0, 9), (9, 9)]
    units = units_of(kind, generator, len(sizes), 9)
    for b, (_, size) in enumerate(sizes):
        units[b, size:] = 0
    n, size = torch.tensor(sizes).T
    for tails in bounds_of(units, generator):
        moved = [None if each is None else each.to(device) for each in tails]
        args = units.to(device), n.to(device), size.to(device), Tails(*moved), stream(5), 70
        sums = np.stack([drawn(*each, 9, 70) @ row for each, row in zip(sizes, units.numpy(), strict=True)])
        low, high = (np.inf if tails.low is None else tails.low[:, None].numpy()), -np.inf
        high = high if tails.high is None else tails.high[:, None].numpy()
        expected = ((sums >= low) | (sums <= high)).sum(1)
        assert draws.extreme_draws(*args).tolist() == expected.tolist()


def calls() -> tuple[list[Tensor], list[Tensor]]:
    generator = torch.Generator().manual_seed(1)
    found, expected = [], []
    for kind, places, replicates in itertools.product(KINDS, (1, 2, 50, 131), (1, 64, 200)):
        units = units_of(kind, generator, 9, places)
        size = torch.randint(1, places + 1, (9,), generator=generator)
        n = (size * torch.rand(9, generator=generator)).long() + 1
        n, size = n.minimum(size), size
        for tails in bounds_of(units, generator):
            for sizes in ((n, size), (n[:1], size[:1]), (None, None)):
                found.append(draws.extreme_draws(units, *sizes, tails, 12345, replicates))
                expected.append(draws._extreme_draws(units.double(), *sizes, *tails, 12345, replicates))
    return found, expected


@needs_kernel
@pytest.mark.parametrize("width", [16, pytest.param(32, marks=pytest.mark.slow)])
def test_draws_of_every_vector_width_are_those_of_the_reference(width):
    """Narrower ones in a process of its own, for which the choice is forced."""
    assert all(a.equal(b) for a, b in zip(*calls(), strict=True))
    code = "from tests.association.test_extreme import calls; found, expected = calls()"
    code += "; assert all(a.equal(b) for a, b in zip(found, expected, strict=True)); print(len(found))"
    environment = {**os.environ, "TENSORMETRICS_VECTOR_BYTES": str(width), "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (said.returncode, said.stdout.strip()) == (0, "576"), said.stderr


@needs_kernel
def test_threads_change_nothing(generator):
    u, v = (torch.randn(3, k, generator=generator, dtype=torch.float64) for k in (19, 20))
    found, threads = [], torch.get_num_threads()
    try:
        for number in (1, 2, 5):
            torch.set_num_threads(number)
            found += [permutation_p_value(u, v, method="exact"), permutation_p_value(u, v, replicates=100_000)]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(found[2:], found, strict=False))


def test_no_queries_and_no_places(device):
    no = torch.zeros(0, 3, dtype=torch.int64, device=device)
    n, tails = no[:, 0], Tails(no[:, 0], None)
    assert (
        draws.extreme_draws(no, n, n, tails, 1, 5).shape == subset_sums.extreme_subsets(no, no > 0, n, n, tails).shape
    )
    none = no.new_zeros(2, 0)
    n, tails = none.sum(-1), Tails(torch.tensor([0, 1], device=device), None)
    assert draws.extreme_draws(none, n, n, tails, 1, 5).tolist() == [5, 0]
    assert subset_sums.extreme_subsets(none, none > 0, n, n, tails).tolist() == [1, 0]
