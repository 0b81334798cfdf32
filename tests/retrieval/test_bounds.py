"""What the filter promises: its values are off by no more than it says, for millions of pairs of every family."""

from types import SimpleNamespace

import pytest
import torch
from ranks_oracle import families

from tensormetrics.retrieval import TorchKNN
from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.fp16_filter import Float16Filter
from tensormetrics.retrieval.search.product_filter import Filter

N, STEP = 3200, 400  # 10,240,000 pairs
LAYOUT = SimpleNamespace(TILE=128, DEPTH=64, BLOCK=32, STRIDE=4)  # of the kernels, which not every machine has


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("family", families(9))
def test_no_value_is_off_by_more(family, distance, device):
    x = torch.tensor(families(N, 48)[family], device=device)
    filters = [Filter(x, DISTANCES[distance], dtype) for dtype in (torch.float32, torch.float64)]
    pair = torch.arange(STEP * N, device=device)
    for query in x.split(STEP):
        delta = DISTANCES[distance].of_pairs(query, x, pair // N, pair % N, 2**28).view(STEP, N)
        for filter_ in filters:
            rows, error = filter_.query(query)
            factor, shift = (part[:, None] for part in filter_.affine_map(query))
            off = (filter_.values(rows)[:, :N].double() - (factor * delta + shift)).abs()
            assert (off <= error[:, None]).all()


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("family", families(9))
def test_no_product_of_halves_is_off_by_more(family, distance, device):
    x = torch.tensor(families(N, 48)[family], device=device)
    filters = [Float16Filter(Filter(x, DISTANCES[distance], torch.float32), LAYOUT, parts) for parts in (1, 2)]
    order = filters[0].order[:-1].long()
    there = order >= 0
    row = torch.arange(STEP, device=device).repeat_interleave(N)
    for query in x.split(STEP):
        delta = DISTANCES[distance].of_pairs(query, x, row, order[there].repeat(STEP), 2**28).view(STEP, N)
        for halves in filters:
            queries = halves.query(query)
            factor, shift = (part[:, None] for part in halves.affine_map(query, queries))
            products = queries.rows.float() @ halves.rows.float().T  # summed in float32, as on a tensor core
            values = (halves.bias - halves.factor * products)[:STEP, there].double()
            near, length, twice = queries.left.double()[:, :STEP, None]
            kept, lost, own = halves.row_bounds.double()[:, there]
            off = (values - (factor * delta + shift)).abs()
            assert queries.known.all() and (off <= near * kept + length * lost + own + twice / 2).all()
            assert (off <= halves.error(queries)[:, None]).all()
            if family != "closer than the bound":  # of which a query may be all zeros, and the references not
                size = queries.rows.double().norm(dim=1).amax() * halves.rows.double().norm(dim=1).amax()
                assert halves.error(queries).amax() <= 2.0 ** (-4 - 4 * halves.parts) * size + 1e-30


@pytest.mark.parametrize("distance", ["l2", "sqeuclidean", "ip", "cosine"])
def test_without_certificate_neighbours_are_off_by_the_bound(distance, device):
    x = torch.randn(1000, 20, device=device)
    exact, fast = (TorchKNN(distance, exact=choice).indices(x, 300, x, True) for choice in (True, False))
    assert 0 < (exact != fast).sum() < 0.01 * exact.numel()
    row = torch.arange(1000, device=device).repeat_interleave(300)
    wanted, got = (
        DISTANCES[distance].of_pairs(x, x, row, found.flatten(), 2**28).view(1000, 300) for found in (exact, fast)
    )
    filter_ = Filter(x, DISTANCES[distance], torch.float32)
    allowed = 2 * filter_.query(x)[1] / filter_.affine_map(x)[0]
    assert ((got - wanted).abs() <= allowed[:, None]).all()
