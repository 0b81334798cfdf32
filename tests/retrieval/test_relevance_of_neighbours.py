"""Ignored references and graded relevance where a function finds the neighbours: as where ranks are counted."""

import pytest
import torch

from tensormetrics.retrieval import AccuracyCalculator, FaissKNN, TorchKNN, cmc, hit_rate, positive_ranks

NAMES = ("hit_rate_at_1", "mean_average_precision", "mean_average_precision_at_r", "ndcg_at_5", "precision_at_3",
         "recall_at_4", "mean_auroc")  # fmt: skip
OTHERS = torch.rand(50, 50, generator=torch.Generator().manual_seed(1)) < 0.4


def data():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (50,), generator=generator)
    rows = torch.randn(50, 3, generator=generator) + labels[:, None]
    return rows, labels, torch.randint(0, 3, (50,), generator=generator)


def graded(a, b):
    return (3 - (a - b).abs()).clamp(min=0)


def searches():
    yield lambda *arguments: TorchKNN()(*arguments)
    pytest.importorskip("faiss")
    yield FaissKNN()


@pytest.mark.parametrize("k", [None, 5, "max_bin_count"])
@pytest.mark.parametrize(
    ("options", "cameras"),
    [
        ({}, True),
        ({"ignore": OTHERS}, False),
        ({"ignore": lambda rows: OTHERS[rows]}, False),
        ({"gains": graded}, False),
        ({"gains": graded}, True),
        ({"gains": OTHERS.double(), "ignore": ~OTHERS.T}, False),
        ({"label_comparison_fn": lambda a, b: (a - b).abs() < 2}, True),
    ],
)
def test_any_search_is_scored_as_the_default(options, cameras, k):
    x, labels, of_camera = data()
    for sides in ((x, labels), (x, labels, x + 0.01, labels)):
        given = {"query_cameras": of_camera} if cameras else {}
        if cameras and len(sides) == 4:
            given["reference_cameras"] = of_camera
        expected = AccuracyCalculator(NAMES, k=k, memory_budget=2**12, **options).get_accuracy(*sides, **given)
        for knn in searches():
            found = AccuracyCalculator(NAMES, k=k, knn_func=knn, memory_budget=2**12, **options)
            assert found.get_accuracy(*sides, **given) == pytest.approx(expected, rel=1e-12)


def test_no_more_neighbours_are_asked_for_than_may_be_ignored():
    x, labels, cameras = data()
    asked = []

    def knn(query, k, *rest):
        asked.append(k)
        return TorchKNN()(query, k, *rest)

    AccuracyCalculator(("precision_at_3",), knn_func=knn).get_accuracy(x, labels, query_cameras=cameras)
    same = (labels[:, None] == labels) & (cameras[:, None] == cameras)
    assert asked == [3 + int(same.sum(1).max()) - 1]


def test_the_cumulative_match_curve_is_the_hit_rate_at_every_depth():
    x, labels, _ = data()
    labels = torch.cat([labels[:-1], torch.tensor([9])])  # which nobody shares
    ranks = positive_ranks(x, labels)
    curve = cmc(ranks, 6)
    expected = torch.stack([hit_rate(ranks, k) for k in range(1, 7)], -1)
    torch.testing.assert_close(curve, expected, rtol=0, atol=0, equal_nan=True)
    assert curve.shape == (50, 6) and curve[-1].isnan().all()
    with pytest.raises(ValueError, match="^k: got 0, wanted an integer >= 1$"):
        cmc(ranks, 0)
