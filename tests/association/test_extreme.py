"""Counts of extreme sums: native loops against their references in torch and loops in NumPy and Python."""

import itertools
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from tensormetrics.association.functional import permutation_p_value
from tensormetrics.association.resampling import draws, subset_sums
from tensormetrics.association.resampling.random import Tails, stream

KINDS = ["any", "ties", "equal", "largest"]


def units_of(kind: str, generator: torch.Generator, *shape: int) -> Tensor:
    if kind == "equal":
        return torch.full(shape, -7)
    bound = {"any": 2**40, "ties": 3, "largest": 2**41}[kind]
    units = torch.randint(-bound, bound + 1, shape, generator=generator)
    return units.sign() * bound if kind == "largest" else units


def bounds_of(units: Tensor, generator: torch.Generator) -> list[Tails]:
    """Return one-sided and two-sided bounds that some sums equal exactly."""
    low, high = ((units * torch.randint(0, 2, units.shape, generator=generator)).sum(-1) for _ in range(2))
    return [Tails(low, None), Tails(None, high), Tails(low, high), Tails(low, low - 1)]


def enumerate_extremes(units: Tensor, valid_mask: Tensor, n: Tensor | None, tails: Tails) -> list[int]:
    """Count the extreme sums of all subsets one by one, in integers of Python."""
    counts = []
    for b, (row, valid_row) in enumerate(zip(units.tolist(), valid_mask.tolist(), strict=True)):
        values = [value for value, is_valid in zip(row, valid_row, strict=True) if is_valid or n is None]
        sizes = range(len(values) + 1) if n is None else [int(n[b])]
        sums = [sum(subset) for size in sizes for subset in itertools.combinations(values, size)]
        low, high = (
            (math.inf if tails.low is None else tails.low[b]),
            (-math.inf if tails.high is None else tails.high[b]),
        )
        counts.append(sum(s >= low for s in sums) + sum(s <= high for s in sums))
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_subsets_equal_enumeration(kind, generator, device):
    for num_positions in (1, 2, 5, 8):
        units = units_of(kind, generator, num_positions + 1, num_positions)
        valid_mask = torch.rand(num_positions + 1, num_positions, generator=generator) < 0.8
        size = valid_mask.sum(-1).to(device)
        n = torch.arange(num_positions + 1).minimum(valid_mask.sum(-1))
        for tails, subset_size in itertools.product(bounds_of(units, generator), (n, None)):
            on_device = [
                None if tensor is None else tensor.to(device) for tensor in (units, valid_mask, subset_size, *tails)
            ]
            counts = subset_sums.extreme_subsets(
                *on_device[:3], size if subset_size is n else None, Tails(*on_device[3:])
            )
            assert counts.tolist() == enumerate_extremes(units, valid_mask, subset_size, tails)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "num_positions", [17, 32, 37, pytest.param(46, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.slow)]
)
def test_extreme_subsets_native_equals_reference(kind, num_positions, generator):
    """The sizes cover tables of one thread, tables shared by threads, and values outside both tables."""
    units = units_of(kind, generator, 3, num_positions)
    valid_mask = torch.rand(3, num_positions, generator=generator) < torch.tensor([[0.9], [1.0], [1.0]])
    n = torch.stack([valid_mask[0].sum() // 2, torch.tensor(num_positions // 2), torch.tensor(num_positions - 3)])
    for tails, subset_size in itertools.product(
        bounds_of(units, generator)[2:3], (n, None) if num_positions <= 40 else (n,)
    ):
        counts = subset_sums.OPERATOR(units, valid_mask, subset_size, *tails)
        assert torch.equal(counts, subset_sums._extreme_subsets(units, valid_mask, subset_size, *tails))


def sample_subsets(n: int, size: int, num_positions: int, replicates: int) -> np.ndarray:
    """Sample subsets (replicates, num_positions) from the stream of seed 5 by a loop over draws and positions."""
    selected, mask = np.zeros((replicates, num_positions), bool), 2**64 - 1
    for row, position in itertools.product(range(replicates), range(size)):
        z = ((row * 2**24 + position // 2) * 0x9E3779B97F4A7C15 + stream(5)) & mask
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        z ^= z >> 31
        draw = z >> 32 if position % 2 else z & (2**32 - 1)
        selected[row, position] = draw * (size - position) >> 32 < n - selected[row].sum()
    return selected


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_draws_equal_loop_over_subsets(kind, generator, device):
    sizes = [(1, 1), (3, 9), (3, 9), (2, 4), (4, 9), (0, 9), (9, 9)]
    units = units_of(kind, generator, len(sizes), 9)
    for b, (_, size) in enumerate(sizes):
        units[b, size:] = 0
    n, size = torch.tensor(sizes).T
    for tails in bounds_of(units, generator):
        bounds = [None if tensor is None else tensor.to(device) for tensor in tails]
        args = units.to(device), n.to(device), size.to(device), Tails(*bounds), stream(5), 70
        sums = np.stack(
            [sample_subsets(*n_and_size, 9, 70) @ row for n_and_size, row in zip(sizes, units.numpy(), strict=True)]
        )
        low, high = (np.inf if tails.low is None else tails.low[:, None].numpy()), -np.inf
        high = high if tails.high is None else tails.high[:, None].numpy()
        expected = ((sums >= low) | (sums <= high)).sum(1)
        assert draws.extreme_draws(*args).tolist() == expected.tolist()


def native_and_reference_counts() -> tuple[list[Tensor], list[Tensor]]:
    generator = torch.Generator().manual_seed(1)
    actual, expected = [], []
    for kind, num_positions, replicates in itertools.product(KINDS, (1, 2, 50, 131), (1, 64, 200)):
        units = units_of(kind, generator, 9, num_positions)
        size = torch.randint(1, num_positions + 1, (9,), generator=generator)
        n = (size * torch.rand(9, generator=generator)).long() + 1
        n, size = n.minimum(size), size
        for tails in bounds_of(units, generator):
            for sizes in ((n, size), (n[:1], size[:1]), (None, None)):
                actual.append(draws.extreme_draws(units, *sizes, tails, 12345, replicates))
                expected.append(draws._extreme_draws(units.double(), *sizes, *tails, 12345, replicates))
    return actual, expected


def test_extreme_draws_native_equals_reference():
    assert all(a.equal(b) for a, b in zip(*native_and_reference_counts(), strict=True))


@pytest.mark.full
@pytest.mark.parametrize("width", [16, pytest.param(32, marks=pytest.mark.slow)])
def test_extreme_draws_of_each_vector_width_equal_reference(width):
    """A separate process runs narrower vectors, as the width is chosen once."""
    code = "from tests.association.test_extreme import native_and_reference_counts; "
    code += "actual, expected = native_and_reference_counts(); "
    code += "assert all(a.equal(b) for a, b in zip(actual, expected, strict=True)); print(len(actual))"
    environment = {**os.environ, "TENSORMETRICS_VECTOR_BYTES": str(width), "PYTHONPATH": os.pathsep.join(sys.path)}
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (completed.returncode, completed.stdout.strip()) == (0, "576"), completed.stderr


def test_p_values_number_of_threads_changes_nothing(generator):
    u, v = (torch.randn(3, k, generator=generator, dtype=torch.float64) for k in (19, 20))
    p_values, initial_threads = [], torch.get_num_threads()
    try:
        for num_threads in (1, 2, 5):
            torch.set_num_threads(num_threads)
            p_values += [permutation_p_value(u, v, method="exact"), permutation_p_value(u, v, replicates=100_000)]
    finally:
        torch.set_num_threads(initial_threads)
    assert all(torch.equal(a, b) for a, b in zip(p_values[2:], p_values, strict=False))
