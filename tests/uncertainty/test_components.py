"""Variance components of scores of repeated items."""

import numpy as np
import pytest
import torch
from golden import golden

from tensormetrics.uncertainty import variance_components


def crossed(table):
    """Return the components of a table (..., I, S) whose cells are passed in shuffled order."""
    items, seeds = table.shape[-2:]
    order = torch.randperm(items * seeds, generator=torch.Generator().manual_seed(1))
    index = torch.arange(items * seeds)[order]
    scores = table.flatten(-2)[..., order.to(table.device)]
    return variance_components(scores, 3 * (index // seeds) - 7, [f"seed {k}" for k in (index % seeds).tolist()])


@golden("evaluations", "variance_components")
def test_variance_components_golden_cases_equal_stored_values(case, device):
    inputs, expected = case["inputs"], case["expected"]
    if "table" in inputs:
        parts = crossed(torch.tensor(inputs["table"], dtype=torch.float64, device=device))
        _, low, high = parts.interval()
        got = {"value": parts.value, "df": parts.df, "se": parts.se(), "low": low, "high": high, **parts.parts}
    else:
        parts = variance_components(torch.tensor(inputs["scores"], device=device), inputs["items"])
        got = {"value": parts.value, "se": parts.se(), "se_if_10_samples": parts.se(repeats=10), **parts.parts}
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert float(got[name]) == pytest.approx(value, rel=0, abs=case["tolerance"]), name


def nested_by_loops(scores, items):
    groups = [scores[(items == item) & ~np.isnan(scores)] for item in np.unique(items)]
    groups = [group for group in groups if len(group)]
    means = np.array([group.mean() for group in groups])
    within = sum(((group - group.mean()) ** 2).sum() for group in groups) / sum(len(group) - 1 for group in groups)
    inverse = np.mean([1 / len(group) for group in groups])
    return means.mean(), means.var(ddof=1) - within * inverse, within, np.sqrt(means.var(ddof=1) / len(means))


def test_nested_batches_with_missing_scores_equal_loops(generator, device):
    items = torch.randint(15, (80,), generator=generator)
    scores = torch.randn(15, generator=generator)[items] + torch.randn(3, 2, 80, generator=generator).double()
    scores[torch.rand(3, 2, 80, generator=generator) < 0.2] = torch.nan
    parts = variance_components(scores.to(device), items)
    for index in np.ndindex(3, 2):
        expected = nested_by_loops(scores[index].numpy(), items.numpy())
        got = [parts.value, parts.items, parts.within, parts.se()]
        np.testing.assert_allclose([float(part[index]) for part in got], expected, rtol=1e-12)


def test_crossed_batches_equal_mean_squares(generator, device):
    table = torch.randn(4, 9, 1, generator=generator) + torch.randn(4, 9, 3, generator=generator).double()
    parts = crossed(table.to(device))
    for index, one in enumerate(table.numpy()):
        rows, columns = one.mean(1, keepdims=True), one.mean(0, keepdims=True)
        residual = ((one - rows - columns + one.mean()) ** 2).sum() / 16
        of_rows, of_columns = 3 * rows.var(ddof=1), 9 * columns.var(ddof=1)
        expected = [(of_rows - residual) / 3, (of_columns - residual) / 9, residual]
        np.testing.assert_allclose([float(part[index]) for part in parts.parts.values()], expected, rtol=1e-9)


def test_balanced_nested_components_equal_reml(generator):
    pd, formula = pytest.importorskip("pandas"), pytest.importorskip("statsmodels.formula.api")
    items = torch.arange(90) // 3
    scores = torch.randn(30, generator=generator)[items] + torch.randn(90, generator=generator).double()
    frame = pd.DataFrame({"score": scores.numpy(), "item": items.numpy()})
    model = formula.mixedlm("score ~ 1", frame, groups=frame["item"]).fit(reml=True, gtol=1e-10)
    parts = variance_components(scores, items)
    assert float(parts.items) == pytest.approx(float(model.cov_re.iloc[0, 0]), rel=1e-4)
    assert float(parts.within) == pytest.approx(model.scale, rel=1e-4)
    assert float(parts.se()) == pytest.approx(float(model.bse_fe.iloc[0]), rel=1e-4)


def test_standard_error_of_other_counts_follows_from_the_components(generator):
    table = torch.randn(8, 1, generator=generator) + torch.randn(1, 5, generator=generator).double()
    parts = crossed(table + 0.5 * torch.randn(8, 5, generator=generator))
    items, seeds, residual = (float(part) for part in parts.parts.values())
    assert min(items, seeds) > 0
    assert float(parts.se(100, 7)) == pytest.approx((items / 100 + seeds / 7 + residual / 700) ** 0.5)
    assert float(parts.se(items=8)) == pytest.approx(float(parts.se()))
    assert float(parts.se(items=1e12)) == pytest.approx((seeds / 5) ** 0.5, rel=1e-6)


def test_negative_components_are_reported_and_count_as_zero():
    scores, items = torch.tensor([0.0, 1, 0, 1, 1, 0]), torch.arange(6) // 2
    parts = variance_components(scores, items)
    assert float(parts.items) < 0 and float(parts.se(10, 4)) == pytest.approx(float(parts.within / 40) ** 0.5)


def test_equal_scores_have_no_variance_and_no_width(device):
    scores = torch.full((2, 12), 0.1, device=device)
    for repeats in (None, torch.arange(12) % 3):
        parts = variance_components(scores, torch.arange(12) // 3, repeats)
        assert all((part == 0).all() for part in (*parts.parts.values(), parts.se())) and parts.icc.isnan().all()
    value, low, high = parts.interval()
    assert torch.equal(low, high) and torch.equal(value, low)


def test_items_without_a_second_score_have_nan_variance_within():
    parts = variance_components([0.5, 0.25, 1.0], ["a", "b", "c"])
    assert parts.within.isnan() and parts.items.isnan()
    assert float(parts.se()) == pytest.approx(np.std([0.5, 0.25, 1], ddof=1) / 3**0.5)


@pytest.mark.full
@pytest.mark.parametrize(("items", "seeds", "sd"), [(50, 3, 0.05), (200, 3, 0.0), (20, 10, 0.05)])
def test_crossed_intervals_cover_the_truth_for_other_seeds(items, seeds, sd):
    generator, sets = torch.Generator().manual_seed(0), 2000

    def normal(*shape):
        return torch.randn(sets, *shape, generator=generator, dtype=torch.float64)

    table = 0.2 * normal(items, 1) + sd * normal(1, seeds) + 0.3 * normal(items, seeds)
    _, low, high = crossed(table).interval()
    assert 0.93 < float(((low <= 0) & (high >= 0)).double().mean()) < 0.98
