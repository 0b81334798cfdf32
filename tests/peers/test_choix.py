"""Strengths of models against choix."""

import numpy as np
import pytest
import torch

from tensormetrics.uncertainty import Ratings
from tensormetrics.uncertainty.functional import bradley_terry

choix = pytest.importorskip("choix")


@pytest.fixture
def battles(generator):
    strengths = torch.randn(7, generator=generator).double()
    first = torch.randint(7, (900,), generator=generator)
    second = (first + torch.randint(1, 7, (900,), generator=generator)) % 7
    won = torch.rand(900, generator=generator) < torch.sigmoid(strengths[first] - strengths[second])
    return first.where(won, second), second.where(won, first)


def counted(winners, losers):
    return torch.bincount(winners * 7 + losers, minlength=49).view(7, 7)


def pairs(winners, losers):
    return list(zip(winners.tolist(), losers.tolist(), strict=True))


def test_strengths_without_a_prior_equal_those_of_choix(battles):
    strengths, nu = bradley_terry(counted(*battles), prior_sd=None)
    np.testing.assert_allclose(strengths, choix.ilsr_pairwise(7, pairs(*battles)), rtol=0, atol=1e-7)
    assert float(nu) == 0


@pytest.mark.parametrize("prior_sd", [0.3, 1.0, 3.0])
def test_ratings_with_a_prior_equal_those_of_choix(battles, prior_sd):
    metric = Ratings(7, prior_sd=prior_sd, scale="logit")
    metric.update(*battles, torch.ones(900))
    expected = choix.opt_pairwise(7, pairs(*battles), alpha=1 / (2 * prior_sd**2), tol=1e-12)
    np.testing.assert_allclose(torch.stack([*metric.compute().values()]), expected, rtol=0, atol=1e-5)
