"""How many items are needed: against posteriors of grown matrices that scipy knows."""

import pytest
import scipy.stats
import torch

from tensormetrics.posterior import items_needed, items_to_decide, p_better_after, pairwise_compare, sample_metrics

A, B = [[95, 5], [12, 88]], [[92, 8], [16, 84]]


def narrowest(law):
    """The width of the highest density interval, over all that hold .95."""
    return min(law.ppf(p / 1000 + 0.95) - law.ppf(p / 1000) for p in range(50))


@pytest.mark.parametrize("width", [0.2, 0.05, 0.01])
def test_the_accuracy_of_so_many_items_is_known_so_well(width):
    items = items_needed(A, "acc", width)
    share = 183 / 200
    law = scipy.stats.beta(share * items + 0.5, (1 - share) * items + 0.5)
    assert narrowest(law) == pytest.approx(width, rel=0.03)


def test_other_confidences_metrics_and_priors():
    assert items_needed(A, "acc", 0.05, confidence=0.5) < 0.2 * items_needed(A, "acc", 0.05)
    assert items_needed(A, "tpr", 0.05) > 1.5 * items_needed(A, "acc", 0.05)  # each class has half of the items
    assert items_needed(A, "acc", 0.3, confusion_prior=10) < items_needed(A, "acc", 0.3)
    with pytest.raises(ValueError, match="^width: got 0, wanted a number > 0$"):
        items_needed(A, "acc", 0)


@pytest.mark.filterwarnings("ignore:confusion_matrix")
def test_nothing_can_be_told_from_no_items():
    with pytest.raises(ValueError, match="^matrix: got no items, wanted some to tell from$"):
        items_needed([[0, 0], [0, 0]], "acc", 0.1)


def compared(factor=1):
    samples = [
        sample_metrics(factor * torch.tensor(counts), "acc", 20_000, names=[name])[0][:, 0, 0]
        for counts, name in ((A, "a"), (B, "b"))
    ]
    return pairwise_compare(samples[0] - samples[1], min_sig_diff=0.0)


def test_the_probability_after_more_items_is_that_of_grown_matrices():
    now = compared()
    assert float(p_better_after(now, 200, 0)) == pytest.approx(float(now.p_greater), abs=0.01)
    for factor in (3, 6):
        expected = float(compared(factor).p_greater)
        assert float(p_better_after(now, 200, 200 * (factor - 1))) == pytest.approx(expected, abs=0.015)
    more = items_to_decide(now, 200, 0.99)
    assert float(p_better_after(now, 200, more)) == pytest.approx(0.99, abs=1e-4)
    assert items_to_decide(now, 200, float(now.p_greater) - 0.02) == 0


def test_directions_and_no_difference():
    now = compared()
    less = pairwise_compare(now.diff_dist, min_sig_diff=0.0, higher_is_better=False)
    torch.testing.assert_close(p_better_after(less, 200, 50), 1 - p_better_after(now, 200, 50))
    assert items_to_decide(less, 200) == items_to_decide(now, 200)
    several = pairwise_compare(torch.tensor([[-1.0, 1.0], [1.0, 3.0]]), min_sig_diff=0.0)
    assert items_to_decide(several, 10).tolist() == [torch.inf, 0.0]
    assert p_better_after(several, 10, torch.tensor([5, 0])).tolist() == pytest.approx([0.5, scipy.stats.norm.cdf(2)])
    with pytest.raises(ValueError, match="^items: got 0, wanted a number >= 1$"):
        p_better_after(now, 0, 5)


@pytest.mark.filterwarnings("ignore:confusion_matrix")
def test_what_no_number_of_items_reaches():
    for matrix, metric, width in ((A, "acc", 1e-30), ([[5, 5], [0, 0]], "tpr", 0.1)):
        with pytest.raises(ValueError, match=f"^width: got {width:g}, which even 1e\\+12 items would not reach$"):
            items_needed(matrix, metric, width)
    for options, message in (
        ({"label": 2}, "label: got 2, wanted None or 0 to 1"),
        ({"label": -1}, "label: got -1, wanted an integer >= 0"),
        ({"num_samples": 1}, "num_samples: got 1, wanted an integer >= 2"),
    ):
        with pytest.raises(ValueError) as error:
            items_needed(A, "tpr", 0.1, **options)
        assert str(error.value) == message


def test_no_items_are_taken_away_and_a_coin_is_enough_for_a_half():
    for more in (-5, torch.nan, torch.tensor([3.0, -1.0])):
        with pytest.raises(ValueError, match="^more: got .*, wanted numbers >= 0$"):
            p_better_after(compared(), 200, more)
    assert items_to_decide(pairwise_compare(torch.zeros(9)), 10, 0.5) == 0
    assert items_to_decide(pairwise_compare(torch.full((9,), torch.nan)), 10, 0.5).isnan()
