"""Pairwise verification scores, compared with sklearn's ROC curve of all pairs."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve

from tensormetrics.retrieval import (
    EqualErrorRate,
    PairwiseAUROC,
    PairwiseROC,
    equal_error_rate,
    pairwise_auroc,
    pairwise_roc,
    tar_at_far,
)
from tensormetrics.retrieval.inputs import RetrievalInputs
from tensormetrics.retrieval.ranking import listed_pairs, pairs
from tensormetrics.retrieval.search.distance import DISTANCES

FAR = (0.0, 1e-3, 1e-2, 0.1, 1.0)


def rows(kind):
    generator = torch.Generator().manual_seed(3)
    y = torch.randint(0, 9, (100,), generator=generator)
    x = torch.randn(100, 6, generator=generator) + torch.randn(9, 6, generator=generator)[y]
    scale = torch.randn(100, 1, generator=generator).exp() ** 3
    kinds = {
        "plain": x,
        "float64": x.double(),
        "half": x.half(),
        "lattice": x.round(),
        "far away": x * 1e-3 + 100,
        "uneven": x * scale,
        "copies": x[:7].repeat(15, 1)[:100],
        "one point": torch.ones_like(x),
    }
    return kinds[kind], y


def all_pairs(distance, x, y, x2=None, y2=None):
    """Return the canonical float64 distances of all pairs, and whether the labels of each pair are equal."""
    if x2 is None:
        i, j = torch.triu_indices(len(x), len(x), 1)
        return DISTANCES[distance].canonical(x[i], x[j]), y[i] == y[j]
    return DISTANCES[distance].canonical(x[:, None], x2).flatten(), (y[:, None] == y2).flatten()


def sklearn_rates(distance, *inputs):
    distances, same = all_pairs(distance, *inputs)
    fpr, tpr, threshold = roc_curve(same.numpy(), -distances.numpy(), drop_intermediate=False)
    last = [np.flatnonzero(fpr <= far)[-1] for far in FAR]
    k = np.flatnonzero(fpr + tpr >= 1)[0]
    before, after = 1 - fpr[k - 1] - tpr[k - 1], fpr[k] + tpr[k] - 1
    rate = fpr[k - 1] + before / (before + after) * (fpr[k] - fpr[k - 1])
    thresholds = [-threshold[k + 1] if k + 1 < len(fpr) else np.inf for k in last]
    return fpr[last], tpr[last], thresholds, rate


def side_by_side(roc):
    return torch.cat([*roc[:3], *(part[..., None] for part in roc[3:])], -1)


def check_against_all_pairs(distance, inputs, **options):
    fpr, tpr, thresholds, rate = sklearn_rates(distance, *inputs)
    options["distance"] = distance
    roc = pairwise_roc(*inputs, far=FAR, **options)
    assert roc.far.tolist() == fpr.tolist() and roc.tar.tolist() == tpr.tolist()
    threshold = DISTANCES[distance].from_canonical(torch.tensor(thresholds, dtype=torch.float64))
    assert torch.equal(roc.threshold, threshold)
    assert float(roc.equal_error_rate) == pytest.approx(rate, abs=1e-15)
    return roc


@pytest.mark.parametrize("kind", ["plain", "float64", "half", "lattice", "far away", "uneven", "copies", "one point"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_pairwise_scores_match_sklearn_on_all_pairs(kind, distance, monkeypatch):
    x, y = rows(kind)
    one_set, two_sets = (x, y), (x[:40], y[:40], x[40:], y[40:])
    for inputs in (one_set, two_sets):
        roc = check_against_all_pairs(distance, inputs)
        assert roc.equal_error_rate == equal_error_rate(*inputs, distance=distance)
        assert roc.auroc == pairwise_auroc(*inputs, distance=distance)
        assert tar_at_far(*inputs, far=FAR, distance=distance).tolist() == roc.tar.tolist()
    monkeypatch.setattr(pairs, "BINS", 2**5)
    # With this budget a tile is 1 x 64 pairs, so few rows suffice for several tiles.
    check_against_all_pairs(distance, (x[:12], y[:12], x[12:80], y[12:80]), memory_budget=2**12)
    if kind == "plain":
        check_against_all_pairs(distance, (x[:66], y[:66]), memory_budget=2**12)
    usual = pairs.ItemPairs.__init__

    def init_with_small_limits(self, *args):
        usual(self, *args)
        self.rows, self.columns, self.max_pairs = 30, 64, 42

    monkeypatch.setattr(pairs.ItemPairs, "__init__", init_with_small_limits)  # ranges are divided again
    for inputs in (one_set, two_sets):
        check_against_all_pairs(distance, inputs)


@pytest.mark.parametrize("kind", ["plain", "float64", "half", "lattice", "far away", "uneven", "copies", "one point"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_pairwise_auroc_matches_sklearn(kind, distance):
    x, y = rows(kind)
    for inputs in ((x, y), (x[:40], y[:40], x[40:], y[40:])):
        distances, same = all_pairs(distance, *inputs)
        # Integer ranks are exact, while sklearn adds floats.
        _, rank_index, counts = np.unique(distances.numpy(), return_inverse=True, return_counts=True)
        doubled_mean_ranks = 2 * counts.cumsum() - counts + 1  # twice the mean rank
        is_positive = same.numpy()
        doubled_concordance = int(doubled_mean_ranks[rank_index][~is_positive].sum()) - int((~is_positive).sum()) * (
            int((~is_positive).sum()) + 1
        )
        auroc = doubled_concordance / (2 * int(is_positive.sum()) * int((~is_positive).sum()))
        assert auroc == pytest.approx(roc_auc_score(is_positive, -distances.numpy()), rel=1e-12)
        assert float(pairwise_auroc(*inputs, distance=distance)) == auroc
        num_shared = 0 if len(inputs) > 2 else len(inputs[0])
        counter = pairs.ItemPairs(RetrievalInputs(*inputs[:2], *inputs[-2:], num_shared), DISTANCES[distance])
        counter.max_pairs = 300  # capacity for distances, so small that all pairs are visited several times
        assert float(counter.concordance()) == auroc


def test_equal_error_rate_excludes_pairs_of_one_camera():
    x, y = rows("plain")
    cameras = torch.arange(100) % 2
    metric = EqualErrorRate()
    metric.update(x[:70], y[:70], cameras=cameras[:70])
    metric.update(x[70:], y[70:], cameras=cameras[70:])
    distances, same = all_pairs("l2", x, y)
    i, j = torch.triu_indices(100, 100, 1)
    is_valid = ~(same & (cameras[i] == cameras[j]))
    fpr, tpr, _ = roc_curve(same[is_valid].numpy(), -distances[is_valid].numpy(), drop_intermediate=False)
    k = np.flatnonzero(fpr + tpr >= 1)[0]
    assert min(fpr[k - 1], 1 - tpr[k]) <= metric.compute() <= max(fpr[k], 1 - tpr[k - 1])


def test_pairwise_metrics_by_role_match_sklearn():
    x, y = rows("lattice")
    metric, area = PairwiseROC(FAR), PairwiseAUROC()
    for module in (metric, area):
        module.update(x[:50], y[:50])
        module.update(x[50:90], y[50:90], role="query")
        module.update(x[90:], y[90:], role="reference")
    pairs_of_both = all_pairs("l2", x[:50], y[:50])
    others = [
        all_pairs("l2", a, b, c, d)
        for a, b, c, d in ((x[:50], y[:50], x[90:], y[90:]), (x[50:90], y[50:90], x[:50], y[:50]),
                           (x[50:90], y[50:90], x[90:], y[90:]))
    ]  # fmt: skip
    distances, same = (torch.cat(parts).numpy() for parts in zip(pairs_of_both, *others, strict=True))
    fpr, tpr, _ = roc_curve(same, -distances, drop_intermediate=False)
    assert metric.compute().tar.tolist() == [tpr[fpr <= far].max() for far in FAR]
    assert float(area.compute()) == pytest.approx(roc_auc_score(same, -distances), rel=1e-12)


@pytest.mark.parametrize("references", [None, 15])
@pytest.mark.parametrize("distance", DISTANCES)
def test_batches_of_pairs_match_their_items_exactly(distance, references, monkeypatch):
    generator = torch.Generator().manual_seed(4)
    sizes = (20,) if references is None else (20, references)
    batch = []
    for size in sizes:
        x = torch.randn(2, 4, size, 3, generator=generator)
        x[1] = x[1].round()  # many pairs at equal distance
        y = torch.randint(0, 4, (2, 4, size), generator=generator)
        y[0, 0], y[0, 1] = 1, torch.arange(size) + 50 * len(batch)  # one kind of pairs is missing
        batch += [x, y]
    calls = [
        lambda *inputs, **budget: side_by_side(pairwise_roc(*inputs, far=FAR, distance=distance, **budget)),
        lambda *inputs, **budget: tar_at_far(*inputs, far=0.1, distance=distance, **budget),
        lambda *inputs, **budget: equal_error_rate(*inputs, distance=distance, **budget),
        lambda *inputs, **budget: pairwise_auroc(*inputs, distance=distance, **budget),
    ]
    for call in calls:
        items = [[call(*(tensor[i, j] for tensor in batch)) for j in range(4)] for i in range(2)]
        items = torch.stack([torch.stack(row) for row in items])
        for budget in (None, 2**14):  # all at once, and one at a time
            torch.testing.assert_close(call(*batch, memory_budget=budget), items, rtol=0, atol=0, equal_nan=True)
        with monkeypatch.context() as patch:
            patch.setitem(listed_pairs.MAX_PAIRS, "cpu", 0)  # no number of pairs is small enough to list
            torch.testing.assert_close(call(*batch), items, rtol=0, atol=0, equal_nan=True)


def test_pairwise_scores_without_pairs_are_nan():
    x = torch.randn(4, 2)
    for y in (torch.arange(4), torch.zeros(4, dtype=torch.int64)):
        assert pairwise_auroc(x, y).isnan() and equal_error_rate(x, y).isnan() and tar_at_far(x, y).isnan()
        assert all(part.isnan().all() for part in pairwise_roc(x, y))
