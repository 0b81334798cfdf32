"""Verification by pairs, against sklearn's ROC curve of a list of all pairs."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve

from tensormetrics.retrieval import (
    EqualErrorRate,
    PairwiseAUROC,
    PairwiseROC,
    TARAtFAR,
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
    y = torch.randint(0, 9, (150,), generator=generator)
    x = torch.randn(150, 6, generator=generator) + torch.randn(9, 6, generator=generator)[y]
    scale = torch.randn(150, 1, generator=generator).exp() ** 3
    kinds = {
        "plain": x,
        "float64": x.double(),
        "half": x.half(),
        "lattice": x.round(),
        "far away": x * 1e-3 + 100,
        "uneven": x * scale,
        "copies": x[:7].repeat(22, 1)[:150],
        "one point": torch.ones_like(x),
    }
    return kinds[kind], y


def listed(distance, x, y, x2=None, y2=None):
    """Distances of all pairs by the library's formula, in float64, and whether they are of one label."""
    if x2 is None:
        i, j = torch.triu_indices(len(x), len(x), 1)
        return DISTANCES[distance].canonical(x[i], x[j]), y[i] == y[j]
    return DISTANCES[distance].canonical(x[:, None], x2).flatten(), (y[:, None] == y2).flatten()


def expected(distance, *sides):
    found, same = listed(distance, *sides)
    fpr, tpr, threshold = roc_curve(same.numpy(), -found.numpy(), drop_intermediate=False)
    last = [np.flatnonzero(fpr <= far)[-1] for far in FAR]
    k = np.flatnonzero(fpr + tpr >= 1)[0]
    before, after = 1 - fpr[k - 1] - tpr[k - 1], fpr[k] + tpr[k] - 1
    rate = fpr[k - 1] + before / (before + after) * (fpr[k] - fpr[k - 1])
    thresholds = [-threshold[k + 1] if k + 1 < len(fpr) else np.inf for k in last]
    return fpr[last], tpr[last], thresholds, rate


def check_against_all_pairs(distance, sides, **options):
    fpr, tpr, thresholds, rate = expected(distance, *sides)
    options["distance"] = distance
    roc = pairwise_roc(*sides, far=FAR, **options)
    assert roc.far.tolist() == fpr.tolist() and roc.tar.tolist() == tpr.tolist()
    at = DISTANCES[distance].from_canonical(torch.tensor(thresholds, dtype=torch.float64))
    assert torch.equal(roc.threshold, at)
    assert float(equal_error_rate(*sides, **options)) == pytest.approx(rate, abs=1e-15)
    assert [tar_at_far(*sides, far=far, **options).item() for far in FAR[:2]] == tpr[:2].tolist()


@pytest.mark.parametrize("kind", ["plain", "float64", "half", "lattice", "far away", "uneven", "copies", "one point"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_equals_a_sorted_list_of_all_pairs(kind, distance, monkeypatch):
    x, y = rows(kind)
    one_set, two_sets = (x, y), (x[:60], y[:60], x[60:], y[60:])
    for sides in (one_set, two_sets):
        check_against_all_pairs(distance, sides)
    monkeypatch.setattr(pairs, "BINS", 2**5)
    # A tile of so small a budget is a row and 64 columns: few rows, which still fill more than a tile.
    check_against_all_pairs(distance, (x[:12], y[:12], x[12:80], y[12:80]), memory_budget=2**12)
    usual = pairs.Pairs.__init__

    def with_few_pairs_kept(self, *args):
        usual(self, *args)
        self.rows, self.columns, self.max_pairs = 30, 64, 42

    monkeypatch.setattr(pairs.Pairs, "__init__", with_few_pairs_kept)  # ranges are divided again
    for sides in (one_set, two_sets):
        check_against_all_pairs(distance, sides)


@pytest.mark.parametrize("distance", DISTANCES)
def test_small_budget_of_one_set_equals_a_sorted_list_of_all_pairs(distance, monkeypatch):
    monkeypatch.setattr(pairs, "BINS", 2**5)
    x, y = rows("plain")
    check_against_all_pairs(distance, (x[:66], y[:66]), memory_budget=2**12)


@pytest.mark.parametrize("kind", ["plain", "float64", "half", "lattice", "far away", "uneven", "copies", "one point"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_area_equals_that_of_a_sorted_list(kind, distance):
    x, y = rows(kind)
    for sides in ((x, y), (x[:60], y[:60], x[60:], y[60:])):
        distances, same = listed(distance, *sides)
        # Ranks of integers: sklearn would add floats.
        _, place, number = np.unique(distances.numpy(), return_inverse=True, return_counts=True)
        middle = 2 * number.cumsum() - number + 1  # twice the mean rank
        near = same.numpy()
        doubled = int(middle[place][~near].sum()) - int((~near).sum()) * (int((~near).sum()) + 1)
        wanted = doubled / (2 * int(near.sum()) * int((~near).sum()))
        assert wanted == pytest.approx(roc_auc_score(near, -distances.numpy()), rel=1e-12)
        assert float(pairwise_auroc(*sides, distance=distance)) == wanted
        shared = 0 if len(sides) > 2 else len(sides[0])
        counted = pairs.Pairs(RetrievalInputs(*sides[:2], *sides[-2:], shared), DISTANCES[distance])
        counted.max_pairs = 300  # distances that may be kept: all pairs are seen several times
        assert float(counted.concordance()) == wanted


def test_ranges_are_divided_until_few_pairs_are_left(monkeypatch):
    monkeypatch.setattr(pairs, "BINS", 32)
    x, y = rows("plain")
    counted = pairs.Pairs(RetrievalInputs(x, y, x, y, len(x)), DISTANCES["l2"], 2**12)
    passes, histograms = [], counted._histograms
    counted._histograms = lambda ranges: passes.append(len(ranges)) or histograms(ranges)
    counted.max_pairs = 3
    (found,) = counted.first([lambda same, different: same >= 100])
    distances, same = listed("l2", x, y)
    assert found.at == distances[same].sort().values[99] and passes
    assert int(found.through[0]) == 100 and int(found.below[0]) == 99


def test_pairs_of_one_camera_are_left_out():
    x, y = rows("plain")
    cameras = torch.arange(150) % 2
    metric = EqualErrorRate()
    metric.update(x[:70], y[:70], cameras=cameras[:70])
    metric.update(x[70:], y[70:], cameras=cameras[70:])
    distances, same = listed("l2", x, y)
    i, j = torch.triu_indices(150, 150, 1)
    left = ~(same & (cameras[i] == cameras[j]))
    fpr, tpr, _ = roc_curve(same[left].numpy(), -distances[left].numpy(), drop_intermediate=False)
    k = np.flatnonzero(fpr + tpr >= 1)[0]
    assert min(fpr[k - 1], 1 - tpr[k]) <= metric.compute() <= max(fpr[k], 1 - tpr[k - 1])


def test_queries_references_and_both():
    x, y = rows("lattice")
    metric, area = PairwiseROC(FAR), PairwiseAUROC()
    for each in (metric, area):
        each.update(x[:50], y[:50])
        each.update(x[50:90], y[50:90], role="query")
        each.update(x[90:], y[90:], role="reference")
    inside = listed("l2", x[:50], y[:50])
    others = [
        listed("l2", a, b, c, d)
        for a, b, c, d in ((x[:50], y[:50], x[90:], y[90:]), (x[50:90], y[50:90], x[:50], y[:50]),
                           (x[50:90], y[50:90], x[90:], y[90:]))
    ]  # fmt: skip
    distances, same = (torch.cat(parts).numpy() for parts in zip(inside, *others, strict=True))
    fpr, tpr, _ = roc_curve(same, -distances, drop_intermediate=False)
    assert metric.compute().tar.tolist() == [tpr[fpr <= far].max() for far in FAR]
    assert float(area.compute()) == pytest.approx(roc_auc_score(same, -distances), rel=1e-12)


@pytest.mark.parametrize("references", [None, 15])
@pytest.mark.parametrize("distance", DISTANCES)
def test_batches_equal_their_items_bit_for_bit(distance, references, monkeypatch):
    generator = torch.Generator().manual_seed(4)
    sizes = (20,) if references is None else (20, references)
    batch = []
    for size in sizes:
        x = torch.randn(2, 4, size, 3, generator=generator)
        x[1] = x[1].round()  # many pairs at equal distance
        y = torch.randint(0, 4, (2, 4, size), generator=generator)
        y[0, 0], y[0, 1] = 1, torch.arange(size) + 50 * len(batch)  # a kind without pairs
        batch += [x, y]
    calls = [
        lambda *sides, **budget: torch.stack(pairwise_roc(*sides, far=FAR, distance=distance, **budget), -1),
        lambda *sides, **budget: tar_at_far(*sides, far=0.1, distance=distance, **budget),
        lambda *sides, **budget: equal_error_rate(*sides, distance=distance, **budget),
        lambda *sides, **budget: pairwise_auroc(*sides, distance=distance, **budget),
    ]
    for call in calls:
        items = [[call(*(side[i, j] for side in batch)) for j in range(4)] for i in range(2)]
        items = torch.stack([torch.stack(row) for row in items])
        for budget in (None, 2**14):  # all at once, and one at a time
            torch.testing.assert_close(call(*batch, memory_budget=budget), items, rtol=0, atol=0, equal_nan=True)
        with monkeypatch.context() as patch:
            patch.setitem(listed_pairs.MAX_PAIRS, "cpu", 0)  # too many to list
            torch.testing.assert_close(call(*batch), items, rtol=0, atol=0, equal_nan=True)


def test_nothing_to_compare_is_nan():
    x = torch.randn(4, 2)
    for y in (torch.arange(4), torch.zeros(4, dtype=torch.int64)):
        assert pairwise_auroc(x, y).isnan() and equal_error_rate(x, y).isnan() and tar_at_far(x, y).isnan()
        assert all(part.isnan().all() for part in pairwise_roc(x, y))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"far": 1.5}, "far: got 1.5, wanted rates in [0, 1]"),
        ({"distance": "manhattan"}, None),
    ],
)
def test_bad_options(arguments, message):
    x, y = rows("plain")
    for call in (lambda: tar_at_far(x, y, **arguments), lambda: TARAtFAR(**arguments)):
        with pytest.raises(ValueError) as caught:
            call()
        assert message is None or str(caught.value) == message
    with pytest.raises(ValueError, match="^far: got none, wanted at least one rate$"):
        PairwiseROC(())
