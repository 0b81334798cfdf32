import math

import numpy as np
import pytest
import torch
from known_statistics import KNOWN, X, Y, close

from tensormetrics.posterior import expected_reward
from tensormetrics.posterior.comparison.listwise import listwise_compare

(KNOWN_RANKS,) = KNOWN["listwise"].values()


def ranks_loop(values, higher_is_better):
    """Tied experiments share the ranks they take up; nan comes last."""
    S, E = values.shape
    shares = np.zeros((E, E))
    for row in values:
        keys = [(1, 0.0) if math.isnan(v) else (0, -v if higher_is_better is not False else v) for v in row]
        for e in range(E):
            first, tied = sum(key < keys[e] for key in keys), keys.count(keys[e])
            shares[e, first : first + tied] += 1 / tied
    return shares / S


def test_known_answers(device):
    found = listwise_compare({"a": X.to(device), "b": Y.to(device), "c": X.flip(0).to(device)}, "acc")
    assert found.experiment_names == KNOWN_RANKS["names"] and found.metric == "acc"
    close(found.p_rank_given_experiment, KNOWN_RANKS["p_rank_given_experiment"])
    close(found.mean_reciprocal_rank, KNOWN_RANKS["mean_reciprocal_rank"])
    close(expected_reward(found.p_rank_given_experiment, [10, 3]), KNOWN_RANKS["expected_reward_10_3"])
    close(found.p_experiment_given_rank[0], [row[0] for row in KNOWN_RANKS["p_rank_given_experiment"]])


@pytest.mark.parametrize("higher", [True, False, None])
@pytest.mark.parametrize("E", [1, 2, 7])
def test_equals_a_loop(E, higher, generator, device):
    values = torch.randn(60, E, generator=generator).round(decimals=1)
    values[torch.rand(60, E, generator=generator) < 0.1] = math.nan
    values[torch.rand(60, E, generator=generator) < 0.1] = math.inf
    values[torch.rand(60, E, generator=generator) < 0.1] = -math.inf
    found = listwise_compare({str(e): values[:, e].to(device) for e in range(E)}, "m", higher)
    order = [int(name) for name in found.experiment_names]
    expected = ranks_loop(values.numpy(), higher)
    close(found.p_rank_given_experiment, expected[order])
    reciprocal = (expected / np.arange(1, E + 1)).sum(1)
    close(found.mean_reciprocal_rank, reciprocal[order])
    assert (np.diff(reciprocal[order]) <= 1e-12).all()
    close(found.p_rank_given_experiment.sum(-1), np.ones(E))


def test_ties_are_shared():
    """Two perfect classifiers are equally good, whatever their position."""
    found = listwise_compare({"a": torch.ones(9), "b": torch.ones(9), "c": torch.zeros(9)})
    assert found.experiment_names == ["a", "b", "c"]
    close(found.p_rank_given_experiment, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]])


def test_rewards():
    p = torch.tensor([[0.75, 0.25], [0.25, 0.75]], dtype=torch.float64)
    close(expected_reward(p), [0.75, 0.25])
    close(expected_reward(p, 4), [3, 1])
    close(expected_reward(p, [1.0, -1.0]), [0.5, -0.5])
    for wrong, shape in ([1, 2, 3], "(3,)"), ([[1.0], [2.0]], "(2, 1)"):
        with pytest.raises(ValueError) as caught:
            expected_reward(p, wrong)
        assert str(caught.value) == f"rewards: got shape {shape}, wanted at most one number for each of 2 ranks"


def test_unequal_numbers_of_samples():
    with pytest.raises(ValueError, match="^lengths differ: a has 3, b has 4$"):
        listwise_compare({"a": torch.zeros(3), "b": torch.zeros(4)})


def test_nothing_to_rank():
    found = listwise_compare({})
    assert found.experiment_names == [] and found.p_rank_given_experiment.shape == (0, 0)
