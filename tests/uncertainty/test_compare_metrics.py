"""Intervals and comparisons of metrics, against numpy and scipy."""

import numpy as np
import pytest
import scipy.stats
import small_samples_oracle as oracle
import torch
from test_weights import weight
from torchmetrics import MeanSquaredError
from torchmetrics.classification import MulticlassConfusionMatrix, MulticlassF1Score, MulticlassMatthewsCorrCoef

from tensormetrics.core.resampling.draws import pseudo_masses, t_scales
from tensormetrics.retrieval import FirstRank, PrecisionAtK
from tensormetrics.structured import MultisetMatch
from tensormetrics.uncertainty import Estimate, Uncertain, UncertaintyWarning, as_scalars, compare

R = 200


def make_metric(pred: torch.Tensor, ref: torch.Tensor, average: str = "macro", **items) -> MultisetMatch:
    metric = MultisetMatch(replicates=R, average=average, scores=("precision",))
    metric.update(pred[:, None], ref[:, None], **items)
    return metric


def test_interval_of_precision_equals_oracle(device):
    """Precision of 12 documents with one item each, 5 of them right, and pseudo-documents of average size."""
    right = np.array([1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0])
    metric = MultisetMatch(replicates=R, scores=("precision",)).to(device)
    metric.update(torch.tensor(right, device=device)[:, None], torch.ones(12, 1, dtype=torch.int64, device=device))
    weights = np.array([[weight(0, item, r)[0] for item in range(12)] for r in range(R)])
    rows = np.stack([right, np.ones(12), np.ones(12)], 1).astype(float)
    size = (12 + 12 - 5) / 12  # items that are predicted, in the reference, or both
    bounds = size * np.array([[0, 0.5, 0.5], [1, 1, 1]])
    masses = pseudo_masses(0, R, torch.device("cpu")).numpy()
    expected = oracle.interval(
        rows, np.ones(12), weights, masses, lambda sums: sums[0] / sums[1], bounds, False, (0, np.inf), 0.9
    )
    value, low, high = metric.interval(confidence=0.9)["precision"]
    assert float(value) == pytest.approx(5 / 12)
    assert [float(low), float(high)] == pytest.approx(expected, rel=1e-12)


def test_swap_test_of_binary_scores_is_mcnemars_exact_test(generator):
    a, b = (torch.rand(40, generator=generator) < probability for probability in (0.8, 0.5))
    ones = torch.ones(40, dtype=torch.int64)
    comparison = compare(make_metric(a.long(), ones), make_metric(b.long(), ones), rope=0.4)["precision"]
    difference = a.double().numpy() - b.double().numpy()
    assert float(comparison.difference) == pytest.approx(difference.mean())
    exact = scipy.stats.binomtest(int((difference > 0).sum()), int((difference != 0).sum())).pvalue
    assert float(comparison.p_value) >= exact - 1e-12
    assert comparison.discordant == (difference != 0).sum() and 0 < comparison.p_rope < 1


def test_compare_rope_of_zero_is_a_point(generator):
    a, b = (torch.rand(20, generator=generator) < 0.5 for _ in range(2))
    ones = torch.ones(20, dtype=torch.int64)
    metrics = make_metric(a.long(), ones), make_metric(b.long(), ones)
    assert float(compare(*metrics, rope=0)["precision"].p_rope) == 0
    assert float(compare(metrics[0], metrics[0], rope=1)["precision"].p_rope) == 1


def test_compare_lower_is_better_reverses_p_better(generator):
    labels = torch.arange(100) % 10
    points = torch.eye(10)[labels] + 0.3 * torch.randn(100, 10, generator=generator)
    metrics = [FirstRank("mean"), FirstRank("mean"), PrecisionAtK(1), PrecisionAtK(1)]
    for metric, noise in zip(metrics, (0.1, 1, 0.1, 1), strict=True):
        metric.update(points + noise * torch.randn(100, 10, generator=generator), labels)
    rank, precision = compare(*metrics[:2]), compare(*metrics[2:])
    assert rank.difference < 0 < precision.difference and rank.p_better > 0.9 and precision.p_better > 0.9
    medians = [FirstRank("median"), FirstRank("median")]
    for metric in medians:
        metric.update(points, labels)
    with pytest.warns(UncertaintyWarning, match="^all pairs are alike and the range"):
        equal = compare(*medians)
    assert equal.p_value == 1 and equal.p_better == 0.5 and equal.high == torch.inf


def test_interval_of_median_rank_uses_weighted_medians(generator):
    labels = torch.arange(60) % 6
    metric = FirstRank("median")
    metric.update(torch.eye(6)[labels] + torch.randn(60, 6, generator=generator), labels)
    per_query = FirstRank("mean", average="none")
    per_query.update(metric.embeddings, labels)
    ranks = per_query.compute().numpy()
    order, medians = ranks.argsort(kind="stable"), []
    for r in range(R):
        weights = np.array([weight(3, item, r)[0] for item in range(60)])[order]
        medians.append(ranks[order][np.searchsorted(weights.cumsum(), weights.sum() / 2)])
    estimate = metric.interval(replicates=R, seed=3)
    assert [float(estimate.low), float(estimate.high)] == pytest.approx(np.quantile(medians, [0.025, 0.975]))


def test_uncertain_interval_treats_updates_as_items(generator):
    metric = Uncertain(MeanSquaredError(), replicates=R, seed=5)
    values = torch.rand(25, generator=generator).mul(8).round()
    for value in values:
        metric(value[None], torch.zeros(1))
    squares = values.double().square().numpy()
    weights = np.array([[weight(5, item, r)[0] for item in range(25)] for r in range(R)])
    means = (weights * squares).sum(1) / weights.sum(1)
    estimate = metric.interval()
    assert float(estimate.value) == pytest.approx(squares.mean())
    influence = oracle.influences(squares.mean(), [np.delete(squares, item).mean() for item in range(25)])
    scales = t_scales(5, R, 24, torch.device("cpu")).numpy()
    draws = oracle.jackknife_draws(squares.mean(), means, influence, scales)
    assert [float(estimate.low), float(estimate.high)] == pytest.approx(np.quantile(draws, [0.025, 0.975]), rel=1e-5)
    assert metric.higher_is_better is False
    assert estimate.value.shape == estimate.low.shape == ()
    assert torch.equal(metric.compute(), estimate.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: MulticlassConfusionMatrix(3),  # all replicates in one call of `compute`
        lambda: MulticlassF1Score(3, average="none"),  # one by one: it indexes by values
        lambda: MulticlassMatthewsCorrCoef(3),  # one by one: it branches on a value
    ],
)
def test_uncertain_replicates_equal_compute_of_weighted_states(make, generator):
    metric, batches = Uncertain(make(), replicates=20), []
    for _ in range(6):
        batch = torch.randint(3, (2, 15), generator=generator)
        metric.update(*batch)
        batches.append(batch)
    weights = np.array([[weight(0, item, r)[0] for item in range(6)] for r in range(20)])
    expected = []
    for row in weights:
        weighted_metric = make()
        for item_weight, batch in zip(row.tolist(), batches, strict=True):
            item_metric = make()
            item_metric.update(*batch)
            for name in item_metric._defaults:
                added = item_weight * getattr(item_metric, name).double()
                setattr(weighted_metric, name, getattr(weighted_metric, name) + added)
        weighted_metric._update_count = 1
        expected.append(weighted_metric.compute().double())
    resampled = metric._resampled_sums(None, None)
    replicates = resampled.read(resampled.weighted)
    assert metric.interval().value.shape == expected[0].shape
    np.testing.assert_allclose(replicates, torch.stack(expected), rtol=1e-6)


def test_as_scalars_names_values_and_ends():
    estimate = Estimate(*torch.tensor([[0.5, 0.6], [0.4, 0.5], [0.6, 0.7]]))
    scalars = as_scalars(
        {"acc": Estimate(*torch.tensor([1.0, 0.5, 2.0])), "tpr": estimate}, "val/", {"tpr": ["a", "b"]}
    )
    assert scalars == pytest.approx(
        {
            **{"val/acc": 1.0, "val/acc/low": 0.5, "val/acc/high": 2.0},
            **{"val/tpr/a": 0.5, "val/tpr/b": 0.6, "val/tpr/a/low": 0.4, "val/tpr/b/low": 0.5},
            **{"val/tpr/a/high": 0.6, "val/tpr/b/high": 0.7},
        }
    )
    assert all(type(value) is float for value in scalars.values()) and as_scalars({"x": torch.ones(())}) == {"x": 1.0}
    batch = as_scalars({"tpr": Estimate(*torch.arange(12.0).view(3, 2, 2))})
    assert batch["tpr/0/1"] == 1.0 and batch["tpr/1/0/high"] == 10.0 and len(batch) == 12
    single = Estimate(*estimate, name="tpr")
    assert as_scalars(single, "val/") == as_scalars({"tpr": single}, "val/")
    assert as_scalars(single, labels={"tpr": ["a", "b"]})["tpr/b/high"] == pytest.approx(0.7)
    assert as_scalars(Estimate(*torch.tensor([1.0, 0.5, 2.0]))) == {"value": 1.0, "value/low": 0.5, "value/high": 2.0}
