import math

import numpy as np
import pytest
import torch
from known_statistics import KNOWN, X, Y, close
from raising import raises

from tensormetrics.posterior import expected_reward
from tensormetrics.posterior.comparison.listwise import listwise_compare

(KNOWN_RANKS,) = KNOWN["listwise"].values()


def ranks_loop(values, higher_is_better):
    """Rank experiments by a loop: tied ones share the ranks that they occupy, nan comes last."""
    S, E = values.shape
    rank_counts = np.zeros((E, E))
    for row in values:
        keys = [(1, 0.0) if math.isnan(v) else (0, -v if higher_is_better is not False else v) for v in row]
        for e in range(E):
            first, tied = sum(key < keys[e] for key in keys), keys.count(keys[e])
            rank_counts[e, first : first + tied] += 1 / tied
    return rank_counts / S


def test_listwise_compare_golden_values_match(device):
    ranking = listwise_compare({"a": X.to(device), "b": Y.to(device), "c": X.flip(0).to(device)}, "acc")
    assert ranking.experiment_names == KNOWN_RANKS["names"] and ranking.metric == "acc"
    close(ranking.p_rank_given_experiment, KNOWN_RANKS["p_rank_given_experiment"])
    close(ranking.mean_reciprocal_rank, KNOWN_RANKS["mean_reciprocal_rank"])
    close(expected_reward(ranking.p_rank_given_experiment, [10, 3]), KNOWN_RANKS["expected_reward_10_3"])
    close(ranking.p_experiment_given_rank[0], [row[0] for row in KNOWN_RANKS["p_rank_given_experiment"]])


@pytest.mark.parametrize("higher", [True, False, None])
@pytest.mark.parametrize("E", [1, 2, 7])
def test_listwise_compare_equals_a_loop(E, higher, generator, device):
    values = torch.randn(60, E, generator=generator).round(decimals=1)
    values[torch.rand(60, E, generator=generator) < 0.1] = math.nan
    values[torch.rand(60, E, generator=generator) < 0.1] = math.inf
    values[torch.rand(60, E, generator=generator) < 0.1] = -math.inf
    ranking = listwise_compare({str(e): values[:, e].to(device) for e in range(E)}, "m", higher)
    order = [int(name) for name in ranking.experiment_names]
    expected = ranks_loop(values.numpy(), higher)
    close(ranking.p_rank_given_experiment, expected[order])
    reciprocal = (expected / np.arange(1, E + 1)).sum(1)
    close(ranking.mean_reciprocal_rank, reciprocal[order])
    assert (np.diff(reciprocal[order]) <= 1e-12).all()
    close(ranking.p_rank_given_experiment.sum(-1), np.ones(E))


def test_listwise_compare_ties_have_equal_rank_probabilities():
    """Two perfect classifiers are equally good, whatever their position."""
    ranking = listwise_compare({"a": torch.ones(9), "b": torch.ones(9), "c": torch.zeros(9)})
    assert ranking.experiment_names == ["a", "b", "c"]
    close(ranking.p_rank_given_experiment, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]])


def test_expected_reward_matches_by_hand():
    p = torch.tensor([[0.75, 0.25], [0.25, 0.75]], dtype=torch.float64)
    close(expected_reward(p), [0.75, 0.25])
    close(expected_reward(p, 4), [3, 1])
    close(expected_reward(p, [1.0, -1.0]), [0.5, -0.5])
    for wrong, shape in ([1, 2, 3], "(3,)"), ([[1.0], [2.0]], "(2, 1)"):
        with raises(ValueError, f"rewards: got shape {shape}, wanted at most one number for each of 2 ranks"):
            expected_reward(p, wrong)


def test_listwise_compare_unequal_lengths_raise():
    with pytest.raises(ValueError, match="^lengths differ: a has 3, b has 4$"):
        listwise_compare({"a": torch.zeros(3), "b": torch.zeros(4)})


def test_listwise_compare_no_experiments_gives_empty_ranking():
    ranking = listwise_compare({})
    assert ranking.experiment_names == [] and ranking.p_rank_given_experiment.shape == (0, 0)
