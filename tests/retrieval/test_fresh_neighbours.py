"""Every call of AccuracyCalculator searches anew, whoever has written to the embeddings; a call searches once."""

import numpy as np
import pytest
import torch
from retrieval_oracle import KNN

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN


def fill(shared: torch.Tensor, rows: torch.Tensor) -> None:
    shared.copy_(rows)


@pytest.fixture
def epochs() -> tuple[torch.Tensor, ...]:
    """Embeddings of an untrained model and of a trained one, with their labels."""
    labels = torch.arange(100) % 5
    noise = torch.randn(2, 100, 8)
    return noise[0], 4 * torch.nn.functional.one_hot(labels, 8) + 0.1 * noise[1], labels


def through_numpy(rows, folder):
    buffer = torch.empty_like(rows)
    view = buffer.numpy()
    return buffer, lambda values: np.copyto(view, values.numpy())


def through_memory_map(rows, folder):
    mapped = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.float32, tuple(rows.shape))
    return torch.from_numpy(mapped), lambda values: np.copyto(mapped, values.numpy())


def through_child_process(rows, folder):
    buffer = torch.empty_like(rows).share_memory_()

    def write(values):
        child = torch.multiprocessing.get_context("spawn").Process(target=fill, args=(buffer, values))
        child.start()
        child.join()
        assert child.exitcode == 0

    return buffer, write


def through_data(rows, folder):
    buffer = torch.empty_like(rows)
    return buffer, lambda values: buffer.data.copy_(values)


@pytest.mark.parametrize("writer", [through_numpy, through_memory_map, through_child_process, through_data])
def test_a_refilled_buffer_is_searched_again(epochs, writer, tmp_path):
    before, after, labels = epochs
    buffer, write = writer(before, tmp_path)
    calculator = AccuracyCalculator(["precision_at_1"])
    write(before)
    assert calculator.get_accuracy(buffer, labels)["precision_at_1"] < 0.5
    write(after)
    assert calculator.get_accuracy(buffer, labels) == {"precision_at_1": 1.0}


def test_a_knn_func_that_changed_inside_is_called_again(epochs):
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


def test_levels_of_one_call_share_a_search_that_is_deep_enough_for_all(monkeypatch):
    done, search = [], TorchKNN.search
    monkeypatch.setattr(TorchKNN, "search", lambda *a, **o: (done.append(a[2]), search(*a, **o))[1])
    x, fine = torch.randn(60, 4), torch.arange(60) % 12
    levels = torch.stack([fine, fine % 4], 1)
    got = AccuracyCalculator(KNN, k="max_bin_count", label_levels=True).get_accuracy(x, levels)
    assert done == [14]  # of the coarse level, which comes second
    monkeypatch.undo()
    for i, level in enumerate(levels.T):
        alone = AccuracyCalculator(KNN, k="max_bin_count").get_accuracy(x, level)
        assert {name: got[f"{name}_level{i}"] for name in KNN} == alone
    assert list(got) == [f"{name}_level{i}" for i in range(2) for name in KNN]


def test_a_function_is_asked_once_for_tables_and_ranks():
    class Own(AccuracyCalculator):
        def requires_knn(self):
            return [*super().requires_knn(), "nearest"]

        def calculate_nearest(self, knn_distances, **kwargs):
            return float(knn_distances[:, 0].mean())

    asked = []

    def knn(*arguments):
        asked.append(arguments[1])
        return TorchKNN()(*arguments)

    Own(["nearest", "mean_average_precision"], knn_func=knn).get_accuracy(torch.randn(30, 3), torch.arange(30) % 3)
    assert asked == [29]
