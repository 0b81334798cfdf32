import re
import threading

import numpy as np
import pytest
import torch
from ranks_oracle import families
from retrieval_oracle import TINY, cases, neighbours

from tensormetrics.retrieval import TorchKNN, positive_ranks
from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.product_filter import Filter, exact_float32_products
from tensormetrics.retrieval.search.topk import smallest

N = 45


def test_threads_share_the_precision_of_products():
    """The first to leave must not give rounded products to the other one, and the last one gives back what was set."""
    backend, cpu = torch.backends.mkldnn.matmul, torch.device("cpu")
    before, backend.fp32_precision = backend.fp32_precision, "bf16"
    inside, left = threading.Event(), threading.Event()
    read = []

    def other():
        with exact_float32_products(cpu):
            inside.set()
            left.wait(10)
            read.append(backend.fp32_precision)

    try:
        thread = threading.Thread(target=other)
        with exact_float32_products(cpu):
            thread.start()
            inside.wait(10)
            read.append(backend.fp32_precision)
        left.set()
        thread.join()
        assert read == ["ieee", "ieee"] and backend.fp32_precision == "bf16"
        with exact_float32_products(cpu):
            backend.fp32_precision = "tf32"
        assert backend.fp32_precision == "tf32"
    finally:
        backend.fp32_precision = before


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("family", families(N))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_order_is_that_of_brute_force(family, dtype, distance, device):
    x = torch.tensor(families(N)[family], dtype=dtype, device=device)
    wide = x.double().cpu().numpy()
    every, _ = neighbours(wide, wide, N - 1, distance, self_index=range(N))
    for k in (1, 10, N - 1):
        assert np.array_equal(TorchKNN(distance).indices(x, k, x, True).cpu(), every[:, :k])
    tiled = TorchKNN(distance, memory_budget=80_000).indices(x, 10, x, True)
    assert np.array_equal(tiled.cpu(), every[:, :10])


@pytest.mark.parametrize("family", ["gaussian", "three distinct points"])
def test_the_smallest_tiles_change_nothing(family, device):
    x = torch.tensor(families(N)[family][:25], device=device)
    for distance in DISTANCES:
        for budget in (1, 20_000):
            distances, indices = TorchKNN(distance, memory_budget=budget)(x, 4, x, True)
            expected, values = neighbours(x.cpu(), x.cpu(), 4, distance, self_index=range(25))
            assert np.array_equal(indices.cpu(), expected) and np.array_equal(distances.cpu(), values)


@pytest.mark.parametrize("distance", DISTANCES)
def test_distances_and_other_references(distance, device):
    random = np.random.RandomState(0)
    query, reference = (np.float32(random.standard_normal((n, 7))) for n in (9, 40))
    for k in (3, 40):
        for budget in (None, 1):
            knn = TorchKNN(distance, memory_budget=budget)
            distances, indices = knn(torch.tensor(query).to(device), k, torch.tensor(reference).to(device), False)
            expected, values = neighbours(query, reference, k, distance)
            assert np.array_equal(indices.cpu(), expected)
            assert np.array_equal(distances.cpu(), np.float32(values))


@pytest.mark.parametrize("case", cases("knn").values(), ids=cases("knn").keys())
def test_golden(case, device):
    x = torch.tensor(TINY, device=device)
    distances, indices = TorchKNN(case["distance"])(x, case["k"], x, case["self"])
    assert indices.tolist() == case["indices"]
    torch.testing.assert_close(distances.cpu(), torch.tensor(case["distances"]), rtol=1e-6, atol=1e-7)


def test_dtypes(device):
    x = torch.arange(6, device=device).view(6, 1)
    wanted = {
        torch.float16: torch.float32,
        torch.bfloat16: torch.float32,
        torch.float32: torch.float32,
        torch.float64: torch.float64,
        torch.int8: torch.float32,
        torch.int64: torch.float64,
    }
    for dtype, result in wanted.items():
        distances, indices = TorchKNN()(x.to(dtype), 1, x.to(dtype), True)
        assert distances.dtype == result and distances.tolist() == [[1]] * 6
        assert indices.dtype == torch.int64 and indices.tolist() == [[1], [0], [1], [2], [3], [4]]
    assert TorchKNN()(x.float(), 1, x.double(), True)[0].dtype == torch.float64


def test_missing_neighbours(device):
    x = torch.tensor([[1.0], [3.0]], device=device)
    for distance, missing in (("l2", torch.inf), ("ip", -torch.inf)):
        distances, indices = TorchKNN(distance)(x, 4, x, True)
        assert indices.tolist() == [[1, -1, -1, -1], [0, -1, -1, -1]]
        assert distances[:, 1:].unique().tolist() == [missing]
        distances, indices = TorchKNN(distance)(x, 2, x[:0], False)
        assert indices.tolist() == [[-1, -1]] * 2 and distances.unique().tolist() == [missing]
        assert TorchKNN(distance)(x[:0], 2, x, False)[1].shape == (0, 2)
    assert TorchKNN()(x[:1], 2, x[:1], True)[1].tolist() == [[-1, -1]]


def test_self_is_left_out_by_index(device):
    x = torch.tensor([[0.0], [0.0], [5.0], [0.0]], device=device)  # duplicates of a query stay
    assert TorchKNN()(x, 3, x, True)[1].tolist() == [[1, 3, 2], [0, 3, 2], [0, 1, 3], [0, 1, 2]]
    assert TorchKNN()(x[:2], 2, x, True)[1].tolist() == [[1, 3], [0, 3]]
    own = torch.tensor([3, -1], device=device)
    assert TorchKNN()(x[:2], 4, x, False, self_index=own)[1].tolist() == [[0, 1, 2, -1], [0, 1, 3, 2]]


def test_precision_switches_do_not_matter(device):
    x = torch.randn(200, 64, device=device) + 3
    distances, indices = TorchKNN()(x, 20, x, True)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            switched = TorchKNN()(x.requires_grad_(), 20, x, True)
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(switched[0], distances) and torch.equal(switched[1], indices)
    assert not switched[0].requires_grad


def test_precision_of_a_backend_does_not_matter(device):
    x = torch.randn(200, 64, device=device) + 3
    wanted = TorchKNN().indices(x, 20, x, True)
    for backend, precision in ((torch.backends.cuda.matmul, "tf32"), (torch.backends.mkldnn.matmul, "bf16")):
        before, backend.fp32_precision = backend.fp32_precision, precision
        try:
            assert torch.equal(TorchKNN().indices(x, 20, x, True), wanted)
            assert backend.fp32_precision == precision
        finally:
            backend.fp32_precision = before


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("family", families(N))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_filter_is_within_its_bound(dtype, family, distance, device):
    x = torch.tensor(families(N)[family], device=device)
    filter_ = Filter(x, DISTANCES[distance], dtype)
    rows, error = filter_.query(x)
    assert (error < torch.inf).all()
    values = filter_.values(rows)
    assert values.shape == (N, 64) and (values[:, N:] == torch.inf).all()
    # What is bounded is a power of two times the distance, plus a constant for each query.
    length = {"ip": x, "cosine": x / x.norm(dim=1, keepdim=True)}.get(distance, x - filter_.center).norm(dim=1)
    ratio = (rows.double().norm(dim=1) / length).nan_to_num(1.0).log2().round().exp2()
    off = values[:, :N].double() - DISTANCES[distance].canonical(x[:, None], x) * (ratio * filter_.scale)[:, None]
    assert (off.amax(1) - off.amin(1) <= 2 * error).all()
    size = rows.double().norm(dim=1) + filter_.norm
    center = filter_.center.norm() * filter_.scale
    assert (error <= 30 * torch.finfo(dtype).eps * size**2 + 1e-14 * size * center + 1e-30).all()  # no empty promise


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("family", families(N))
def test_many_references(family, distance, device):
    x = torch.tensor(families(700)[family], dtype=torch.float32, device=device)
    query, wide = x[:40], x.double().cpu().numpy()
    expected, _ = neighbours(wide[:40], wide, 699, distance, self_index=range(40))
    for k in (1, 10, 100, 699):
        for budget in (None, 60_000) if k == 10 else (None,):
            indices = TorchKNN(distance, memory_budget=budget).indices(query, k, x, True)
            assert np.array_equal(indices.cpu(), expected[:, :k])


def test_smallest():
    for width, count in ((64, 3), (640, 3), (4096, 18), (640, 640)):
        values = torch.randn(5, width)
        near, columns = smallest(values, count)
        assert torch.equal(near.sort(1).values, values.sort(1).values[:, :count])
        assert torch.equal(values.gather(1, columns), near)


@pytest.mark.parametrize("distance", DISTANCES)
def test_ignored_references(distance, device):
    random = np.random.RandomState(4)
    x = random.randint(-2, 3, (N, 3)).astype(float)
    hidden = random.rand(N, N) < np.linspace(0, 1.1, N)[:, None]  # nothing is left for the last ones
    every, _ = neighbours(x, x, N, distance, self_index=range(N))
    expected = np.full((N, 6), -1)
    for row, order, ignored in zip(expected, every, hidden, strict=True):
        left = [j for j in order if j >= 0 and not ignored[j]][:6]
        row[: len(left)] = left
    x, mask = torch.tensor(x, device=device), torch.tensor(hidden, device=device)
    for budget in (None, 1, 30_000):
        for ignore in (mask, lambda rows: mask[rows]):
            distances, indices = TorchKNN(distance, memory_budget=budget)(x, 6, x, True, ignore=ignore)
            assert np.array_equal(indices.cpu(), expected)
            assert torch.equal(distances.isinf().cpu(), torch.tensor(expected < 0))


def test_function_as_distance(device):
    x = torch.randint(-2, 3, (N, 3), device=device).float()
    expected, values = neighbours(x.cpu(), x.cpu(), 50, "sqeuclidean", self_index=range(N))

    def squares(a, b):
        return (a[:, None] - b).square().sum(2)

    for budget in (None, 1):
        distances, indices = TorchKNN(squares, memory_budget=budget)(x, 50, x, True)
        assert np.array_equal(indices.cpu(), expected) and np.array_equal(distances.cpu(), np.float32(values))
    similar = type("Similarity", (), {"is_inverted": True, "__call__": lambda self, a, b: a @ b.T})()
    expected, values = neighbours(x.cpu(), x.cpu(), 50, "ip", self_index=range(N))
    distances, indices = TorchKNN(similar)(x, 50, x, True)
    assert np.array_equal(indices.cpu(), expected) and np.array_equal(distances.cpu(), np.float32(values))
    with pytest.raises(ValueError, match=r"^result of distance: got shape \(45,\), wanted \(45, 45\)$"):
        TorchKNN(lambda a, b: a.sum(1))(x, 1, x, True)


def test_inexact_is_the_order_of_the_product(device):
    x = torch.randn(N, 20, device=device)
    for distance in DISTANCES:
        exact, inexact = (TorchKNN(distance, exact=e)(x, 12, x, True) for e in (True, False))
        assert torch.equal(exact[1], inexact[1]) and torch.equal(exact[0], inexact[0])  # far apart


def test_kept_references(device, tmp_path):
    x = torch.randn(N, 4, device=device)
    wanted = TorchKNN()(x[:9], 5, x, True)
    knn = TorchKNN()
    for _ in range(2):
        knn.add(x[:20])
        knn.add(x[20:])
        assert all(map(torch.equal, knn(x[:9], 5, ref_includes_query=True), wanted))
        knn.train(x)
        assert all(map(torch.equal, knn(x[:9], 5, ref_includes_query=True), wanted))
        knn.save(tmp_path / "references.pt")
        knn.reset()
        with pytest.raises(ValueError) as error:
            knn(x, 1)
        assert str(error.value) == (
            "reference: got None and nothing is stored, wanted references here or in train(embeddings)"
        )
    knn.load(tmp_path / "references.pt", map_location=device)
    assert torch.equal(knn.indices(x[:9], 5, ref_includes_query=True), wanted[1])


@pytest.mark.parametrize("distance", DISTANCES)
def test_no_square_leaves_the_range_of_float64(distance, device):
    x = torch.randn(50, 4, dtype=torch.float64, device=device)
    knn, labels = TorchKNN(distance), torch.arange(50, device=device) % 7
    for scale in (2.0**-390, 2.0**390):
        assert torch.equal(knn.indices(x * scale, 9, x * scale, True), knn.indices(x, 9, x, True))
        scaled, plain = (positive_ranks(rows, labels, distance=distance).rank for rows in (x * scale, x))
        assert torch.equal(scaled, plain)
    message = (
        "{}: 1 of {} rows hold values whose squares leave the range of float64, the first is row 2; wanted a largest "
        "value of 4e-121 to 3e+120 in each; multiply all embeddings by one number"
    )
    for scale in (1e-170, 1e170):
        far = x.clone()
        far[2] *= scale
        with pytest.raises(ValueError, match=f"^{re.escape(message.format('query', 3))}$"):
            knn(far[:3], 1, x, False)
        with pytest.raises(ValueError, match=f"^{re.escape(message.format('reference', 50))}$"):
            knn(far, 1, far, True)
        with pytest.raises(ValueError, match=f"^{re.escape(message.format('query', 50))}$"):
            positive_ranks(far, labels, distance=distance)


def test_bad_input(device):
    x = torch.zeros(3, 2, device=device)
    knn = TorchKNN()

    def message(call):
        with pytest.raises(ValueError) as error:
            call()
        return str(error.value)

    assert message(lambda: TorchKNN("L2")) == ("distance: got 'L2', wanted one of 'l2', 'sqeuclidean', 'ip', 'cosine'")
    assert message(lambda: TorchKNN(memory_budget=0)) == "memory_budget: got 0, wanted an integer >= 1"
    for k in (0, True, 1.0, None):
        assert message(lambda k=k: knn(x, k, x, False)) == f"k: got {k!r}, wanted an integer >= 1"
    assert message(lambda: knn(x[0], 1, x, False)) == "query: got shape (2,), wanted (N, D)"
    assert message(lambda: knn(x, 1, x[None], False)) == "reference: got shape (1, 3, 2), wanted (N, D)"
    assert message(lambda: knn(x, 1, x[:, :1], False)) == (
        "query and reference: got shapes (3, 2) and (3, 1), wanted the same number of columns"
    )
    assert message(lambda: knn(x, 1, x.to(torch.complex64), False)) == (
        "reference: got torch.complex64, wanted real numbers; write torch.view_as_real(reference).flatten(1)"
    )
    assert message(lambda: knn(x, 1, x[:2], True)) == (
        "ref_includes_query: got 3 queries and 2 references, wanted references that begin with the queries"
    )
    assert message(lambda: knn(x, 1, x.to("meta"), False)) == (
        f"devices differ: query on {x.device}, reference on meta; move them with .to(device)"
    )
    assert message(lambda: knn(x, 1, x, False, self_index=torch.zeros(2, dtype=torch.int64, device=device))) == (
        "self_index: got shape (2,), wanted (3,)"
    )
    assert message(lambda: knn(x, 1, x, False, self_index=torch.zeros(3, device=device))) == (
        "self_index: got torch.float32, wanted an integer dtype; write self_index.long()"
    )
