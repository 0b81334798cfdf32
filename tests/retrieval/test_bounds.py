"""What the filter promises: its values are off by no more than it says, for millions of pairs of every family."""

import pytest
import torch
from ranks_oracle import families

from tensormetrics.retrieval import TorchKNN
from tensormetrics.retrieval._order import Filter, canonical_pairs

N, STEP = 3200, 400  # 10,240,000 pairs


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("family", families(9))
def test_no_value_is_off_by_more(family, distance, device):
    x = torch.tensor(families(N, 48)[family], device=device)
    filters = [Filter(x, distance, dtype) for dtype in (torch.float16, torch.float32, torch.float64)]
    pair = torch.arange(STEP * N, device=device)
    for query in x.split(STEP):
        delta = canonical_pairs(query, x, pair // N, pair % N, distance, 2**28).view(STEP, N)
        for filter_ in filters:
            rows, error = filter_.query(query)
            factor, shift = (part[:, None] for part in filter_.place(query))
            # Products of halves are summed in float32, which not every device does by itself.
            wide = filter_.bias.dtype
            values = torch.addmm(filter_.bias, rows.to(wide), filter_.rows.to(wide).T)[:, :N]
            off = (values.double() - (factor * delta + shift)).abs()
            assert (off <= error[:, None]).all()


@pytest.mark.parametrize("distance", ["l2", "sqeuclidean", "ip", "cosine"])
def test_without_certificate_neighbours_are_off_by_the_bound(distance, device):
    x = torch.randn(1000, 20, device=device)
    exact, fast = (TorchKNN(distance, exact=choice).indices(x, 300, x, True) for choice in (True, False))
    assert 0 < (exact != fast).sum() < 0.01 * exact.numel()
    row = torch.arange(1000, device=device).repeat_interleave(300)
    wanted, got = (
        canonical_pairs(x, x, row, found.flatten(), distance, 2**28).view(1000, 300) for found in (exact, fast)
    )
    filter_ = Filter(x, distance, torch.float32)
    allowed = 2 * filter_.query(x)[1] / filter_.place(x)[0]
    assert ((got - wanted).abs() <= allowed[:, None]).all()
