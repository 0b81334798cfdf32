"""The heart of the proof with made-up values: which neighbours are proven, and which canonical distances order."""

import pytest
import torch

from tensormetrics import _native
from tensormetrics.retrieval import positive_ranks
from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.stages import certify_topk

COLUMNS = torch.tensor([[4, 7, 2, 9, 5]])


def put(values, k, error=1.0, all_kept=False, exact=True):
    """Columns and proof where canonical distances have the reverse order of the values; and which were asked for."""
    asked = []

    def deltas(row, column):
        asked.extend(column.tolist())
        place = (COLUMNS == column[:, None]).int().argmax(1)
        return -torch.tensor(values, dtype=torch.float64)[place]

    values_ = torch.tensor([values], dtype=torch.float64)
    error = torch.tensor([error], dtype=torch.float64)
    nearest, proven = certify_topk(values_, COLUMNS[:, : len(values)].clone(), error, k, deltas, all_kept, exact)
    return nearest[0].tolist(), bool(proven), sorted(asked)


@pytest.mark.parametrize(
    ("values", "nearest", "asked"),
    [
        # Intervals [value - 1, value + 1]: those of a chain overlap from one to the next, and are ordered together.
        ([0.0, 1.9, 3.8, 100.0, 200.0], [2, 7, 4], [2, 4, 7]),
        ([0.0, 2.0, 4.0, 100.0, 200.0], [2, 7, 4], [2, 4, 7]),  # they touch: the distances may be equal
        ([0.0, 2.1, 4.2, 100.0, 200.0], [4, 7, 2], []),  # apart: the values have the order
        ([0.0, 2.1, 4.0, 100.0, 200.0], [4, 2, 7], [2, 7]),
        ([0.0, 10.0, 20.0, 21.5, 200.0], [4, 7, 9], [2, 9]),  # the fourth may be the third
        ([0.0, 10.0, 20.0, 100.0, 101.0], [4, 7, 2], []),  # what overlaps behind them does not matter
        ([0.5, 0.5, 0.5, 100.0, 200.0], [2, 4, 7], [2, 4, 7]),  # equal distances too: by column
    ],
)
def test_overlapping_intervals_are_put_in_canonical_order(values, nearest, asked):
    assert put(values, 3) == (nearest, True, asked)


def test_what_is_proven():
    assert put([0.0, 10.0, 12.1, 14.0], 2)[1]  # what is left out is above 14 - 1, the second below 10 + 1
    assert not put([0.0, 10.0, 11.0, 12.0], 2)[1]  # 12 - 1 is not above 10 + 1
    assert not put([0.0, 10.0, 11.0, 11.5], 2)[1]
    assert put([0.0, 10.0, 11.0, 11.5], 2, all_kept=True)[1]
    assert put([0.0, 1.0, 1.5, 2.0], 2, exact=False) == ([4, 7], True, [])
    assert not put([0.0, 10.0, 12.1, 14.0], 2, error=torch.nan)[1] and not put([0.0, 1.0, 2.0, 3.0], 2, torch.inf)[1]
    assert put([0.0, torch.inf, torch.inf], 2) == ([4, -1], True, [])  # there are no others


@pytest.mark.skipif(not _native.has_kernel("count_before", "cpu"), reason="built without native code")
@pytest.mark.parametrize("dim", [2, 3, 5, 8, 16])
@pytest.mark.parametrize("distance", ["ip", "l2", "cosine"])
def test_native_sums_are_not_fused(dim, distance):
    """Ranks by native code, with float64 rows whose distances differ in the last bits that a fused operation keeps."""
    generator = torch.Generator().manual_seed(dim)
    x = torch.randint(-2, 3, (60, dim), generator=generator, dtype=torch.float64)
    x = x * (1 + 2.0**-30 * torch.randint(0, 2, (60, dim), generator=generator))
    labels = torch.arange(60) % 3
    delta = DISTANCES[distance].canonical(x[:, None], x[None])
    for ties in ("index", "optimistic", "pessimistic"):
        native = positive_ranks(x, labels, distance=distance, ties=ties).rank
        first = {"index": 0, "optimistic": labels[:, None] != labels, "pessimistic": labels[:, None] == labels}[ties]
        before = delta[:, None, :] < delta[:, :, None]
        before |= (delta[:, None, :] == delta[:, :, None]) & earlier(first, len(x))
        before &= ~torch.eye(60, dtype=torch.bool)[:, None]
        match = (labels[:, None] == labels) & ~torch.eye(60, dtype=torch.bool)
        rank = 1 + before.sum(2)
        for row, wanted, found in zip(native, rank, match, strict=True):
            assert row[row > 0].tolist() == sorted(wanted[found].tolist())


def earlier(first, size):
    """(Q, N, N): at equal distance, is the second reference before the first one?"""
    index = torch.arange(size)
    behind = (index[None, :] < index[:, None]).expand(size, size, size)
    if isinstance(first, int):
        return behind
    later = first.int()
    return (later[:, None, :] < later[:, :, None]) | ((later[:, None, :] == later[:, :, None]) & behind)
