"""Error bounds of the filters, tested on millions of pairs of every family of inputs."""

from types import SimpleNamespace

import pytest
import torch
from ranks_oracle import families

from tensormetrics.retrieval import TorchKNN
from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.fp16_filter import Float16Filter
from tensormetrics.retrieval.search.product_filter import Filter

N, STEP = 3200, 400  # 10,240,000 pairs
LAYOUT = SimpleNamespace(TILE=128, DEPTH=64, BLOCK=32, STRIDE=4)  # constants of the kernels, which need Triton


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("family", families(9))
def test_filter_values_stay_within_error_bound(family, distance, device):
    x = torch.tensor(families(N, 48)[family], device=device)
    filters = [Filter(x, DISTANCES[distance], dtype) for dtype in (torch.float32, torch.float64)]
    pair = torch.arange(STEP * N, device=device)
    for query in x.split(STEP):
        delta = DISTANCES[distance].of_pairs(query, x, pair // N, pair % N, 2**28).view(STEP, N)
        for filter_ in filters:
            rows, error = filter_.query(query)
            factor, shift = (part[:, None] for part in filter_.affine_map(query))
            deviation = (filter_.values(rows)[:, :N].double() - (factor * delta + shift)).abs()
            assert (deviation <= error[:, None]).all()


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("family", families(9))
def test_fp16_filter_values_stay_within_error_bound(family, distance, device):
    x = torch.tensor(families(N, 48)[family], device=device)
    filters = [Float16Filter(Filter(x, DISTANCES[distance], torch.float32), LAYOUT, parts) for parts in (1, 2)]
    order = filters[0].order[:-1].long()
    is_row = order >= 0
    row = torch.arange(STEP, device=device).repeat_interleave(N)
    for query in x.split(STEP):
        delta = DISTANCES[distance].of_pairs(query, x, row, order[is_row].repeat(STEP), 2**28).view(STEP, N)
        for filter_ in filters:
            queries = filter_.query(query)
            factor, shift = (part[:, None] for part in filter_.affine_map(query, queries))
            products = queries.rows.float() @ filter_.rows.float().T  # summed in float32, as on a tensor core
            values = (filter_.bias - filter_.factor * products)[:STEP, is_row].double()
            query_loss, length, rounding = queries.left.double()[:, :STEP, None]
            norm, ref_loss, ref_error = filter_.row_bounds.double()[:, is_row]
            error = (values - (factor * delta + shift)).abs()
            assert (
                queries.is_bounded.all()
                and (error <= query_loss * norm + length * ref_loss + ref_error + rounding / 2).all()
            )
            assert (error <= filter_.error(queries)[:, None]).all()
            if family != "closer than the bound":  # where a query may be all zeros while references are not
                size = queries.rows.double().norm(dim=1).amax() * filter_.rows.double().norm(dim=1).amax()
                assert filter_.error(queries).amax() <= 2.0 ** (-4 - 4 * filter_.parts) * size + 1e-30


@pytest.mark.parametrize("distance", ["l2", "sqeuclidean", "ip", "cosine"])
def test_knn_inexact_neighbors_stay_within_error_bound(distance, device):
    x = torch.randn(1000, 20, device=device)
    exact, fast = (TorchKNN(distance, exact=is_exact).indices(x, 300, x, True) for is_exact in (True, False))
    assert 0 < (exact != fast).sum() < 0.01 * exact.numel()
    row = torch.arange(1000, device=device).repeat_interleave(300)
    exact_delta, fast_delta = (
        DISTANCES[distance].of_pairs(x, x, row, indices.flatten(), 2**28).view(1000, 300) for indices in (exact, fast)
    )
    filter_ = Filter(x, DISTANCES[distance], torch.float32)
    allowed = 2 * filter_.query(x)[1] / filter_.affine_map(x)[0]
    assert ((fast_delta - exact_delta).abs() <= allowed[:, None]).all()
