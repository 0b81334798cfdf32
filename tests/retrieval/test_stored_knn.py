"""Neighbors from an external index: scores and audits match a custom search that returns the same lists."""

import numpy as np
import pytest
import torch

from tensormetrics.retrieval import AccuracyCalculator, StoredKNN, TorchKNN

NAMES = ("precision_at_1", "mean_average_precision_at_5", "mean_reciprocal_rank", "recall_at_3")
N, K = 150, 8


def data():
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(12, (N,), generator=generator)
    return torch.randn(12, 6, generator=generator)[labels] + torch.randn(N, 6, generator=generator), labels


def approximate_lists(x, references, skip=0.2):
    """Return neighbor lists of an index that misses some neighbors, but never the first one (the query itself)."""
    distances, order = TorchKNN()(x, len(references), references, False)
    is_retrieved = torch.rand(order.shape, generator=torch.Generator().manual_seed(4)) > skip
    is_retrieved[:, 0] = True
    selected_columns = (~is_retrieved).byte().argsort(dim=1, stable=True)[:, : K + 1]
    return order.gather(1, selected_columns), distances.gather(1, selected_columns)


class CustomSearch:
    """Custom search that returns the same lists without the query itself."""

    distance = "l2"

    def __init__(self, indices):
        self.indices = indices

    def __call__(self, query, k, reference, ref_includes_query, self_index=None):
        rows = [[i for i in row if i != n][:k] for n, row in enumerate(self.indices.tolist())]
        return torch.zeros(len(query), k), torch.tensor(rows)


@pytest.fixture(params=["tensor", "array", "mapped", "npy", "safetensors"])
def stored(request, tmp_path):
    """Return a function that stores indices and distances in one of the formats that users may have."""

    def store(*columns):
        paths = []
        for i, column in enumerate(columns):
            path = tmp_path / f"{i}.npy"
            np.save(path, column.numpy().astype(np.int32) if i == 0 else column.numpy())
            paths.append(path)
        if request.param == "tensor":
            return columns
        if request.param == "array":
            return tuple(column.numpy() for column in columns)
        if request.param == "mapped":
            return tuple(np.load(path, mmap_mode="r") for path in paths)
        if request.param == "npy":
            return tuple(paths)
        save_file = pytest.importorskip("safetensors.torch").save_file
        for i, column in enumerate(columns):
            save_file({"rows": column}, tmp_path / f"{i}.safetensors")
        return tuple(str(tmp_path / f"{i}.safetensors") for i in range(len(columns)))

    return store


def test_stored_knn_scores_and_audit_match_custom_search(stored):
    x, labels = data()
    indices, distances = approximate_lists(x, x)
    ours, theirs = (
        AccuracyCalculator(NAMES, k=K, knn_func=knn, audit=40)
        for knn in (StoredKNN(*stored(indices, distances)), CustomSearch(indices))
    )
    assert ours.get_accuracy(x, labels) == theirs.get_accuracy(x, labels)
    exact = AccuracyCalculator(NAMES, k=K).get_accuracy(x, labels)
    for name, estimate in ours.audit_report().items():
        assert all(map(torch.equal, estimate, theirs.audit_report()[name]))
        if name != "recall":
            assert estimate.low <= exact[name] <= estimate.high


@pytest.mark.parametrize("arrangement", ["prefix", "self_index", "none"])
def test_stored_knn_excludes_queries_by_index(arrangement):
    x, labels = data()
    query, self_index = x[:40], None
    indices, distances = approximate_lists(query, x)
    if arrangement == "self_index":
        self_index = torch.arange(40)
    got = StoredKNN(indices, distances)(query, K, x, arrangement == "prefix", self_index=self_index)
    expected = indices[:, :K] if arrangement == "none" else indices[:, 1:]
    assert torch.equal(got[1], expected)
    assert torch.equal(got[0], distances[:, :K] if arrangement == "none" else distances[:, 1:])
    assert StoredKNN(indices)(query, 3, x, False)[0].isnan().all()


def test_stored_knn_missing_neighbors_count_as_not_retrieved():
    x, labels = data()
    indices = approximate_lists(x, x)[0]
    indices[:, 4:] = -1
    got = StoredKNN(indices)(x, K, x, True)[1]
    assert torch.equal(got[:, :3], indices[:, 1:4]) and (got[:, 3:] == -1).all()
    missing = AccuracyCalculator(("recall_at_8",), k=K, knn_func=StoredKNN(indices)).get_accuracy(x, labels)
    short = AccuracyCalculator(("recall_at_3",), k=K, knn_func=StoredKNN(indices)).get_accuracy(x, labels)
    assert missing["recall_at_8"] == short["recall_at_3"]


ERRORS = {
    "distance: got 'l3', wanted one of 'l2'": lambda: StoredKNN([[0]], distance="l3"),
    "indices: got torch.float32, wanted an integer dtype": lambda: StoredKNN(torch.zeros(2, 2)),
    r"indices: got shape \(2,\), wanted \(Q, K\)": lambda: StoredKNN(torch.zeros(2).long()),
    r"distances: got shape \(2, 3\), wanted \(2, 2\)": lambda: StoredKNN(
        torch.tensor([[0, 1], [1, 0]]), torch.zeros(2, 3)
    ),
    "indices: list 1 holds a reference twice": lambda: StoredKNN(torch.tensor([[0, 1], [1, 1]])),
    "query: got 3 rows, wanted the 2 of the lists, all in one call": lambda: search_stored_lists(rows=3),
    "k: got 3, wanted at most the 2 neighbors of a list; write k=2 or less": lambda: search_stored_lists(k=3),
    "indices: got 5, wanted -1 to 1": lambda: search_stored_lists(indices=[[0, 1], [1, 5]]),
    "k: got 2, and lists of 2 that hold the query itself, wanted at most 1; store one neighbor more": lambda: (
        search_stored_lists(ref_includes_query=True)
    ),
}


def search_stored_lists(indices=((0, 1), (1, 0)), rows=2, k=2, ref_includes_query=False):
    return StoredKNN(torch.tensor(indices))(torch.zeros(rows, 1), k, torch.zeros(2, 1), ref_includes_query)


@pytest.mark.parametrize("message", ERRORS)
def test_stored_knn_invalid_arguments_raise_value_error(message):
    with pytest.raises(ValueError, match=message):
        ERRORS[message]()


def test_integer_distances_are_returned_as_floats():
    indices, distances = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0, 3], [0, 3]], dtype=torch.int32)
    knn, x = StoredKNN(indices, distances), torch.zeros(2, 1)
    assert torch.equal(knn(x, 2, x, False)[0], distances.double())
    calculator = AccuracyCalculator(include=("precision_at_1",), k=1, knn_func=knn, keep="neighbors")
    calculator.get_accuracy(x, torch.zeros(2, dtype=torch.int64))
    assert calculator.last.neighbors.distances.tolist() == [[3.0], [3.0]]
