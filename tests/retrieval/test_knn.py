import re
import threading

import numpy as np
import pytest
import torch
from retrieval_oracle import TINY, cases, families, neighbors, nonzero_ranks

from tensormetrics.retrieval import TorchKNN
from tensormetrics.retrieval.functional import positive_ranks
from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.product_filter import Filter, exact_float32_products
from tensormetrics.retrieval.search.stages import ExhaustiveStage
from tensormetrics.retrieval.search.topk import SymmetricTopK

N = 45


def test_exact_float32_products_nested_threads_keep_precision():
    """Keep exact products when the first thread leaves, and restore the previous setting when the last one leaves."""
    backend, cpu = torch.backends.mkldnn.matmul, torch.device("cpu")
    previous, backend.fp32_precision = backend.fp32_precision, "bf16"
    has_entered, has_left = threading.Event(), threading.Event()
    precisions = []

    def read_precision():
        with exact_float32_products(cpu):
            has_entered.set()
            has_left.wait(10)
            precisions.append(backend.fp32_precision)

    try:
        thread = threading.Thread(target=read_precision)
        with exact_float32_products(cpu):
            thread.start()
            has_entered.wait(10)
            precisions.append(backend.fp32_precision)
        has_left.set()
        thread.join()
        assert precisions == ["ieee", "ieee"] and backend.fp32_precision == "bf16"
        with exact_float32_products(cpu):
            backend.fp32_precision = "tf32"
        assert backend.fp32_precision == "tf32"
    finally:
        backend.fp32_precision = previous


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("family", families(N))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_knn_order_equals_brute_force(family, dtype, distance, device):
    x = torch.tensor(families(N)[family], dtype=dtype, device=device)
    embeddings = x.double().cpu().numpy()
    all_indices, _ = neighbors(embeddings, embeddings, N - 1, distance, self_index=range(N))
    for k in (1, 10, N - 1):
        assert np.array_equal(TorchKNN(distance).indices(x, k, x, True).cpu(), all_indices[:, :k])
    tiled = TorchKNN(distance, memory_budget=80_000).indices(x, 10, x, True)
    assert np.array_equal(tiled.cpu(), all_indices[:, :10])


@pytest.mark.parametrize("case", cases("knn").values(), ids=cases("knn").keys())
def test_knn_golden_cases_match_expected_neighbors(case, device):
    x = torch.tensor(TINY, device=device)
    distances, indices = TorchKNN(case["distance"])(x, case["k"], x, case["self"])
    assert indices.tolist() == case["indices"]
    torch.testing.assert_close(distances.cpu(), torch.tensor(case["distances"]), rtol=1e-6, atol=1e-7)


def test_knn_distance_dtype_follows_input_dtype(device):
    x = torch.arange(6, device=device).view(6, 1)
    for dtype in (torch.float64, torch.int64):  # test_backends.py has the others
        distances, indices = TorchKNN()(x.to(dtype), 1, x.to(dtype), True)
        assert distances.dtype == torch.float64 and distances.tolist() == [[1]] * 6
        assert indices.dtype == torch.int64 and indices.tolist() == [[1], [0], [1], [2], [3], [4]]
    assert TorchKNN()(x.float(), 1, x.double(), True)[0].dtype == torch.float64


def test_knn_result_ignores_backend_precision(device):
    x = torch.randn(200, 64, device=device) + 3
    expected = TorchKNN().indices(x, 20, x, True)
    for backend, precision in ((torch.backends.cuda.matmul, "tf32"), (torch.backends.mkldnn.matmul, "bf16")):
        previous, backend.fp32_precision = backend.fp32_precision, precision
        try:
            assert torch.equal(TorchKNN().indices(x, 20, x, True), expected)
            assert backend.fp32_precision == precision
        finally:
            backend.fp32_precision = previous


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("family", families(N))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_filter_error_bound_holds_and_is_tight(dtype, family, distance, device):
    x = torch.tensor(families(N)[family], device=device)
    filter_ = Filter(x, DISTANCES[distance], dtype)
    rows, error = filter_.query(x)
    assert (error < torch.inf).all()
    values = filter_.values(rows)
    assert values.shape == (N, 64) and (values[:, N:] == torch.inf).all()
    # The bounded value is a power of two times the distance, plus a constant of each query.
    length = {"ip": x, "cosine": x / x.norm(dim=1, keepdim=True)}.get(distance, x - filter_.center).norm(dim=1)
    ratio = (rows.double().norm(dim=1) / length).nan_to_num(1.0).log2().round().exp2()
    deviation = values[:, :N].double() - DISTANCES[distance].canonical(x[:, None], x) * (ratio * filter_.scale)[:, None]
    assert (deviation.amax(1) - deviation.amin(1) <= 2 * error).all()
    size = rows.double().norm(dim=1) + filter_.norm
    center_norm = filter_.center.norm() * filter_.scale
    assert (
        error <= 30 * torch.finfo(dtype).eps * size**2 + 1e-14 * size * center_norm + 1e-30
    ).all()  # the bound is tight


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("family", families(N))
def test_knn_hundreds_of_references_equal_brute_force(family, distance, implementation, device):
    x = torch.tensor(families(700)[family], dtype=torch.float32, device=device)
    query, embeddings = x[:40], x.double().cpu().numpy()
    expected, _ = neighbors(embeddings[:40], embeddings, 699, distance, self_index=range(40))
    for k in (1, 10, 100, 699):
        for budget in (None, 60_000) if k == 10 else (None,):
            indices = TorchKNN(distance, memory_budget=budget).indices(query, k, x, True)
            assert np.array_equal(indices.cpu(), expected[:, :k])


@pytest.mark.parametrize("distance", DISTANCES)
def test_knn_ignored_references_are_skipped(distance, device):
    random = np.random.RandomState(4)
    x = random.randint(-2, 3, (N, 3)).astype(float)
    ignore_mask = random.rand(N, N) < np.linspace(0, 1.1, N)[:, None]  # the last queries have no references left
    all_indices, _ = neighbors(x, x, N, distance, self_index=range(N))
    expected = np.full((N, 6), -1)
    for row, order, row_ignored in zip(expected, all_indices, ignore_mask, strict=True):
        candidates = [j for j in order if j >= 0 and not row_ignored[j]][:6]
        row[: len(candidates)] = candidates
    x, mask = torch.tensor(x, device=device), torch.tensor(ignore_mask, device=device)
    for budget in (None, 1, 30_000):
        for ignore in (mask, lambda rows: mask[rows]):
            distances, indices = TorchKNN(distance, memory_budget=budget)(x, 6, x, True, ignore=ignore)
            assert np.array_equal(indices.cpu(), expected)
            assert torch.equal(distances.isinf().cpu(), torch.tensor(expected < 0))


def test_knn_custom_distance_equals_brute_force(device):
    x = torch.randint(-2, 3, (N, 3), device=device).float()
    expected, values = neighbors(x.cpu(), x.cpu(), 50, "sqeuclidean", self_index=range(N))

    def squares(a, b):
        return (a[:, None] - b).square().sum(2)

    for budget in (None, 1):
        distances, indices = TorchKNN(squares, memory_budget=budget)(x, 50, x, True)
        assert np.array_equal(indices.cpu(), expected) and np.array_equal(distances.cpu(), np.float32(values))
    similarity = type("Similarity", (), {"is_inverted": True, "__call__": lambda self, a, b: a @ b.T})()
    expected, values = neighbors(x.cpu(), x.cpu(), 50, "ip", self_index=range(N))
    distances, indices = TorchKNN(similarity)(x, 50, x, True)
    assert np.array_equal(indices.cpu(), expected) and np.array_equal(distances.cpu(), np.float32(values))
    with pytest.raises(ValueError, match=r"^result of distance: got shape \(45,\), wanted \(45, 45\)$"):
        TorchKNN(lambda a, b: a.sum(1))(x, 1, x, True)


def test_knn_stored_references_survive_add_train_save_load(device, tmp_path):
    x = torch.randn(N, 4, device=device)
    expected = TorchKNN()(x[:9], 5, x, True)
    knn = TorchKNN()
    for _ in range(2):
        knn.add(x[:20])
        knn.add(x[20:])
        assert all(map(torch.equal, knn(x[:9], 5, ref_includes_query=True), expected))
        knn.train(x)
        assert all(map(torch.equal, knn(x[:9], 5, ref_includes_query=True), expected))
        knn.save(tmp_path / "references.pt")
        knn.reset()
        message = "reference: got None and nothing is stored, wanted references here or in train(embeddings)"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            knn(x, 1)
    knn.load(tmp_path / "references.pt", map_location=device)
    assert torch.equal(knn.indices(x[:9], 5, ref_includes_query=True), expected[1])


@pytest.mark.parametrize("distance", DISTANCES)
def test_knn_values_with_squares_out_of_float64_range_raise(distance, device):
    x = torch.randn(50, 4, dtype=torch.float64, device=device)
    knn, labels = TorchKNN(distance), torch.arange(50, device=device) % 7
    for scale in (2.0**-390, 2.0**390):
        assert torch.equal(knn.indices(x * scale, 9, x * scale, True), knn.indices(x, 9, x, True))
        scaled_ranks, expected = (positive_ranks(rows, labels, distance=distance).rank for rows in (x * scale, x))
        assert torch.equal(scaled_ranks, expected)
    message = (
        "{}: 1 of {} rows hold values whose squares leave the range of float64, the first is row 2; wanted a largest "
        "value of 4e-121 to 3e+120 in each; multiply all embeddings by one number"
    )
    for scale in (1e-170, 1e170):
        extreme = x.clone()
        extreme[2] *= scale
        with pytest.raises(ValueError, match=f"^{re.escape(message.format('query', 3))}$"):
            knn(extreme[:3], 1, x, False)
        with pytest.raises(ValueError, match=f"^{re.escape(message.format('reference', 50))}$"):
            knn(extreme, 1, extreme, True)
        with pytest.raises(ValueError, match=f"^{re.escape(message.format('query', 50))}$"):
            positive_ranks(extreme, labels, distance=distance)


@pytest.fixture(params=["spread", "lattice", "collapsed", "two points"])
def points(request):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(700, 12, generator=random)
    two_points = x[torch.arange(700) % 2]
    return {"spread": x, "lattice": x.round(), "collapsed": 1 + 1e-6 * x, "two points": two_points}[request.param]


def test_self_search_symmetric_and_full_tiles_agree(points, monkeypatch):
    other, symmetric, own = points.clone(), [], torch.arange(700)
    expected = TorchKNN().indices(other, 9, points, True)  # not the same tensor: every tile is computed
    monkeypatch.setattr(SymmetricTopK, "is_next", lambda topk, rows: symmetric.append(rows) or topk.done == rows.start)
    assert torch.equal(TorchKNN().indices(points, 9, points, True), expected)
    assert torch.equal(TorchKNN().indices(points, 9, points, self_index=own), expected) and len(symmetric) > 1


def test_inexact_ranks_are_distinct_and_in_range(points):
    labels = torch.arange(700) % 35
    exact = positive_ranks(points, labels, depth=9).rank
    fast = positive_ranks(points, labels, depth=9, exact=False).rank
    unlimited = positive_ranks(points, labels, exact=False).rank
    assert fast.shape == exact.shape and unlimited.shape == (700, 19)
    assert (unlimited[:, 1:] > unlimited[:, :-1]).all() and unlimited.max() < 700


@pytest.fixture
def batch(device):
    """Return embeddings, labels and mask of 2 x 3 self-retrievals of up to nine rows; the padding is NaN."""
    mask = torch.rand(2, 3, 9) < 0.7
    mask[1, 2] = False
    x = torch.randn(2, 3, 9, 4).masked_fill(~mask[..., None], torch.nan)
    return [part.to(device) for part in (x, torch.randint(0, 3, (2, 3, 9)), mask)]


@pytest.mark.parametrize("distance", ["l2", "cosine", lambda a, b: (a[:, None] - b).abs().sum(2)])
def test_knn_batch_with_masks_equals_items_without_padding(distance, batch):
    x, _, mask = batch
    ignore = torch.rand(2, 3, 9, 9, device=x.device) < 0.2
    knn = TorchKNN(distance)
    distances, indices = knn(x, 4, x, True, ignore=ignore, query_mask=mask, reference_mask=mask)
    assert torch.equal(indices, knn.indices(x, 4, x, True, ignore=ignore, query_mask=mask, reference_mask=mask))
    assert (indices[~mask] == -1).all() and (distances[~mask] == torch.inf).all()
    for i in range(2):
        for j in range(3):
            valid = mask[i, j].nonzero()[:, 0]
            rows = x[i, j, valid]
            expected_distances, expected_indices = knn(rows, 4, rows, True, ignore=ignore[i, j][valid][:, valid])
            expected_indices = torch.where(
                expected_indices < 0,
                -1,
                valid[expected_indices.clamp(min=0)] if len(valid) else expected_indices,
            )
            assert torch.equal(indices[i, j, valid], expected_indices) and torch.equal(
                distances[i, j, valid], expected_distances
            )


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("budget", [None, 200_000])
def test_batch_of_difficult_families_equals_separate_items(distance, budget, device):
    items = [torch.tensor(rows, dtype=torch.float32) for rows in families(30, 5).values() if rows.shape[1] == 5]
    x, knn = torch.stack(items).to(device), TorchKNN(distance, memory_budget=budget)
    labels = torch.randint(0, 4, x.shape[:2], device=device)
    options = {"distance": distance, "memory_budget": budget}
    ranks = positive_ranks(x, labels, **options).rank
    for k in (1, 10, 40):
        distances, indices = knn(x, k, x, True)
        for i, rows in enumerate(x):
            expected_distances, expected_indices = knn(rows, k, rows, True)
            assert torch.equal(indices[i], expected_indices) and torch.equal(distances[i], expected_distances)
    for i, rows in enumerate(x):
        assert nonzero_ranks(ranks[i]) == nonzero_ranks(positive_ranks(rows, labels[i], **options).rank)


def test_knn_trained_references_are_searched_for_batched_queries(device):
    x = torch.randn(20, 3, device=device)
    query, knn = x[:12].view(3, 4, 3), TorchKNN()
    knn.train(x)
    self_index = torch.arange(12, device=device).view(3, 4)
    distances, indices = knn(query, 5, self_index=self_index)
    expected = knn(x[:12], 5, ref_includes_query=True)
    assert torch.equal(distances.flatten(0, 1), expected[0]) and torch.equal(indices.flatten(0, 1), expected[1])
    assert knn(query[:0], 5)[1].shape == (0, 4, 5)


@pytest.mark.parametrize("option", ["nothing", "ignore", "groups", "gains"])
@pytest.mark.parametrize("depth", [None, 3])
def test_positive_ranks_batch_with_masks_equals_items_without_padding(depth, option, batch):
    x, labels, mask = batch
    pairs, groups = torch.rand(2, 3, 9, 9, device=x.device), torch.randint(0, 2, (2, 3, 9), device=x.device)
    options = (
        {"ignore": pairs < 0.3} if option == "ignore" else {"ignore": (groups, groups)} if option == "groups" else {}
    )
    options |= {"gains": (3 * pairs).floor()} if option == "gains" else {}
    ranks = positive_ranks(x, labels, query_mask=mask, depth=depth, **options)
    assert ranks.rank.shape[:-1] == (2, 3, 9) and ranks.rank.shape[-1] == ranks.relevant.max()
    assert (ranks.relevant[~mask] == 0).all() and (ranks.candidates[~mask] == 0).all()
    for i in range(2):
        for j in range(3):
            valid = mask[i, j].nonzero()[:, 0]

            def select_item(value):
                if isinstance(value, tuple):
                    return tuple(tensor[i, j, valid] for tensor in value)  # noqa: B023
                return value[i, j][valid][:, valid]  # noqa: B023

            item_options = {name: select_item(value) for name, value in options.items()}
            expected = positive_ranks(x[i, j, valid], labels[i, j, valid], depth=depth, **item_options)
            assert nonzero_ranks(ranks.rank[i, j, valid]) == nonzero_ranks(expected.rank)
            for field in ("relevant", "candidates"):
                assert torch.equal(getattr(ranks, field)[i, j, valid], getattr(expected, field))
            if option == "gains":
                width = expected.gain.shape[1]
                assert torch.equal(ranks.gain[i, j, valid, :width], expected.gain)
                assert torch.equal(ranks.ideal[i, j, valid, :width], expected.ideal)


def test_positive_ranks_batch_with_two_label_columns_equals_separate_items(device):
    query, reference = torch.randn(3, 5, 2, device=device), torch.randn(3, 8, 2, device=device)
    labels, reference_labels = (torch.randint(0, 2, (3, n, 2), device=device) for n in (5, 8))
    self_index = torch.arange(5, device=device).expand(3, 5)
    options = {"label_comparison_fn": lambda a, b: (a == b).all(1)}
    ranks = positive_ranks(query, labels, reference, reference_labels, self_index=self_index, **options)
    for i in range(3):
        expected = positive_ranks(
            query[i], labels[i], reference[i], reference_labels[i], self_index=self_index[i], **options
        )
        assert nonzero_ranks(ranks.rank[i]) == nonzero_ranks(expected.rank)


def test_memory_budget_of_8_mib_gives_same_result(device):
    x, labels = torch.randn(2500, 16, device=device), torch.arange(2500, device=device) % 40
    options = {"memory_budget": 2**23}
    for distance in ("l2", "cosine"):
        assert torch.equal(
            TorchKNN(distance, **options).indices(x, 70, x, True), TorchKNN(distance).indices(x, 70, x, True)
        )
        for depth in (None, 70):
            tiled = positive_ranks(x, labels, distance=distance, depth=depth, **options)
            assert torch.equal(tiled.rank, positive_ranks(x, labels, distance=distance, depth=depth).rank)


@pytest.mark.parametrize("points", [1, 7])
@pytest.mark.parametrize("k", [10, 99])
def test_knn_equal_rows_avoid_exhaustive_stage(k, points, device, monkeypatch):
    monkeypatch.setattr(ExhaustiveStage, "search", None)
    x = torch.randn(points, 32, device=device)[torch.arange(3000, device=device) % points]
    # References at the point of the query come first, in index order, without the query itself.
    indices = TorchKNN().indices(x, k, x, True)
    for query in (0, 1, 2999):
        expected = [j for j in range(3000) if (j - query) % points == 0 and j != query]
        assert indices[query].tolist() == expected[:k]
