import numpy as np
import pytest
import torch
from retrieval_oracle import TINY, cases, neighbours

from tensormetrics.retrieval import TorchKNN
from tensormetrics.retrieval._order import DISTANCES, canonical, filter_error, filter_rows, filter_values

N = 45


def families():
    random = np.random.RandomState(5)
    gaussian = random.standard_normal((N, 6))
    outliers = gaussian.copy()
    outliers[::9] *= 1000
    return {
        "gaussian": gaussian,
        "every point five times": np.repeat(gaussian[: N // 5], 5, 0)[random.permutation(N)],
        "three distinct points": gaussian[random.randint(0, 3, N)],
        "all zeros": np.zeros((N, 6)),
        "integer lattice": random.randint(-2, 3, (N, 6)).astype(float),
        "large common mean": gaussian + 1e4,
        "outliers": outliers,
        "some zero rows": gaussian * (np.arange(N) % 4 > 0)[:, None],
        "collapsed": 1 + 1e-5 * gaussian,
        "closer than the bound": np.concatenate([1e-6 * gaussian[1:], np.full((1, 6), 1e4)]),
        "tiny values": gaussian * 1e-18,
        "one dimension": gaussian[:, :1],
    }


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("family", families())
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_order_is_that_of_brute_force(family, dtype, distance, device):
    x = torch.tensor(families()[family], dtype=dtype, device=device)
    wide = x.double().cpu().numpy()
    every, _ = neighbours(wide, wide, N - 1, distance, self_index=range(N))
    for k in (1, 10, N - 1):
        assert np.array_equal(TorchKNN(distance).indices(x, k, x, True).cpu(), every[:, :k])
    tiled = TorchKNN(distance, memory_budget=80_000).indices(x, 10, x, True)
    assert np.array_equal(tiled.cpu(), every[:, :10])


@pytest.mark.parametrize("family", ["gaussian", "three distinct points"])
def test_the_smallest_tiles_change_nothing(family, device):
    x = torch.tensor(families()[family][:25], device=device)
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


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("family", families())
def test_filter_is_within_its_bound(family, distance, device):
    x = torch.tensor(families()[family], device=device)
    rows = filter_rows(x, x.mean(0), distance)
    norm = rows.norm(dim=1)
    off = filter_values(rows, rows, distance) - canonical(x[:, None], x, distance)
    spread = off.amax(1) - off.amin(1)  # a constant per query does not matter
    error = filter_error(norm, norm.max(), x.shape[1], distance)
    assert (spread <= 2 * error).all()
    assert (error <= 1e-14 * (1 + 4 * norm * norm.max()) * (1 + norm.max() ** 2)).all()  # and it is no empty promise


def test_only_pairs_closer_than_the_bound_need_an_exhaustive_search(device, monkeypatch):
    searched = []
    exhaustive = TorchKNN._exhaustive
    monkeypatch.setattr(TorchKNN, "_exhaustive", lambda self, q, *a: searched.append(len(q)) or exhaustive(self, q, *a))
    x = torch.randn(500, 8, device=device)
    for distance in DISTANCES:
        TorchKNN(distance)(x, 10, x, True)
        TorchKNN(distance)(x * 0, 10, x * 0, True)
        TorchKNN(distance)(x[:3].repeat(50, 1), 10, x[:3].repeat(50, 1), True)
    assert sum(searched) == 0
    close = torch.tensor(families()["closer than the bound"], device=device)
    TorchKNN()(close, 10, close, True)
    assert sum(searched) == N - 1


def test_squares_beyond_float64_do_not_break_the_search(device):
    x = torch.tensor([[1e200], [2e200], [0.0], [1.0]], dtype=torch.float64, device=device)
    assert TorchKNN()(x[2:], 2, x, False)[1].tolist() == [[2, 3], [3, 2]]


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
