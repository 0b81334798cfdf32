"""Number of items needed, compared with posteriors of larger matrices by scipy."""

import pytest
import scipy.stats
from raising import raises

from tensormetrics.posterior import items_needed

A = [[95, 5], [12, 88]]


def hdi_width(law):
    """Compute the width of the 95% highest density interval by a search over its lower end."""
    return min(law.ppf(p / 1000 + 0.95) - law.ppf(p / 1000) for p in range(50))


@pytest.mark.parametrize("width", [0.2, 0.05, 0.01])
def test_items_needed_accuracy_reaches_requested_width(width):
    items = items_needed(A, "acc", width)
    accuracy = 183 / 200
    law = scipy.stats.beta(accuracy * items + 0.5, (1 - accuracy) * items + 0.5)
    assert hdi_width(law) == pytest.approx(width, rel=0.03)


def test_items_needed_depends_on_confidence_metric_and_prior():
    assert items_needed(A, "acc", 0.05, confidence=0.5) < 0.2 * items_needed(A, "acc", 0.05)
    assert items_needed(A, "tpr", 0.05) > 1.5 * items_needed(A, "acc", 0.05)  # each class has half of the items
    assert items_needed(A, "acc", 0.3, confusion_prior=10) < items_needed(A, "acc", 0.3)
    with pytest.raises(ValueError, match="^width: got 0, wanted a number > 0$"):
        items_needed(A, "acc", 0)


@pytest.mark.filterwarnings("ignore:confusion_matrix")
def test_items_needed_empty_matrix_raises():
    with pytest.raises(ValueError, match="^matrix: got no items, wanted at least one$"):
        items_needed([[0, 0], [0, 0]], "acc", 0.1)


@pytest.mark.filterwarnings("ignore:confusion_matrix")
def test_items_needed_unreachable_width_raises():
    for matrix, metric, width in ((A, "acc", 1e-30), ([[5, 5], [0, 0]], "tpr", 0.1)):
        with pytest.raises(ValueError, match=f"^width: got {width:g}, which even 1e\\+12 items would not reach$"):
            items_needed(matrix, metric, width)
    for options, message in (
        ({"label": 2}, "label: got 2, wanted None or 0 to 1"),
        ({"label": -1}, "label: got -1, wanted an integer >= 0"),
        ({"replicates": 1}, "replicates: got 1, wanted an integer >= 2"),
    ):
        with raises(ValueError, message):
            items_needed(A, "tpr", 0.1, **options)
