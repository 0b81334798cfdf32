import re

import pytest
import scipy.stats
import torch

from tensormetrics.posterior.sampling.rng import RNG


def test_rng_streams_depend_on_seed_and_name(device):
    a, b, c, d = RNG(1, "x", device=device), RNG(1, "x", device=device), RNG(2, "x"), RNG(1, "y")
    first = a.random((3, 5))
    assert torch.equal(first, b.random((3, 5))) and first.device.type == device.type
    assert not torch.equal(first, a.random((3, 5)))
    assert len({float(rng.random()) for rng in (a, c, d)}) == 3
    a.seed = 1
    assert a.seed == 1 and torch.equal(a.random((3, 5)), first)
    numpy, generator = RNG(4).numpy(), RNG(4).torch(device)
    assert numpy.random() == RNG(4).numpy().random()
    assert torch.equal(
        torch.rand(3, generator=generator, device=device), torch.rand(3, generator=RNG(4).torch(device), device=device)
    )
    with pytest.raises(ValueError, match="seed: got -1, wanted an integer >= 0"):
        a.seed = -1


def test_rng_spawned_streams_do_not_depend_on_draws():
    a, b = RNG(1, "x"), RNG(1, "x")
    a.random(7)
    left, right = ([child.random(4) for child in rng.spawn(2)] for rng in (a, b))
    assert all(torch.equal(x, y) for x, y in zip(left, right, strict=True)) and not torch.equal(*left)


def test_rng_samples_have_requested_distributions(device):
    rng, n = RNG(0, "law", device=device), 4001
    for draws, law in (
        (rng.random(n), "uniform"),
        ((rng.uniform(2.0, 5.0, n) - 2) / 3, "uniform"),
        ((rng.normal(1.0, 2.0, n) - 1) / 2, "norm"),
        (rng.standard_gamma(0.5, n), scipy.stats.gamma(0.5).cdf),
    ):
        assert draws.dtype == torch.float64 and scipy.stats.kstest(draws.cpu().numpy(), law).pvalue > 1e-3
    wide = rng.standard_gamma(torch.tensor([0.0, 0.5, 3.0], device=device), (n, 3)).cpu().numpy()
    assert (wide[:, 0] == 0).all() and scipy.stats.kstest(wide[:, 2], scipy.stats.gamma(3).cdf).pvalue > 1e-3
    assert scipy.stats.kstest(wide[:, 1], scipy.stats.gamma(0.5).cdf).pvalue > 1e-3
    assert rng.standard_gamma(torch.tensor([[0.0], [1.0]]), (2, 3)).count_nonzero(-1).tolist() == [0, 3]
    assert rng.standard_gamma(torch.tensor([0.0, 1.0])).shape == (2,) and rng.standard_gamma(1.0).shape == ()
    for size in (3,), (4, 3), (2, 4):
        message = f"size: got {size}, wanted a shape that alpha (2, 3) broadcasts to"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            rng.standard_gamma(torch.ones(2, 3), size)
    choices = rng.choice([3.0, 1.0, 2.0], (n,), p=[0.5, 0.0, 0.5])
    assert set(choices.unique().tolist()) == {2.0, 3.0} and abs((choices == 3).double().mean() - 0.5) < 0.04
    assert rng.choice(torch.arange(4), 1000).bincount(minlength=4).min() > 180 and rng.random(()).shape == ()
