"""Strengths of models from battles, against stored values, closed forms and a likelihood written as a loop."""

import math

import numpy as np
import pytest
import torch
from golden import golden

from tensormetrics.uncertainty.battles.bradley_terry import CHUNK
from tensormetrics.uncertainty.functional import bradley_terry


def battles(generator, count, rate=8, tie_rate=3):
    wins = torch.poisson(torch.full((count, count), float(rate)), generator=generator)
    ties = torch.poisson(torch.full((count, count), float(tie_rate)), generator=generator).triu(1)
    return wins.fill_diagonal_(0).double(), (ties + ties.T).double()


@golden("ratings", "bradley_terry")
def test_bradley_terry_golden_battles_give_stored_strengths(case):
    inputs, expected = case["inputs"], case["expected"]
    wins = torch.tensor(inputs["wins"])
    ties = None if inputs["ties"] is None else torch.tensor(inputs["ties"])
    if "error" in expected:
        with pytest.raises(ValueError, match=expected["names"]):
            bradley_terry(wins, ties, prior_sd=inputs["prior_sd"])
        return
    strengths, nu = bradley_terry(wins, ties, prior_sd=inputs["prior_sd"])
    tolerance = case["tolerance"]
    np.testing.assert_allclose(strengths, expected["strengths"], rtol=0, atol=tolerance["strengths"])
    assert float(nu) == pytest.approx(expected["nu"], rel=0, abs=tolerance["nu"])


@pytest.mark.parametrize(("first", "second", "tied"), [(8, 4, 0), (1, 1, 6), (300, 2, 9)])
def test_bradley_terry_two_models_have_the_closed_form(first, second, tied):
    wins, ties = torch.tensor([[0, first], [second, 0]]), torch.tensor([[0, tied], [tied, 0]])
    strengths, nu = bradley_terry(wins, ties, prior_sd=None)
    assert float(strengths[0] - strengths[1]) == pytest.approx(math.log(first / second), abs=1e-9)
    assert float(nu) == pytest.approx(tied / math.sqrt(first * second), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("num_battles", [1, 30, 10**6, 10**9])
def test_bradley_terry_model_without_a_win_has_a_finite_strength(num_battles):
    strengths, nu = bradley_terry(torch.tensor([[0, num_battles], [0, 0]]), prior_sd=3.0)
    difference = float(strengths[0] - strengths[1])
    assert num_battles / (1 + math.exp(difference)) == pytest.approx(difference / 2 / 9, rel=1e-6)
    assert float(nu) == 0


def test_bradley_terry_all_ties_give_equal_strengths_and_infinite_nu():
    strengths, nu = bradley_terry(torch.zeros(3, 3), torch.ones(3, 3))
    assert strengths.tolist() == [0, 0, 0] and float(nu) == torch.inf


@pytest.mark.parametrize("diagonal", [5.0, -1.0, float("nan")])
def test_bradley_terry_diagonal_is_ignored(generator, diagonal):
    wins, ties = battles(generator, 4)
    filled = [counts.clone().fill_diagonal_(diagonal) for counts in (wins, ties)]
    torch.testing.assert_close(bradley_terry(wins, ties), bradley_terry(*filled), rtol=0, atol=0)


def test_bradley_terry_batch_in_several_chunks_equals_single_fits(generator, monkeypatch):
    monkeypatch.setitem(CHUNK, "cpu", 40)
    several = [battles(generator, 4, tie_rate=rate) for rate in (0, 1, 3, 0, 6)]
    wins, ties = (torch.stack(counts) for counts in zip(*several, strict=True))
    strengths, nu = bradley_terry(wins, ties)
    for i, single in enumerate(several):
        expected = bradley_terry(*single)
        torch.testing.assert_close((strengths[i], nu[i]), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_bradley_terry_invalid_count_makes_only_its_fit_nan(generator, bad):
    wins, ties = (torch.stack([x, x]) for x in battles(generator, 3))
    wins[0, 1, 2] = bad
    strengths, nu = bradley_terry(wins, ties)
    assert strengths[0].isnan().all() and nu[0].isnan()
    torch.testing.assert_close(strengths[1], bradley_terry(wins[1], ties[1])[0], rtol=0, atol=1e-10)
