"""p-values against enumeration, against each other and against golden values."""

import hashlib
import itertools
import math

import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics.association.functional import WordSet, permutation_p_value, sign_flip_p_value
from tensormetrics.association.resampling.draws import random_partitions
from tensormetrics.association.resampling.random import random_int64, stream

ALTERNATIVES = {"greater": "right", "less": "left", "two-sided": "two_sided"}


def extreme(d: np.ndarray, observed: float, alternative: str) -> float:
    tolerance = 1e-9  # far above rounding, far below a difference
    if alternative == "less":
        return np.mean(d <= observed + tolerance)
    if alternative == "two-sided":
        d, observed = np.abs(d), abs(observed)
    return np.mean(d >= observed - tolerance)


def enumerated(u: np.ndarray, v: np.ndarray, alternative: str) -> float:
    scores, n = np.concatenate([u, v]), len(u)
    d = [scores[list(c)].mean() - np.delete(scores, c).mean() for c in itertools.combinations(range(len(scores)), n)]
    return extreme(np.array(d), u.mean() - v.mean(), alternative)


def enumerated_signs(r: np.ndarray, alternative: str) -> float:
    signs = np.array(list(itertools.product([1, -1], repeat=len(r))))
    return extreme((signs * r).mean(1), r.mean(), alternative)


def scores_of(generator: torch.Generator, *shape: int) -> torch.Tensor:
    """Draw scores; half of the time of few distinct values, so that sums tie."""
    if torch.rand((), generator=generator) < 0.5:
        return torch.randint(-3, 4, shape, generator=generator).double() / 3
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_permutation_exact_equals_enumeration(alternative, generator, device):
    for n, m in [(1, 1), (1, 6), (6, 1), (2, 3), (4, 4), (5, 3), (3, 6), (5, 6)] * 2:
        u, v = scores_of(generator, n), scores_of(generator, m)
        p = permutation_p_value(u.to(device), v.to(device), alternative=alternative, method="exact")
        assert p.item() == pytest.approx(enumerated(u.numpy(), v.numpy(), alternative), rel=1e-14)


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_sign_flip_exact_equals_enumeration(alternative, generator, device):
    for n in [1, 2, 5, 10, 11]:
        r = scores_of(generator, n)
        p = sign_flip_p_value(r.to(device), alternative=alternative, method="exact")
        assert p.item() == pytest.approx(enumerated_signs(r.numpy(), alternative), rel=1e-14)


@pytest.mark.parametrize("method", ["exact", "approximate"])
def test_permutation_leading_dimensions_broadcast(method, generator, device):
    u, v = scores_of(generator, 2, 1, 4).to(device), scores_of(generator, 3, 5).to(device)
    p = permutation_p_value(u, v, method=method, replicates=99)
    assert p.shape == (2, 3) and p.dtype == torch.float64
    for i, j in np.ndindex(2, 3):
        assert p[i, j] == permutation_p_value(u[i, 0], v[j], method=method, replicates=99)
    assert permutation_p_value(u[:0], v, method=method).shape == (0, 3)


def test_p_values_nonfinite_or_empty_scores_give_nan(device):
    u = torch.tensor([[1.0, 2.0], [1.0, torch.nan], [1.0, torch.inf], [1.0, 2.0]], device=device)
    mask = torch.tensor([[True, True]] * 3 + [[False, False]], device=device)
    for method in ("exact", "approximate"):
        p = permutation_p_value(WordSet(u, mask), u[:1], method=method)
        q = sign_flip_p_value(WordSet(u, mask), method=method)
        assert p.isnan().tolist() == q.isnan().tolist() == [False, True, True, True]
        assert permutation_p_value(u[:, :0], u, method=method).isnan().all()


@pytest.mark.parametrize("scale", [1, 2, 1000, 1e300])
def test_permutation_ties_and_large_scores_equal_enumeration(scale, device):
    # Equal sums of tenths differ in their last bits but must count as ties.
    u, v = (torch.tensor(s, dtype=torch.float64, device=device) * scale for s in ([0.1, 0.2, 0.3], [0.6, 0.0, 0.0]))
    for alternative in ALTERNATIVES:
        p = permutation_p_value(u, v, alternative=alternative).item()
        assert p == pytest.approx(enumerated(u.cpu().numpy() / scale, v.cpu().numpy() / scale, alternative), rel=1e-14)
    constant = torch.full((4,), 0.1 * scale, dtype=torch.float64, device=device)
    for alternative in ALTERNATIVES:
        assert permutation_p_value(constant, constant, alternative=alternative) == 1


def test_permutation_draws_depend_on_seed_but_not_on_chunk_size(generator, device, monkeypatch):
    u, v = (torch.randn(6, 20, generator=generator, dtype=torch.float64).to(device) for _ in range(2))
    p = permutation_p_value(u, v, replicates=1000)
    assert torch.equal(p, permutation_p_value(u, v, replicates=1000))
    assert not torch.equal(p, permutation_p_value(u, v, replicates=1000, seed=1))
    assert not torch.equal(*(permutation_p_value(u, v, replicates=1000, seed=None) for _ in range(2)))
    monkeypatch.setattr("tensormetrics.association.resampling.draws.BUDGET", 999)
    assert torch.equal(p, permutation_p_value(u, v, replicates=1000))
    if device.type == "cuda":
        assert torch.equal(p.cpu(), permutation_p_value(u.cpu(), v.cpu(), replicates=1000))


def test_random_partitions_are_uniform_and_have_requested_size(device):
    n = torch.tensor([2, 3], device=device)
    size = torch.tensor([5, 4], device=device)
    selected = random_partitions(stream(0), n, size, 6, 0, 20000).cpu()
    for group, (n, size) in enumerate([(2, 5), (3, 4)]):
        assert (selected[group].sum(-1) == n).all() and not selected[group, :, size:].any()
        counts = np.unique(selected[group].numpy(), axis=0, return_counts=True)[1]
        num_subsets = math.comb(size, n)
        chi2 = ((counts - 20000 / num_subsets) ** 2 / (20000 / num_subsets)).sum()
        assert len(counts) == num_subsets and chi2 < num_subsets + 4 * math.sqrt(2 * num_subsets)


def test_random_int64_bits_are_uniform_and_equal_published_stream(device):
    integers = random_int64(stream(3), 5, 4096, 16, device).cpu()
    assert len(integers.unique()) == integers.numel()
    for bit in range(64):
        assert abs(((integers >> bit) & 1).double().mean() - 0.5) < 4 * 0.5 / math.sqrt(integers.numel())
    # Published outputs of the generator for the initial state 1234567 begin at index 1.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    got = [int(random_int64(1234567, 0, 1, 4, device)[0, i]) % 2**64 for i in (1, 2, 3)]
    assert got == expected


@pytest.mark.slow
@pytest.mark.parametrize("alternative", ALTERNATIVES)
@pytest.mark.parametrize("method", ["exact", "approximate"])
def test_p_values_under_null_are_below_5_percent_in_5_percent_of_tests(alternative, method, generator, device):
    u, v = (torch.randn(2000, k, generator=generator, dtype=torch.float64).to(device) for k in (7, 8))
    options = dict(alternative=alternative, method=method, replicates=999)
    assert (permutation_p_value(u, v, **options) <= 0.05).double().mean().item() == pytest.approx(0.05, abs=0.015)
    assert (sign_flip_p_value(u, **options) <= 0.05).double().mean().item() == pytest.approx(0.05, abs=0.015)


def test_p_values_invalid_arguments_raise(device):
    u = torch.zeros(26, device=device)
    with raises(ValueError, "seed: got -1, wanted an integer >= 0"):
        permutation_p_value(u, u, method="approximate", seed=-1)
    with raises(ValueError, "seed: got -1, wanted an integer >= 0"):
        sign_flip_p_value(u, method="approximate", seed=-1)
    with raises(ValueError, "method: got 'exact' with 52 positions, wanted at most 50; write method='approximate'"):
        permutation_p_value(u, u, method="exact")
    with raises(ValueError, "method: got 'exact' with 52 pairs, wanted at most 40; write method='approximate'"):
        sign_flip_p_value(u.repeat(2), method="exact")
    with raises(TypeError, "u: got torch.int64, wanted a floating dtype; write u.float()"):
        permutation_p_value(u.long(), u)
    with raises(ValueError, "v: got shape (), wanted (..., N)"):
        permutation_p_value(u, u[0])


def test_stream_equals_hash_of_seed_and_name():
    text = "\x1f".join(("tensormetrics.posterior/1", "3", "contexts/x", "association", ""))
    expected = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
    assert stream(3, "contexts/x") == expected
    assert len({stream(seed, name) for seed in range(5) for name in ("permutations", "contexts/x")}) == 10
    assert stream(None) != stream(None)
