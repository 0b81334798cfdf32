"""`certify_topk` with made-up values: which results are proven, and which candidates need canonical distances."""

import numpy as np
import pytest
import torch
from ranks_oracle import nonzero_ranks, ranks

from tensormetrics.core.native import native
from tensormetrics.retrieval import positive_ranks
from tensormetrics.retrieval.search.stages import certify_topk

COLUMNS = torch.tensor([[4, 7, 2, 9, 5]])


def certify(values, k, error=1.0, complete=False, exact=True):
    """Call `certify_topk` with canonical distances in the reverse order of the values.

    Returns the nearest columns, whether they are proven, and the columns whose canonical distances were requested.
    """
    requested = []

    def deltas(row, column):
        requested.extend(column.tolist())
        position = (COLUMNS == column[:, None]).int().argmax(1)
        return -torch.tensor(values, dtype=torch.float64)[position]

    value_row = torch.tensor([values], dtype=torch.float64)
    error = torch.tensor([error], dtype=torch.float64)
    nearest, proven = certify_topk(value_row, COLUMNS[:, : len(values)].clone(), error, k, deltas, complete, exact)
    return nearest[0].tolist(), bool(proven), sorted(requested)


@pytest.mark.parametrize(
    ("values", "nearest", "requested"),
    [
        # Intervals [value - 1, value + 1]: a chain of overlapping intervals is ordered by canonical distances.
        ([0.0, 1.9, 3.8, 100.0, 200.0], [2, 7, 4], [2, 4, 7]),
        ([0.0, 2.0, 4.0, 100.0, 200.0], [2, 7, 4], [2, 4, 7]),  # they touch: the distances may be equal
        ([0.0, 2.1, 4.2, 100.0, 200.0], [4, 7, 2], []),  # apart: the values have the order
        ([0.0, 2.1, 4.0, 100.0, 200.0], [4, 2, 7], [2, 7]),
        ([0.0, 10.0, 20.0, 21.5, 200.0], [4, 7, 9], [2, 9]),  # the fourth may be the third
        ([0.0, 10.0, 20.0, 100.0, 101.0], [4, 7, 2], []),  # overlaps after the k-th do not matter
        ([0.5, 0.5, 0.5, 100.0, 200.0], [2, 4, 7], [2, 4, 7]),  # equal distances too: by column
    ],
)
def test_certify_topk_overlapping_intervals_get_canonical_order(values, nearest, requested):
    assert certify(values, 3) == (nearest, True, requested)


def test_certify_topk_proves_only_separated_results():
    assert certify([0.0, 10.0, 12.1, 14.0], 2)[1]  # excluded references are above 14 - 1, the second is below 10 + 1
    assert not certify([0.0, 10.0, 11.0, 12.0], 2)[1]  # 12 - 1 is not above 10 + 1
    assert not certify([0.0, 10.0, 11.0, 11.5], 2)[1]
    assert certify([0.0, 10.0, 11.0, 11.5], 2, complete=True)[1]
    assert certify([0.0, 1.0, 1.5, 2.0], 2, exact=False) == ([4, 7], True, [])
    assert (
        not certify([0.0, 10.0, 12.1, 14.0], 2, error=torch.nan)[1]
        and not certify([0.0, 1.0, 2.0, 3.0], 2, torch.inf)[1]
    )
    assert certify([0.0, torch.inf, torch.inf], 2) == ([4, -1], True, [])  # fewer than k finite values exist


@pytest.mark.skipif(not native.has_kernel("count_before", "cpu"), reason="built without native code")
@pytest.mark.parametrize("dim", [2, 3, 5, 8, 16])
@pytest.mark.parametrize("distance", ["ip", "l2", "cosine"])
def test_native_ranks_sums_use_no_fused_multiply_add(dim, distance):
    """The float64 distances differ only in the last bits, which a fused multiply-add would change."""
    generator = torch.Generator().manual_seed(dim)
    x = torch.randint(-2, 3, (60, dim), generator=generator, dtype=torch.float64)
    x = x * (1 + 2.0**-30 * torch.randint(0, 2, (60, dim), generator=generator))
    labels = torch.arange(60) % 3
    eye = np.eye(60, dtype=bool)
    match = (labels[:, None] == labels).numpy() & ~eye
    for ties in ("index", "optimistic", "pessimistic"):
        expected = ranks(x, x, match, eye, distance, ties)[0]
        assert nonzero_ranks(positive_ranks(x, labels, distance=distance, ties=ties).rank) == expected
