"""The Triton kernels give the integers of the plain path; without a GPU Triton's interpreter runs them."""

import pytest
import torch
from kernels import INTERPRETED, interpreted
from ranks_oracle import families

from tensormetrics import _native
from tensormetrics.retrieval import TorchKMeans, TorchKNN, positive_ranks
from tensormetrics.retrieval.ranking import rank_counts
from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.fp16_filter import Float16Filter
from tensormetrics.retrieval.search.product_filter import Filter
from tensormetrics.retrieval.search.references import QueryCache
from tensormetrics.retrieval.search.stages import ProductStage

N = 140  # two tiles, the last one with few rows
HARD = ("gaussian", "large common mean", "outliers", "three distinct points", "all zeros")


@pytest.mark.skipif(torch.cuda.is_available() or INTERPRETED, reason="the tests below run in this process")
@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_interpreted_kernels(which):
    pytest.importorskip("triton")
    result = interpreted(__file__, which)
    assert result.returncode == 0, result.stdout


@pytest.fixture(autouse=True)
def plain_torch(monkeypatch):
    monkeypatch.setattr(_native, "can_use_kernel", lambda name, device: False)


FAMILIES = [name if name in HARD else pytest.param(name, marks=pytest.mark.slow) for name in families(N)]


@pytest.mark.parametrize("family", FAMILIES)
def test_neighbours(family, both, device):
    x = torch.tensor(families(N)[family], dtype=torch.float32, device=device)
    plain, found = both(lambda: TorchKNN().indices(x, 2, x, True))
    assert torch.equal(found, plain)
    for distance in ("ip", "cosine"):
        plain, found = both(lambda: TorchKNN(distance).indices(x[:7], 2, x, True))  # noqa: B023
        assert torch.equal(found, plain)


def test_halved_tiles_give_the_minima_of_all(device):
    if not (device.type == "cuda" or INTERPRETED):
        pytest.skip("needs a GPU or TRITON_INTERPRET=1")
    pytest.importorskip("triton")
    from tensormetrics.retrieval.search.kernels import nearest

    # Nine rows of tiles: the last one is in a strip of its own.
    halves = Float16Filter(Filter(torch.randn(1100, 4, device=device), DISTANCES["l2"], torch.float32), nearest)
    halved, whole = (nearest.block_minima(halves.as_queries, halves, symmetric=choice) for choice in (True, False))
    torch.testing.assert_close(halved[halves.position], whole[halves.position])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of numpy, on which the interpreter computes
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_are_not_finite(bad, both, device):
    x = torch.randn(N, 6, device=device)
    x[[0, 70, 139], 2] = bad
    labels = torch.arange(N, device=device) % 9
    for distance in ("l2", "ip", "cosine"):
        plain, found = both(lambda: TorchKNN(distance).indices(x, 2, x, True))  # noqa: B023
        assert torch.equal(found, plain)
        plain, found = both(lambda: positive_ranks(x, labels, distance=distance))  # noqa: B023
        assert torch.equal(found.rank, plain.rank) and (found.rank[0] == 0).all()
    plain, found = both(lambda: TorchKNN().indices(x[:130], 2, x, True))  # not all rows: no halved tiles
    assert torch.equal(found, plain)


def test_known_queries(both, device):
    x, references = torch.randn(N, 6, device=device), torch.randn(100, 6, device=device, dtype=torch.float64)
    known = QueryCache(x, 2**28)
    for far in (1.0, 1000.0):
        references[8] *= far
        plain, found = both(lambda: TorchKNN("sqeuclidean").search(x, 1, references, query_cache=known)[1])
        assert torch.equal(found, plain)
    plain, found = both(lambda: TorchKMeans(3, init="k-means++")(x, 90))
    assert torch.equal(found, plain)


@pytest.mark.parametrize("scale", [1e-18, 1e18])
def test_scales(scale, both, device):
    x = scale * torch.randn(N, 70, device=device)  # more columns than are read at once
    plain, found = both(lambda: TorchKNN().indices(x[:9], 2, x, True))
    assert torch.equal(found, plain)


@pytest.mark.parametrize("family", ["gaussian", "large common mean", "a few outliers"])
def test_chosen_blocks_prove_all_neighbours(family, both, device, monkeypatch):
    # So many references that only the chosen blocks of a query are read.
    x = torch.randn(2100, 6, device=device) + 1e4 * (family == "large common mean")
    x[::300] *= 1000 if family == "a few outliers" else 1
    left, search = [], ProductStage.search

    def counted(way, queries):
        if queries.span is None:  # what other products have left
            left.append(len(queries.self_index))
        return search(way, queries)

    monkeypatch.setattr(ProductStage, "search", counted)
    plain, found = both(lambda: TorchKNN().indices(x[1:6], 1, x, False))
    assert torch.equal(found, plain) and not left


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_dtypes_and_strides_and_a_row_left_out(dtype, both, device):
    x = torch.randn(5, N, device=device).to(dtype).mT
    own = torch.tensor([3, -1, 0], device=device)
    plain, found = both(lambda: TorchKNN().indices(x[[3, 5, 0]], 2, x, self_index=own))
    assert torch.equal(found, plain)


@pytest.mark.parametrize("ties", ["index", "optimistic", "pessimistic"])
@pytest.mark.parametrize("family", FAMILIES)
def test_ranks(family, ties, both, device):
    x = torch.tensor(families(45)[family], dtype=torch.float32, device=device)
    labels = torch.arange(45, device=device) % 7
    plain, found = both(lambda: positive_ranks(x, labels, ties=ties))
    assert torch.equal(found.rank, plain.rank)


def test_more_positives_than_the_kernel_compares(both, device, monkeypatch):
    monkeypatch.setattr(rank_counts, "_WIDEST", 2)
    x = torch.tensor(families(45)["every point five times"], dtype=torch.float32, device=device)
    plain, found = both(lambda: positive_ranks(x, torch.arange(45, device=device) % 7, ties="optimistic"))
    assert torch.equal(found.rank, plain.rank)


@pytest.mark.slow
def test_ranks_in_more_than_one_tile(both, device):
    x = torch.randn(300, 20, device=device)
    plain, found = both(lambda: positive_ranks(x, torch.arange(300, device=device) % 50).rank)
    assert torch.equal(found, plain)


@pytest.mark.slow
def test_too_many_open_entries_are_counted_in_tiles(both, device):
    x = torch.zeros(45, 3, device=device)
    labels = torch.arange(45, device=device) % 7
    plain, found = both(lambda: positive_ranks(x, labels, memory_budget=20_000).rank)
    assert torch.equal(found, plain)


@pytest.mark.parametrize("dim", [100, 128, 512])
@pytest.mark.parametrize("k", [10, 100, 1000])
def test_thousands_of_rows_on_a_gpu(k, dim, both, device):
    if device.type != "cuda":
        pytest.skip("needs a GPU")
    x = torch.randn(40_000, dim, device=device)
    for distance in ("l2", "cosine"):
        plain, found = both(lambda: TorchKNN(distance).indices(x, k, x, True))  # noqa: B023
        assert torch.equal(found, plain)
    labels = torch.arange(len(x), device=device) % 5000
    plain, found = both(lambda: positive_ranks(x, labels).rank)
    assert torch.equal(found, plain)
