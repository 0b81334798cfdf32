"""Calls of AccuracyCalculator search exactly once each, even if their embeddings were overwritten between calls."""

import numpy as np
import pytest
import torch
from retrieval_oracle import KNN

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN


def write_to_shared(shared: torch.Tensor, rows: torch.Tensor) -> None:
    shared.copy_(rows)


@pytest.fixture
def epochs() -> tuple[torch.Tensor, ...]:
    """Return embeddings of an untrained and of a trained model, and their labels."""
    labels = torch.arange(100) % 5
    noise = torch.randn(2, 100, 8)
    return noise[0], 4 * torch.nn.functional.one_hot(labels, 8) + 0.1 * noise[1], labels


def make_numpy_buffer(rows, folder):
    buffer = torch.empty_like(rows)
    view = buffer.numpy()
    return buffer, lambda values: np.copyto(view, values.numpy())


def make_memory_map_buffer(rows, folder):
    memory_map = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.float32, tuple(rows.shape))
    return torch.from_numpy(memory_map), lambda values: np.copyto(memory_map, values.numpy())


def make_shared_buffer(rows, folder):
    buffer = torch.empty_like(rows).share_memory_()

    def write(values):
        child = torch.multiprocessing.get_context("spawn").Process(target=write_to_shared, args=(buffer, values))
        child.start()
        child.join()
        assert child.exitcode == 0

    return buffer, write


def make_data_buffer(rows, folder):
    buffer = torch.empty_like(rows)
    return buffer, lambda values: buffer.data.copy_(values)


@pytest.mark.parametrize(
    "make_buffer", [make_numpy_buffer, make_memory_map_buffer, make_shared_buffer, make_data_buffer]
)
def test_get_accuracy_after_buffer_changed_searches_again(epochs, make_buffer, tmp_path):
    before, after, labels = epochs
    buffer, write = make_buffer(before, tmp_path)
    calculator = AccuracyCalculator(["precision_at_1"])
    write(before)
    assert calculator.get_accuracy(buffer, labels)["precision_at_1"] < 0.5
    write(after)
    assert calculator.get_accuracy(buffer, labels) == {"precision_at_1": 1.0}


def test_get_accuracy_after_knn_func_changed_searches_again(epochs):
    before, after, labels = epochs

    class Weighted:
        weight = 0.0

        def __call__(self, query, k, reference, ref_includes_query):
            mixed = (1 - self.weight) * before + self.weight * after
            return TorchKNN()(mixed, k, mixed, ref_includes_query)

    knn = Weighted()
    calculator = AccuracyCalculator(["precision_at_1"], k=1, knn_func=knn)
    assert calculator.get_accuracy(before, labels)["precision_at_1"] < 0.5
    knn.weight = 1.0
    assert calculator.get_accuracy(before, labels) == {"precision_at_1": 1.0}


def test_label_levels_use_one_search_of_largest_depth(monkeypatch):
    depths, search = [], TorchKNN.search
    monkeypatch.setattr(TorchKNN, "search", lambda *a, **o: (depths.append(a[2]), search(*a, **o))[1])
    x, fine_labels = torch.randn(60, 4), torch.arange(60) % 12
    levels = torch.stack([fine_labels, fine_labels % 4], 1)
    scores = AccuracyCalculator(KNN, k="max_bin_count", label_levels=True).get_accuracy(x, levels)
    assert depths == [14]  # depth of the coarse level, which is the second level
    monkeypatch.undo()
    for i, level in enumerate(levels.T):
        expected = AccuracyCalculator(KNN, k="max_bin_count").get_accuracy(x, level)
        assert {name: scores[f"{name}_level{i}"] for name in KNN} == expected
    assert list(scores) == [f"{name}_level{i}" for i in range(2) for name in KNN]


def test_knn_func_for_tables_and_ranks_is_called_once():
    class CustomCalculator(AccuracyCalculator):
        def requires_knn(self):
            return [*super().requires_knn(), "nearest"]

        def calculate_nearest(self, knn_distances, **kwargs):
            return float(knn_distances[:, 0].mean())

    depths = []

    def knn(*arguments):
        depths.append(arguments[1])
        return TorchKNN()(*arguments)

    CustomCalculator(["nearest", "mean_average_precision"], knn_func=knn).get_accuracy(
        torch.randn(30, 3), torch.arange(30) % 3
    )
    assert depths == [29]
