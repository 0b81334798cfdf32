"""Triton kernels draw and count exactly as torch does; without a GPU Triton's interpreter runs them."""

import itertools

import pytest
import torch
from kernels import INTERPRETED, interpreted
from scores import random_sets
from test_permutation import ALTERNATIVES

from tensormetrics.association import functional
from tensormetrics.association.functional import (
    WordSet,
    permutation_p_value,
    sign_flip_p_value,
    target_permutation_p_value,
)


@pytest.mark.emulated
@pytest.mark.skipif(torch.cuda.is_available() or INTERPRETED, reason="the tests below run in this process")
@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_kernels_pass_tests_below_when_interpreted(which):
    pytest.importorskip("triton")
    result = interpreted(__file__, which)
    assert result.returncode == 0, result.stdout


def scores_of(kind: str, generator: torch.Generator, *shape: int) -> torch.Tensor:
    if kind == "few values":  # sums tie, and no power of two scales them to integers
        return torch.randint(-2, 3, shape, generator=generator).double() / 3
    if kind == "largest":  # units of 2^41
        return (2 - 2.0**-52) * torch.randint(0, 2, shape, generator=generator).mul(2).sub(1).double()
    scores = torch.randn(*shape, generator=generator, dtype=torch.float64)
    if kind == "close":  # sums of equally many scores differ in their lower bits only
        return 1 + 2.0**-20 * scores
    return scores * 2.0**-30 if kind == "small" else scores


KINDS = ["gaussian", "few values", "largest", "close", "small"]
FAST = [("greater", "few values"), ("less", "largest"), ("two-sided", "gaussian"), ("greater", "close")]
CASES = [
    case if case in FAST else pytest.param(*case, marks=pytest.mark.slow)
    for case in itertools.product(ALTERNATIVES, KINDS)
]


@pytest.mark.parametrize(("alternative", "kind"), CASES)
def test_p_values_kernel_equals_torch(alternative, kind, both, generator, device):
    # Draws fill two tiles and one row of a third; positions fill 32 bits, or more than an integer of 64 bits.
    for n, m, tests in [(1, 1, 3), (15, 17, 1), (25, 25, 3), (40, 30, 3)]:
        u, v = (scores_of(kind, generator, tests, k).to(device) for k in (n, m))
        options = dict(alternative=alternative, method="approximate", replicates=257)
        expected, actual = both(lambda: permutation_p_value(u, v, **options))  # noqa: B023
        assert torch.equal(actual, expected)
        expected, actual = both(lambda: sign_flip_p_value(u, **options))  # noqa: B023
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("kind", ["small", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[:-1])])
def test_p_values_two_blocks_of_tests_equal_torch(kind, both, generator, device):
    u, v = (scores_of(kind, generator, 130, k).to(device) for k in (7, 9))
    u[3], v[3], u[129] = 0, 0, torch.nan  # all partitions of the fourth are in both tails
    options = dict(alternative="two-sided", replicates=300)
    expected, actual = both(lambda: permutation_p_value(u, v, method="approximate", **options))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def test_p_values_chunks_and_large_seeds_equal_torch(both, generator, device, monkeypatch):
    monkeypatch.setattr("tensormetrics.association.resampling.draws.GPU_BUDGET", 1000)
    u, v = (scores_of("gaussian", generator, 2, k).to(device) for k in (3, 4))
    for seed in (1, 2**40):
        expected, actual = both(lambda: permutation_p_value(u, v, method="approximate", replicates=400, seed=seed))  # noqa: B023
        assert torch.equal(actual, expected)


def test_p_values_ragged_wide_and_empty_batches_equal_torch(both, generator, device):
    u, v = (scores_of("gaussian", generator, 3, k).to(device) for k in (60, 70))
    masks = [torch.rand(s.shape, generator=generator).to(device) < 0.5 for s in (u, v)]
    for sets in ((u, v), tuple(map(WordSet, (u, v), masks))):
        expected, actual = both(lambda: permutation_p_value(*sets, replicates=99))  # noqa: B023
        assert torch.equal(actual, expected)
    for shape in ((0, 3), (2, 0)):
        empty = u.new_zeros(shape)
        expected, actual = both(lambda: permutation_p_value(empty, empty, method="approximate", replicates=9))  # noqa: B023
        assert actual.shape == expected.shape and actual.isnan().all()


@pytest.mark.parametrize("metric", [functional.rnd, functional.ect])
def test_target_permutation_kernel_equals_torch(metric, both, generator, device):
    tensors = random_sets("xya", generator, device, 2)
    expected, actual = both(lambda: target_permutation_p_value(metric, *tensors, method="approximate", replicates=200))
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_p_values_of_thousands_of_tests_on_gpu_equal_torch(alternative, both, generator, device):
    if device.type != "cuda":
        pytest.skip("needs a GPU")
    u, v = (scores_of("gaussian", generator, 3000, 25).to(device) for _ in range(2))
    expected, actual = both(lambda: permutation_p_value(u, v, alternative=alternative, replicates=200_000))
    assert torch.equal(actual, expected)
