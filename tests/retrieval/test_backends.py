"""Protocol of search backends: all backends return the same result for the same search."""

import sys

import numpy as np
import pytest
import torch
from raising import raises
from retrieval_oracle import neighbors
from torch import distributed as dist

from tensormetrics.retrieval import FaissKMeans, FaissKNN, KeOpsKNN, ShardedKNN, TorchKNN
from tensormetrics.retrieval.search.backends.keops_knn import _rounded
from tensormetrics.retrieval.search.distance import DISTANCES

# Factory with an optional distance, and the package that it needs.
BACKENDS = {
    "torch": (TorchKNN, None),
    "sharded": (lambda distance="l2": ShardedKNN(knn=TorchKNN(distance)), None),
    "faiss": (lambda distance="l2": FaissKNN(distance=distance), "faiss"),
    "keops": (KeOpsKNN, "pykeops"),
}
# KeOps compiles once per dimension and rounded k, which takes about ten seconds.
PARAMETERS = [pytest.param(name, marks=pytest.mark.slow if name == "keops" else ()) for name in BACKENDS]


@pytest.fixture(scope="module")
def group_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(params=PARAMETERS)
def backend(request, device):
    make, package = BACKENDS[request.param]
    if package:
        module = pytest.importorskip(package)
        if request.param == "faiss" and device.type == "cuda" and not hasattr(module, "StandardGpuResources"):
            pytest.skip("this faiss has no GPU support")
    if request.param == "sharded":
        request.getfixturevalue("group_of_one")
    return make


@pytest.fixture
def rows(device):
    return torch.randn(40, 3, generator=torch.Generator().manual_seed(1)).to(device)


@pytest.mark.parametrize("distance", DISTANCES)
def test_backend_order_and_distances_equal_reference(backend, distance, rows):
    for query, k, reference, ref_includes_query, self_index in (
        (rows, 4, rows, True, range(40)),
        (rows[:7], 4, rows, True, range(7)),
        (rows[:1], 5, rows[9:], False, None),
    ):
        distances, indices = backend(distance)(query, k, reference, ref_includes_query)
        expected, values = neighbors(query.cpu(), reference.cpu(), k, distance, self_index=self_index)
        assert distances.dtype == torch.float32 and distances.device == indices.device == rows.device
        assert indices.dtype == torch.int64 and np.array_equal(indices.cpu(), expected)
        np.testing.assert_allclose(distances.cpu(), values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("distance", ["l2", "sqeuclidean", "ip"])
def test_backend_ties_and_missing_neighbors_follow_protocol(backend, distance, device):
    lattice = torch.randint(-1, 2, (19, 3), generator=torch.Generator().manual_seed(2)).float()
    distances, indices = backend(distance)(lattice.to(device), 19, lattice.to(device), True)
    expected, values = neighbors(lattice, lattice, 19, distance, self_index=range(19))
    assert np.array_equal(indices.cpu(), expected) and indices[:, 18].unique().tolist() == [-1]
    assert np.array_equal(distances.cpu(), np.float32(values))
    distances, indices = backend(distance)(lattice[:2].to(device), 4, lattice[:2].to(device), True)
    assert indices.tolist() == [[1, -1, -1, -1], [0, -1, -1, -1]]
    assert distances[:, 1:].unique().tolist() == [-torch.inf if distance == "ip" else torch.inf]


def test_backend_without_rows_returns_padding(backend, rows):
    distances, indices = backend()(rows[:2], 3, rows[:0], False)
    assert indices.tolist() == [[-1] * 3] * 2 and distances.tolist() == [[torch.inf] * 3] * 2
    for k in (3, 50):
        distances, indices = backend()(rows[:0], k, rows, True)
        assert distances.shape == indices.shape == (0, k)
        assert distances.dtype == torch.float32 and indices.dtype == torch.int64


def test_backend_self_index_excludes_only_that_row(backend, device):
    x = torch.tensor([[0.0], [0.0], [5.0], [0.0]], device=device).expand(4, 3)  # duplicates of a query stay
    assert backend()(x, 3, x, True)[1].tolist() == [[1, 3, 2], [0, 3, 2], [0, 1, 3], [0, 1, 2]]
    assert backend()(x[:2], 3, x, True)[1].tolist() == [[1, 3, 2], [0, 3, 2]]
    self_index = torch.tensor([3, -1], dtype=torch.int32, device=device)
    assert backend()(x[:2], 4, x, False, self_index=self_index)[1].tolist() == [[0, 1, 2, -1], [0, 1, 3, 2]]


def test_backend_ignore_mask_equals_torch_backend(backend, rows):
    ignore = torch.rand(40, 40, generator=torch.Generator().manual_seed(3)).to(rows.device) < 0.5
    ignore[0] = True
    for options in ({"ignore": ignore}, {"ignore": lambda queries: ignore[queries]}):
        distances, indices = backend()(rows, 5, rows, True, **options)
        expected_distances, expected_indices = TorchKNN()(rows, 5, rows, True, ignore=ignore)
        assert torch.equal(indices, expected_indices) and indices[0].tolist() == [-1] * 5
        torch.testing.assert_close(distances, expected_distances)
    with pytest.raises(ValueError, match=r"^ignore: got shape \(40, 39\), wanted \(40, 40\)$"):
        backend()(rows, 5, rows, True, ignore=ignore[:, 1:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8, torch.int16], ids=str)
def test_backend_small_dtypes_return_exact_float32(backend, dtype, device):
    x = torch.tensor([[0], [1], [3], [7]], device=device).expand(4, 3).to(dtype)
    distances, indices = backend("sqeuclidean")(x, 4, x, True)
    assert distances.dtype == torch.float32 and distances[:, :3].tolist() == [
        [3, 27, 147],
        [3, 12, 108],
        [12, 27, 48],
        [48, 108, 147],
    ]
    assert indices.tolist() == [[1, 2, 3, -1], [0, 2, 3, -1], [1, 0, 3, -1], [2, 1, 0, -1]]


def test_backend_invalid_input_raises(backend, device):
    x, knn = torch.zeros(3, 2, device=device), backend()
    for k in (0, -1, True, 1.0, None, "max_bin_count"):
        with raises(ValueError, f"k: got {k!r}, wanted an integer >= 1"):
            knn(x, k, x, False)
    meta, shapes = x.to("meta"), "query and reference: got shapes (3, 2) and (3, 1)"
    real = "wanted real numbers; write torch.view_as_real(reference).flatten(1)"
    invalid = {
        "query: got shape (2,), wanted (N, D)": {"query": x[0]},
        "reference: got shape (1, 3, 2), wanted (N, D)": {"reference": x[None]},
        f"{shapes}, wanted the same number of columns": {"reference": x[:, :1]},
        f"reference: got torch.complex64, {real}": {"reference": x.to(torch.complex64)},
        "ref_includes_query: got 3 queries and 2 references, wanted references that begin with the queries": {
            "reference": x[:2],
            "ref_includes_query": True,
        },
        f"devices differ: query on {device}, reference on meta; move them with .to(device)": {"reference": meta},
        "self_index: got shape (2,), wanted (3,)": {"self_index": torch.zeros(2, device=device).long()},
        "self_index: got torch.float32, wanted an integer dtype; write self_index.long()": {"self_index": x[:, 0]},
    }
    for message, arguments in invalid.items():
        with raises(ValueError, message):
            knn(**{"query": x, "k": 1, "reference": x, "ref_includes_query": False, **arguments})
    with raises(ValueError, "distance: got 'L2', wanted one of 'l2', 'sqeuclidean', 'ip', 'cosine'"):
        backend("L2")
    with raises(TypeError, "query: got a list, wanted a tensor; write torch.as_tensor(query)"):
        knn(x.tolist(), 1, x, False)


PACKAGES = {  # message without it -> class and modules
    "FaissKNN needs faiss: pip install faiss-cpu, or the official faiss-gpu (CUDA 12); tensormetrics[faiss] installs "
    "faiss-cpu": (FaissKNN, ["faiss"]),
    "FaissKMeans needs faiss: pip install 'tensormetrics[faiss]'": (FaissKMeans, ["faiss"]),
    "KeOpsKNN needs pykeops: pip install tensormetrics[keops]": (KeOpsKNN, ["pykeops", "pykeops.torch"]),
}


@pytest.mark.parametrize("message", PACKAGES)
def test_backend_missing_package_raises_with_install_command(message, monkeypatch):
    make, modules = PACKAGES[message]
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    with raises(ImportError, message):
        make()


def test_rounded_k_takes_a_limited_set_of_values():
    assert [_rounded(k) for k in range(1, 12)] == [1, 2, 5, 5, 5, 10, 10, 10, 10, 10, 20]
    assert {_rounded(k) for k in range(1, 2049)} == {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}
    assert all(_rounded(k) >= k for k in range(1, 2049))


@pytest.mark.slow  # KeOps compiles a kernel
def test_keops_knn_float64_input_equals_torch(device):
    pytest.importorskip("pykeops")
    x = torch.tensor([0.0, 1.0, 1.0 + 1e-12, 3.0], dtype=torch.float64, device=device)[:, None].expand(4, 3)
    for result, expected in zip(KeOpsKNN()(x, 3, x, True), TorchKNN()(x, 3, x, True), strict=True):
        torch.testing.assert_close(result, expected)
