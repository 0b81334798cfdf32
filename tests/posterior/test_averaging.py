import math

import numpy as np
import pytest
import torch
from metric_oracle import averages, pooled, scores
from raising import raises

from tensormetrics.posterior import AVERAGING_REGISTRY, get_metric
from tensormetrics.posterior.metrics.averaging import AVERAGINGS
from tensormetrics.posterior.metrics.classification import SCORES

MATRICES = torch.randint(1, 30, (3, 2, 4, 4), generator=torch.Generator().manual_seed(5))
ORACLE = [scores(matrix.numpy()) for matrix in MATRICES.flatten(0, 1)]
POOLED = [scores(pooled(matrix.numpy())) for matrix in MATRICES.flatten(0, 1)]
PER_CLASS = [name for name in ORACLE[0] if not get_metric(name).is_multiclass]


def average(averaging, values):
    """Average values by an averaging without dependencies."""
    _, _, name = f"tpr@{averaging}".partition("@")
    return get_metric(f"tpr@{name}").averaging(torch.tensor([values], dtype=torch.float64)).item()


@pytest.mark.parametrize("metric", PER_CLASS)
def test_averages_of_each_metric_equal_a_loop(metric, device):
    matrices = MATRICES.to(device)
    for averaging in averages([1.0], [1.0]):
        averaged = get_metric(f"{metric}@{averaging}")(matrices)
        expected = [averages(o[metric], o["prevalence"])[averaging] for o in ORACLE]
        assert averaged.shape == (3, 2, 1)
        np.testing.assert_allclose(averaged.cpu().flatten(), expected, 1e-9, 1e-12, err_msg=averaging)
    averaged = get_metric(f"{metric}@micro")(matrices)
    np.testing.assert_allclose(averaged.cpu().flatten(), [o[metric][0] for o in POOLED], 1e-9, 1e-12)


def test_averagings_are_all_registered():
    assert {name.partition("+")[0] for name in averages([1.0], [1.0])} | {"micro"} == {a.aliases[0] for a in AVERAGINGS}
    aliases = [alias for averaging in AVERAGINGS for alias in averaging.aliases]
    assert sorted(aliases) == sorted(set(aliases)) and set(aliases) <= AVERAGING_REGISTRY.keys()
    for averaging in AVERAGINGS:
        assert len({get_metric(f"tpr@{alias}") for alias in averaging.aliases}) == 1


def test_names_bounds_and_direction():
    averaged = get_metric("precision@mean")
    assert averaged.full_name == "Positive Predictive Value with Macro Averaging"
    assert len(averaged.aliases) == 9 and "ppv@macro" in averaged.aliases
    assert averaged.base_metric is get_metric("ppv") and averaged.is_multiclass
    assert averaged.bounds == averaged.bounds_of(7) == (0, 1) and averaged.higher_is_better is True
    assert get_metric("fpr@max").higher_is_better is False and get_metric("log_dor@min").bounds[0] == -math.inf
    assert {score.aliases[0] for score in SCORES if not score.per_class}.isdisjoint(PER_CLASS)


nan, inf = math.nan, math.inf


@pytest.mark.parametrize(
    ("averaging", "values", "expected"),
    [
        ("macro", [0.5, nan], nan),
        ("macro+skip_nan=True", [0.5, nan, 1.0], 0.75),
        ("macro+skip_nan=True", [nan, nan], nan),
        ("harmonic", [0.25, 1.0], 0.4),
        ("harmonic", [0.0, 0.5], 0.0),
        ("harmonic", [-0.5, 0.5], nan),
        ("harmonic", [0.5, nan], nan),
        ("harmonic", [inf, 2.0], 4.0),
        ("harmonic", [0.0, inf], 0.0),
        ("harmonic+skip_nan=True", [0.5, nan, 1.0], 2 / 3),
        ("harmonic+skip_nan=True", [-0.5, nan, 1.0], nan),
        ("geometric", [0.25, 1.0], 0.5),
        ("geometric", [0.0, 0.5], 0.0),
        ("geometric", [0.0, inf], nan),
        ("geometric", [-1.0, -1.0], nan),
        ("geometric+skip_nan=True", [0.25, nan, 1.0], 0.5),
        ("min", [0.5, nan], nan),
        ("max", [0.5, nan], nan),
        ("min+skip_nan=True", [0.5, nan, 0.25], 0.25),
        ("max+skip_nan=True", [-0.5, nan, -0.25], -0.25),
        ("max+skip_nan=True", [nan, nan], nan),
        ("max+skip_nan=True", [-inf, nan], -inf),
        ("binary", [0.5, nan, 0.25], 0.25),
        ("binary+positive_class=-2", [0.5, nan, 0.25], nan),
    ],
)
def test_averaging_edge_values_match_by_hand(averaging, values, expected):
    assert average(averaging, values) == pytest.approx(expected, nan_ok=True)


def test_weighted_average_ignores_classes_without_items():
    never_true = torch.tensor([[3, 1, 0], [0, 0, 0], [1, 2, 5]])
    torch.testing.assert_close(get_metric("tpr@weighted")(never_true), torch.tensor([8 / 12], dtype=torch.float64))
    assert get_metric("tpr@macro")(never_true).isnan()
    torch.testing.assert_close(get_metric("tpr@macro+skip_nan=True")(never_true), torch.tensor([11 / 16]).double())


@pytest.mark.parametrize("positive_class", [3, -4])
def test_positive_class_out_of_range_raises(positive_class):
    with raises(ValueError, f"positive_class: got {positive_class}, wanted -3 to 2 for 3 classes"):
        get_metric(f"tpr@binary+positive_class={positive_class}")(torch.eye(3))
