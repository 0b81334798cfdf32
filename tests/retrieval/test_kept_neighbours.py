"""One search serves several labels of the same embeddings."""

import gc

import torch
from retrieval_oracle import KNN, data

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN


def searches(monkeypatch):
    done, search = [], TorchKNN.indices

    def recorded(self, query, k, *arguments, **options):
        done.append(k)
        return search(self, query, k, *arguments, **options)

    monkeypatch.setattr(TorchKNN, "indices", recorded)
    return done


def test_neighbours_are_kept_for_the_next_labels(monkeypatch, device):
    done = searches(monkeypatch)
    x, labels = (side.to(device) for side in data())
    coarse = labels % 2
    calculator = AccuracyCalculator(KNN, k=10)
    first = calculator.get_accuracy(x, labels)
    second = calculator.get_accuracy(x, coarse)
    assert done == [10] and second == AccuracyCalculator(KNN, k=10).get_accuracy(x, coarse)
    assert calculator.get_accuracy(x, labels, include=["precision_at_1"])["precision_at_1"] == first["precision_at_1"]
    del done[:]
    for sides in ((x.clone(), labels), (x[:30], labels[:30], x, labels), (x[:30], labels[:30], x, labels, True)):
        calculator.get_accuracy(*sides)
    assert done == [10] * 3
    before = calculator.get_accuracy(x, labels)
    x[:30] = x[:30].flip(0)
    assert calculator.get_accuracy(x, labels) != before
    assert done == [10] * 5
    calculator.reset()
    calculator.get_accuracy(x, labels)
    with torch.inference_mode():
        inference = x.clone()
    for _ in range(2):
        calculator.get_accuracy(inference, labels)
        calculator.get_accuracy(x.cpu().numpy(), labels)
    assert done == [10] * 10


def test_kept_neighbours_are_freed_with_the_embeddings(device):
    x, labels = (side.to(device) for side in data())
    calculator = AccuracyCalculator(KNN, k=10)
    calculator.get_accuracy(x, labels)
    assert calculator.search.indices is not None
    del x
    gc.collect()
    assert calculator.search.indices is None
