"""The prior that classes share: compared with a posterior on a fine grid, and coverage compared with fixed priors."""

import numpy as np
import pytest
import scipy.special
import torch

from tensormetrics.posterior import ConfusionPosterior, get_metric
from tensormetrics.posterior.functional import sample_confusion_matrices, sample_metrics, sample_sums
from tensormetrics.uncertainty.statistics.samples import equal_tailed

COUNTS = torch.tensor([[18, 2, 0, 0], [1, 9, 1, 0], [0, 0, 5, 0], [2, 1, 1, 1]])
SHARED = {"confusion_prior": "hierarchical"}


def exact_rates(right, wrong, grid_size=700):
    """Compute posterior means and standard deviations of the rates of classes on a grid of r and m in numpy."""
    v, u = ((np.arange(grid_size) + 0.5) / grid_size for _ in range(2))
    r, m = np.sin(v * np.pi / 2)[:, None] ** 2, np.tan(u * np.pi / 2)[None] ** -2.0
    a, b = m * r, m * (1 - r)
    beta = scipy.special.betaln
    log = sum(beta(a + k, b + w) - beta(a, b) for k, w in zip(right, wrong, strict=True))
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    means = [(mass * (a + k) / (m + k + w)).sum() for k, w in zip(right, wrong, strict=True)]
    squares = [
        (mass * (a + k) * (a + k + 1) / ((m + k + w) * (m + k + w + 1))).sum()
        for k, w in zip(right, wrong, strict=True)
    ]
    return np.array(means), np.sqrt(np.array(squares) - np.square(means))


@pytest.mark.parametrize("scale", [1, 40])
def test_hierarchical_rates_match_grid_posterior(scale, device):
    counts = scale * COUNTS
    right, wrong = counts.diagonal().numpy(), (counts.sum(1) - counts.diagonal()).numpy()
    sums = sample_sums(counts.to(device), 20_000, dtype=torch.float64, **SHARED)
    rates = (sums.tp / (sums.tp + sums.fn))[:, 0].cpu().numpy()
    means, stds = exact_rates(right, wrong)
    np.testing.assert_allclose(rates.mean(0), means, atol=5 * stds.max() / 20_000**0.5)
    np.testing.assert_allclose(rates.std(0), stds, rtol=0.05)


def test_hierarchical_samples_depend_only_on_address(device):
    counts = torch.stack([COUNTS, COUNTS.flip(0)]).to(device)
    options = {"dtype": torch.float64, "seed": 3, **SHARED}
    full = sample_confusion_matrices(counts, 30, names=["a", "b"], **options)
    torch.testing.assert_close(full.sum((-2, -1)), torch.ones_like(full[..., 0, 0]))
    late = sample_confusion_matrices(counts[1:], 11, names=["b"], start=19, **options)
    assert torch.equal(late, full[19:, 1:])
    sums = [sample_sums(counts, 30, names=["a", "b"], need=need, **options) for need in ("diag", "margins")]
    weights = torch.rand(2, 4, 4, dtype=torch.float64, device=device)
    weighted = sample_sums(counts, 30, names=["a", "b"], weights=weights, **options)
    assert sums[0].fp is None and torch.equal(sums[0].fn, sums[1].fn)
    for sampled in (*sums, weighted):
        assert torch.equal(sampled.tp, full.diagonal(dim1=-2, dim2=-1))
    torch.testing.assert_close(weighted.fp, full.sum(-2) - weighted.tp, atol=1e-12, rtol=0)
    torch.testing.assert_close(weighted.weighted, torch.einsum("wij,seij->sew", weights, full))
    metrics = ["acc", "f1@macro", "mcc"]
    parts = sample_metrics(COUNTS.to(device), metrics, 50, memory_limit=5000, **SHARED)
    for part, expected in zip(parts, sample_metrics(COUNTS.to(device), metrics, 50, **SHARED), strict=True):
        assert torch.equal(part, expected)


@pytest.mark.parametrize("method", ["prior", "random"])
def test_hierarchical_other_methods_have_expected_rates(method):
    matrices = sample_confusion_matrices(COUNTS, 4000, method=method, **SHARED)
    rates = (matrices.diagonal(dim1=-2, dim2=-1) / matrices.sum(-1))[:, 0]
    assert abs(rates.mean() - (0.5 if method == "prior" else 0.25)) < 0.03
    empty = sample_confusion_matrices(torch.zeros(3, 3), 100, **SHARED)
    assert empty.isfinite().all()


def test_hierarchical_prior_of_groups_raises(device):
    cells = torch.arange(16, device=device).repeat_interleave(COUNTS.flatten().to(device))
    grouped = ConfusionPosterior(4, **SHARED).to(device)
    grouped.update(cells % 4, cells // 4, groups=torch.arange(len(cells), device=device))
    with pytest.raises(ValueError, match="^confusion_prior: got 'hierarchical' with items or groups, wanted another"):
        grouped.compute()


def simulate_counts(C, items, accuracy, sets, generator):
    """Simulate tables whose recalls differ by class around `accuracy`, with unequally frequent wrong classes."""
    recalls = (accuracy + (1 - accuracy) * torch.linspace(-0.8, 0.8, C, dtype=torch.float64))[:, None]
    wrong = torch.rand(C, C, generator=generator, dtype=torch.float64).fill_diagonal_(0)
    cells = (torch.diag_embed(recalls[:, 0]) + (1 - recalls) * wrong / wrong.sum(1, keepdim=True)) / C
    cell_ids = torch.multinomial(cells.flatten().expand(sets, -1), items * C, replacement=True, generator=generator)
    counts = torch.zeros(sets, C * C, dtype=torch.float64).scatter_add_(1, cell_ids, torch.ones_like(cell_ids).double())
    return cells, counts.view(sets, C, C)


METRICS = ["acc", "tpr", "f1@macro"]


def coverages_of(counts, cells, **priors):
    samples_by_metric = sample_metrics(counts, METRICS, 1500, names=[str(i) for i in range(len(counts))], **priors)
    coverages = []
    for metric, samples in zip(METRICS, samples_by_metric, strict=True):
        _, low, high = equal_tailed(samples.double())
        truth = get_metric(metric)(cells[None])[0]
        coverages.append(float(((low <= truth + 1e-12) & (truth <= high + 1e-12)).double().mean()))
    return coverages


@pytest.mark.slow
def test_hierarchical_intervals_cover_class_rates(generator):
    """Equal-tailed 95 % intervals; the table is printed with -s."""
    for C, items, accuracy in [(10, 5, 0.6), (10, 5, 0.9), (10, 10, 0.9), (10, 20, 0.9)]:
        cells, counts = simulate_counts(C, items, accuracy, 200, generator)
        rows = {
            prior: coverages_of(counts, cells, confusion_prior=prior)
            for prior in ("hierarchical", "balanced", 0, "perks")
        }
        for prior, coverages in rows.items():
            print(C, items, accuracy, prior, *(f"{coverage:.2f}" for coverage in coverages))
        acc, tpr, f1 = rows.pop("hierarchical")
        assert 0.88 <= acc <= 0.99 and 0.88 <= tpr <= 0.98 and f1 >= rows["balanced"][2] - 0.02


HARD = torch.tensor([0.99] * 8 + [0.4] * 2, dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize(("items", "lowest"), [(5, 0.86), (10, 0.88), (20, 0.9)])
def test_hierarchical_intervals_cover_hard_classes(items, lowest, generator):
    """Recall of the hard classes and macro recall, equal-tailed 95 % intervals; the table is printed with -s."""
    cells = torch.where(torch.eye(10, dtype=torch.bool), HARD[:, None], (1 - HARD[:, None]) / 9)
    multinomial = torch.distributions.Multinomial  # a fixed number of items of each class
    sets, coverages = 200, {}
    with torch.random.fork_rng():
        torch.manual_seed(items)
        counts = torch.stack([multinomial(items, row).sample((sets,)) for row in cells], 1)
    for prior in "hierarchical", "balanced", 0, "perks":
        names = [str(i) for i in range(sets)]
        samples = sample_metrics(counts, ["tpr", "tpr@macro"], 1500, names=names, confusion_prior=prior)
        (_, low, high), (_, *macro) = equal_tailed(samples[0].double()), equal_tailed(samples[1].double())
        hard = ((low <= HARD) & (HARD <= high))[..., 8:].double().mean()
        mean = ((macro[0] <= HARD.mean()) & (HARD.mean() <= macro[1])).double().mean()
        coverages[prior] = float(hard), float(mean)
        print(f"8 of .99 and 2 of .4, {items} items:", prior, f"{hard:.2f} / {mean:.2f}")
    hard, mean = coverages["hierarchical"]
    assert hard >= lowest and mean >= lowest and mean >= coverages["balanced"][1] - 0.02


def test_hierarchical_huge_counts_keep_rates_of_other_classes():
    """Above about 1e15 items the logarithms of gamma functions have no digit left that depends on r and m."""
    large, huge = (
        sample_metrics(torch.tensor([[4 * size, size], [1, 3]], dtype=torch.float64), "tpr", 4000, **SHARED)[0][:, 0, 1]
        for size in (1e9, 1e30)
    )
    assert float(huge.mean()) == pytest.approx(float(large.mean()), abs=0.01)
    assert float(huge.std()) == pytest.approx(float(large.std()), rel=0.05)
