"""Triton kernels return the same indices and ranks as plain torch; without a GPU Triton's interpreter runs them."""

from pathlib import Path

import pytest
import torch
from kernels import INTERPRETED, interpreted
from retrieval_oracle import families

from tensormetrics.core.native import native
from tensormetrics.retrieval import TorchKNN
from tensormetrics.retrieval.clusters.assignment import CentroidAssignment
from tensormetrics.retrieval.functional import positive_ranks
from tensormetrics.retrieval.ranking import rank_counts
from tensormetrics.retrieval.search import direct_search
from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.fp16_filter import Float16Filter
from tensormetrics.retrieval.search.fp16_search import Float16Search
from tensormetrics.retrieval.search.product_filter import Filter
from tensormetrics.retrieval.search.stages import ProductStage

N = 140  # two tiles; the last one has few rows
DIFFICULT = ("gaussian", "large common mean", "outliers", "three distinct points", "all zeros")


@pytest.mark.emulated
@pytest.mark.skipif(torch.cuda.is_available() or INTERPRETED, reason="the tests run in this process")
@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
@pytest.mark.parametrize("file", ["test_kernels.py", "test_prepare.py", "test_launches.py"])
def test_kernels_in_interpreter_pass_tests_of_file(file, which):
    pytest.importorskip("triton")
    result = interpreted(str(Path(__file__).with_name(file)), which)
    assert result.returncode in (0, 5), result.stdout  # 5: no test is slow


@pytest.fixture(autouse=True)
def disable_native_kernels(monkeypatch):
    monkeypatch.setattr(native, "can_use_kernel", lambda name, device: False)


@pytest.fixture
def both_by_tiles(both, monkeypatch):
    """Return `both` without the direct search, whose program for each query takes longest in the interpreter."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(direct_search, "MAX_WORK", 0)
            return both(function)

    return run


FAMILIES = [name if name in DIFFICULT else pytest.param(name, marks=pytest.mark.slow) for name in families(N)]


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_neighbors_equal_torch(family, both, both_by_tiles, device):
    x = torch.tensor(families(N)[family], dtype=torch.float32, device=device)
    expected, actual = both_by_tiles(lambda: TorchKNN().indices(x, 1, x, True))
    assert torch.equal(actual, expected)
    for distance in ("l2", "ip", "cosine"):  # with a sample of the references
        expected, actual = both(lambda: TorchKNN(distance).indices(x[:7], 2, x, True))  # noqa: B023
        assert torch.equal(actual, expected)


def test_block_minima_of_symmetric_tiles_equal_all_tiles(device):
    if not (device.type == "cuda" or INTERPRETED):
        pytest.skip("needs a GPU or TRITON_INTERPRET=1")
    pytest.importorskip("triton")
    from tensormetrics.retrieval.search.kernels import nearest

    # Nine rows of tiles: the last row is in a separate strip.
    fp16_filter = Float16Filter(Filter(torch.randn(1100, 4, device=device), DISTANCES["l2"], torch.float32), nearest)
    symmetric_minima, full_minima = (
        nearest.block_minima(fp16_filter.as_queries, fp16_filter, symmetric=symmetric) for symmetric in (True, False)
    )
    torch.testing.assert_close(symmetric_minima[fp16_filter.position], full_minima[fp16_filter.position])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # raised by NumPy in the interpreter
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_kernels_nonfinite_rows_equal_torch(value, both, both_by_tiles, device):
    x = torch.randn(N, 6, device=device)
    x[[0, 70, 139], 2] = value
    labels = torch.arange(N, device=device) % 9
    for distance in ("l2", "ip", "cosine"):
        for run, queries in ((both_by_tiles, x), (both, x[:3])):
            expected, actual = run(lambda: TorchKNN(distance).indices(queries, 2, x, True))  # noqa: B023
            assert torch.equal(actual, expected)
        expected, actual = both(lambda: positive_ranks(x, labels, distance=distance))  # noqa: B023
        assert torch.equal(actual.rank, expected.rank) and (actual.rank[0] == 0).all()
    expected, actual = both_by_tiles(lambda: TorchKNN().indices(x[:130], 2, x, True))  # a subset: no symmetric tiles
    assert torch.equal(actual, expected)


CENTROIDS = {  # of rows x and some of them, y
    "rows": lambda x, y: y,
    "close": lambda x, y: torch.cat([y[:9], y, y[9:] + 1e-4]),  # some of which are in another tile
    "means": lambda x, y: (x[1:] + x[:-1]) / 2,
    "far": lambda x, y: torch.cat([y[:5], y[:20] + 1e3, y[:3] - 1e8]),  # the last beyond the range of float16
    "not finite": lambda x, y: y.index_fill(0, torch.arange(1, 9, device=y.device), torch.nan),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # raised by NumPy in the interpreter
@pytest.mark.parametrize("kind", CENTROIDS)
def test_kernels_assignment_to_centroids_equals_torch(kind, both_by_tiles, device):
    for of_rows in (1.0, torch.logspace(-3, 3, N, device=device)[:, None]):
        x = (of_rows * torch.randn(N, 6, device=device)).double()
        x[20:40] = x[40:60]
        centroids = CENTROIDS[kind](x, x[:100])
        x = x if kind == "far" else x.float()
        expected, actual = both_by_tiles(lambda: CentroidAssignment(x)(centroids, is_near=False))  # noqa: B023
        assert all(map(torch.equal, actual, expected))


@pytest.mark.parametrize("scale", [1e-18, 1e18])
def test_kernels_extreme_scales_equal_torch(scale, both, device):
    x = scale * torch.randn(N, 70, device=device)  # more columns than a kernel loads at once
    expected, actual = both(lambda: TorchKNN().indices(x[:9], 2, x, True))
    assert torch.equal(actual, expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # raised by NumPy in the interpreter
@pytest.mark.parametrize("scale", [1e-23, 1.0, 1e30])
@pytest.mark.parametrize("distance", ["l2", "sqeuclidean", "ip", "cosine"])
def test_kernels_direct_search_equals_torch(distance, scale, both, device):
    x = scale * torch.randn(60, 9, device=device)
    x[30:34] = x[7]  # equal rows
    ignore = torch.rand(4, 60, device=device) < 0.5
    for k, options in ((2, {}), (20, {"self_index": torch.tensor([3, -1, 7, 31], device=device), "ignore": ignore})):
        expected, actual = both(lambda: TorchKNN(distance)(x[[3, 50, 7, 31]], k, x, **options))  # noqa: B023
        assert torch.equal(actual[0], expected[0]) and torch.equal(actual[1], expected[1])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_kernels_direct_search_of_batch_equals_torch(both, device):
    x, is_row = torch.randn(2, 3, 7, 5, device=device), torch.rand(2, 3, 7, device=device) < 0.7
    x[~is_row] = torch.nan
    options = {"query_mask": is_row, "reference_mask": is_row, "ignore": torch.rand(2, 3, 7, 7, device=device) < 0.2}
    expected, actual = both(lambda: TorchKNN("cosine")(x, 3, x, True, **options))
    assert torch.equal(actual[0], expected[0]) and torch.equal(actual[1], expected[1])
    budget = {"memory_budget": 3000}  # some items, or some queries of one item, at a time
    expected, actual = both(lambda: TorchKNN(**budget)(x, 3, x, True, **options))
    assert torch.equal(actual[1], expected[1])
    expected, actual = both(lambda: TorchKNN(**budget)(x[0, 0].nan_to_num(), 3, x[0, 0].nan_to_num(), True))
    assert torch.equal(actual[1], expected[1])


@pytest.mark.parametrize("family", ["gaussian", "large common mean", "a few outliers"])
def test_kernels_selected_blocks_certify_all_neighbors(family, both, device, monkeypatch):
    # With this many references only the selected blocks of a query are read.
    x = torch.randn(2100, 6, device=device) + 1e4 * (family == "large common mean")
    x[::300] *= 1000 if family == "a few outliers" else 1
    rest_counts, search = [], ProductStage.search

    def counted_search(stage, queries):
        if queries.span is None:  # queries that other stages did not certify
            rest_counts.append(len(queries.self_index))
        return search(stage, queries)

    monkeypatch.setattr(ProductStage, "search", counted_search)
    expected, actual = both(lambda: TorchKNN().indices(x[1:6], 1, x, False))
    assert torch.equal(actual, expected) and not rest_counts


@pytest.mark.parametrize("plan", [(True, 1, 9, 64), (True, 9, 1, 4), (False, 6, 1, 8)])
def test_kernels_too_low_limits_and_short_lists_are_replaced(plan, both, device, monkeypatch):
    make = Float16Search.plan
    monkeypatch.setattr(Float16Search, "plan", staticmethod(lambda *options: make(*options) if options[3] else plan))
    x = torch.randn(N, 6, device=device)
    expected, actual = both(lambda: TorchKNN().indices(x[:9], 5, x, True))
    assert torch.equal(actual, expected)


def test_kernels_all_references_in_order_equal_torch(both, device):
    x = torch.randn(300, 6, device=device)[torch.arange(300, device=device) % 150]  # equal rows in several runs
    self_index = torch.tensor([0, 200, -1], device=device)
    expected, actual = both(lambda: TorchKNN().indices(x[:3], 299, x, self_index=self_index))
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_kernels_dtypes_strides_and_self_index_equal_torch(dtype, both, device):
    x = torch.randn(5, N, device=device).to(dtype).mT
    self_index = torch.tensor([3, -1, 0], device=device)
    expected, actual = both(lambda: TorchKNN().indices(x[[3, 5, 0]], 2, x, self_index=self_index))
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("ties", ["index", "optimistic", "pessimistic"])
@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_ranks_equal_torch(family, ties, both, device):
    x = torch.tensor(families(45)[family], dtype=torch.float32, device=device)
    labels = torch.arange(45, device=device) % 7
    expected, actual = both(lambda: positive_ranks(x, labels, ties=ties))
    assert torch.equal(actual.rank, expected.rank)


def test_kernels_ranks_without_exact_leave_positives_out(both, device):
    x, labels = torch.randn(N, 8, device=device), torch.arange(N, device=device) % 7
    exact = positive_ranks(x, labels).rank
    assert torch.equal(both(lambda: positive_ranks(x, labels, exact=False).rank)[1], exact)


@pytest.mark.parametrize("limit, value", [("_WIDEST", 2), ("_MAX_UNDECIDED", 1), ("_MAX_UNDECIDED", 7)])
def test_kernels_ranks_above_limit_equal_torch(limit, value, both, device, monkeypatch):
    monkeypatch.setattr(rank_counts, limit, value)
    x = torch.tensor(families(45)["every point five times"], dtype=torch.float32, device=device)
    expected, actual = both(lambda: positive_ranks(x, torch.arange(45, device=device) % 7, ties="optimistic"))
    assert torch.equal(actual.rank, expected.rank)


@pytest.mark.parametrize("dim", [100, 128, 512])
@pytest.mark.parametrize("k", [10, 100, 1000])
def test_kernels_thousands_of_rows_equal_torch(k, dim, both, device):
    if device.type != "cuda":
        pytest.skip("needs a GPU")
    x = torch.randn(40_000, dim, device=device)
    for distance in ("l2", "cosine"):
        expected, actual = both(lambda: TorchKNN(distance).indices(x, k, x, True))  # noqa: B023
        assert torch.equal(actual, expected)
    labels = torch.arange(len(x), device=device) % 5000
    expected, actual = both(lambda: positive_ranks(x, labels).rank)
    assert torch.equal(actual, expected)
