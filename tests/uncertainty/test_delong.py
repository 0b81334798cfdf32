"""DeLong's test of areas under the ROC curve."""

import numpy as np
import pytest
import torch
from golden import golden
from scipy import stats

from tensormetrics.uncertainty.functional import binary_auroc, delong


def tensors(case, device="cpu"):
    inputs = case["inputs"]
    preds = torch.tensor(inputs["preds"], dtype=torch.float64, device=device)
    return preds, torch.tensor(inputs["target"], device=device), inputs["groups"]


@golden("evaluations", "delong")
def test_delong_golden_cases_equal_stored_values(case, device):
    result, expected = delong(*tensors(case, device)), case["expected"]
    tolerance = {"rtol": 0, "atol": case["tolerance"]}
    np.testing.assert_allclose(result.auroc.cpu(), expected["auroc"], **tolerance)
    if "covariance" in expected:
        np.testing.assert_allclose(result.covariance.cpu(), expected["covariance"], **tolerance)
        assert float(result.p_value[0, 1]) == pytest.approx(expected["p_value_01"], abs=1e-9)


def by_pairs(preds, target, groups=None):
    """Compute areas and their covariance from all pairs of a positive and a negative item, group by group."""
    positive, negative = np.flatnonzero(target == 1), np.flatnonzero(target == 0)
    groups = np.arange(len(target)) if groups is None else np.asarray(groups)
    differences = preds[:, positive, None] - preds[:, None, negative]
    wins = (differences > 0) + 0.5 * (differences == 0)
    area = wins.mean((1, 2))
    sums = [np.zeros((len(preds), groups.max() + 1)) for _ in range(2)]
    for index, item in enumerate(positive):
        sums[0][:, groups[item]] += (wins[:, index].mean(1) - area) / len(positive)
    for index, item in enumerate(negative):
        sums[1][:, groups[item]] += (wins[:, :, index].mean(1) - area) / len(negative)
    counts = len({*groups[positive]}), len({*groups[negative]}), len({*groups})
    factors = [count / (count - 1) for count in counts]
    cross = factors[2] * sums[0] @ sums[1].T
    return area, factors[0] * sums[0] @ sums[0].T + factors[1] * sums[1] @ sums[1].T + cross + cross.T


@pytest.mark.parametrize("num_groups", [None, 9])
def test_delong_batches_equal_covariance_of_all_pairs(num_groups, generator, device):
    preds = torch.randn(4, 2, 3, 40, generator=generator).mul(2).round().double()
    target = (torch.rand(4, 2, 40, generator=generator) < 0.4).long()
    groups = None if num_groups is None else torch.randint(num_groups, (4, 2, 40), generator=generator)
    result = delong(preds.to(device), target.to(device), None if groups is None else groups.to(device) * 7 - 20)
    for index in np.ndindex(4, 2):
        area, covariance = by_pairs(
            preds[index].numpy(), target[index].numpy(), None if groups is None else groups[index]
        )
        np.testing.assert_allclose(result.auroc[index].cpu(), area, rtol=0, atol=1e-14)
        np.testing.assert_allclose(result.covariance[index].cpu(), covariance, rtol=0, atol=1e-14)
        z = (area[0] - area[2]) / np.sqrt(covariance[0, 0] + covariance[2, 2] - 2 * covariance[0, 2])
        assert float(result.p_value[(*index, 0, 2)]) == pytest.approx(2 * stats.norm.sf(abs(z)), rel=1e-9)


def test_groups_of_one_item_change_nothing(generator):
    preds, target = torch.randn(3, 50, generator=generator), torch.arange(50) % 3 % 2
    ungrouped = delong(preds, target)
    for groups in (torch.arange(50) - 9, [f"patient {i}" for i in range(50)]):
        torch.testing.assert_close([*delong(preds, target, groups)], [*ungrouped], rtol=1e-12, atol=1e-15)


def test_delong_areas_equal_auroc_in_any_order_of_models(generator):
    preds, target = (
        torch.randn(5, 3, 60, generator=generator).round(),
        (torch.rand(5, 60, generator=generator) < 0.3).long(),
    )
    result, other = delong(preds, target), delong(preds.flip(1), target)
    torch.testing.assert_close(result.auroc, binary_auroc(preds, target[:, None].expand(5, 3, 60)), rtol=1e-13, atol=0)
    torch.testing.assert_close(other.p_value.flip(1, 2), result.p_value, rtol=1e-9, atol=0)
    assert torch.equal(result.p_value, result.p_value.mT)


def test_delong_p_value_of_equal_areas_is_one_and_without_variance_nan(generator):
    preds, target = torch.randn(60, generator=generator), torch.arange(60) % 2
    result = delong(torch.stack([preds, preds.exp(), -preds]), target)  # the same ranks, and the opposite ones
    assert float(result.p_value[0, 1]) == 1 and (result.p_value.diagonal() == 1).all()
    perfect = target + torch.linspace(0, 0.5, 60)
    opposite = delong(torch.stack([perfect, -perfect]), target)
    assert opposite.auroc.tolist() == [1, 0] and (opposite.covariance == 0).all()
    assert opposite.p_value[0, 1].isnan()


@pytest.mark.parametrize("positives", [0, 1, 19, 20])
def test_fewer_than_two_of_a_class_have_no_covariance(positives, generator):
    target = (torch.arange(20) < positives).long()
    result = delong(torch.randn(2, 20, generator=generator), target)
    assert result.covariance.isnan().all() and result.auroc.isnan().all() == (positives in (0, 20))
    assert result.p_value[0, 1].isnan()
    one_group = torch.arange(20) // 5
    assert delong(torch.randn(2, 20, generator=generator), (one_group == 0).long(), one_group).covariance.isnan().all()


@pytest.mark.parametrize(
    ("items", "positives", "clusters"),
    [(40, 20, None), *(pytest.param(*x, marks=pytest.mark.full) for x in ((200, 40, None), (200, 60, 40)))],
)
def test_delong_equal_models_are_rejected_at_the_nominal_rate(items, positives, clusters):
    generator = torch.Generator().manual_seed(0)
    sets = 4000
    target = (torch.arange(items) < positives).long().expand(sets, items)
    groups = None if clusters is None else torch.randint(clusters, (sets, items), generator=generator)
    shared = torch.randn(sets, 1, items, generator=generator)
    if groups is not None:
        shared = shared + torch.randn(sets, 1, clusters, generator=generator).gather(-1, groups[:, None])
    preds = shared + torch.randn(sets, 2, items, generator=generator) + target[:, None]
    rejected = float((delong(preds, target, groups).p_value[:, 0, 1] <= 0.05).double().mean())
    assert 0.03 < rejected < 0.065
