import itertools

import numpy as np
import pytest
import torch

from tensormetrics.retrieval import adjusted_rand, fowlkes_mallows


def count_pairs(labels, clusters):
    """Count TP, FP, FN and TN over unordered pairs."""
    counts = {key: 0 for key in itertools.product((True, False), repeat=2)}
    for i, j in itertools.combinations(range(len(labels)), 2):
        counts[clusters[i] == clusters[j], labels[i] == labels[j]] += 1
    return counts[True, True], counts[True, False], counts[False, True], counts[False, False]


@pytest.mark.parametrize("seed", range(5))
def test_pair_scores_match_brute_force_counts(seed, device):
    labels, clusters = np.random.RandomState(seed).randint(0, 4, (2, 30))
    tp, fp, fn, tn = map(int, count_pairs(labels, clusters))
    pair = torch.tensor(labels, device=device), torch.tensor(clusters, device=device)
    rand = 2 * (tp * tn - fp * fn) / ((tp + fp) * (fp + tn) + (tp + fn) * (fn + tn))
    assert float(adjusted_rand(*pair)) == pytest.approx(rand, abs=1e-14)
    assert float(fowlkes_mallows(*pair)) == pytest.approx(tp / np.sqrt((tp + fp) * (tp + fn)), abs=1e-14)


def test_pair_scores_do_not_overflow_int64_products(device):
    # 200,000 items, half of them moved to the next of 8 clusters, so that all cells are known in closed form.
    labels = torch.arange(200_000, device=device) % 8
    clusters = torch.where(torch.arange(200_000, device=device) % 16 < 8, labels, (labels + 1) % 8)
    n, size, cell = 200_000, 25_000, 12_500
    tp, same = 16 * cell * (cell - 1), 8 * size * (size - 1)
    fp = fn = same - tp
    tn = n * (n - 1) - tp - fp - fn
    rand = 2 * (tp * tn - fp * fn) / ((tp + fp) * (fp + tn) + (tp + fn) * (fn + tn))
    assert float(adjusted_rand(labels, clusters)) == pytest.approx(rand, rel=1e-14)
    assert float(fowlkes_mallows(labels, clusters)) == pytest.approx(tp / same, rel=1e-14)
