"""A value is checked once, at the door: nothing below it asks again."""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from tensormetrics.retrieval import AccuracyCalculator, AveragePrecision, TorchKMeans, TorchKNN, positive_ranks
from tensormetrics.retrieval import inputs as checks

CHECKS = ("as_tensor", "as_embeddings", "check_finite", "check_squares", "labelled")
FILE = str(Path(checks.__file__))


def checked(call, *tensors):
    """How often each check was entered with the memory of one of these tensors, by (check, number of the tensor)."""
    found, places = Counter(), [tensor.data_ptr() for tensor in tensors]

    def watch(frame, event, _):
        if event == "call" and frame.f_code.co_filename == FILE and frame.f_code.co_name in CHECKS:
            given = [
                v for value in frame.f_locals.values() for v in (value.values() if type(value) is dict else [value])
            ]
            for number, place in enumerate(places):
                if any(isinstance(v, torch.Tensor) and v.numel() and v.data_ptr() == place for v in given):
                    found[frame.f_code.co_name, number] += 1

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


@pytest.fixture
def sides(device):
    x, y = torch.randn(70, 4, device=device), torch.randn(90, 4, device=device)
    return x, torch.arange(70, device=device) % 5, y, torch.arange(90, device=device) % 5


EVERYTHING = (
    "mean_average_precision", "precision_at_1", "nearest_centroid_accuracy", "AMI", "NMI", "mean_auroc", "ndcg_at_5",
)  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"k": 3, "exclude": ["mean_auroc"]}, {"k": "max_bin_count"}], ids=str)
def test_get_accuracy(sides, options):
    calculator = AccuracyCalculator(EVERYTHING, **options)
    for call in (lambda: calculator.get_accuracy(*sides), lambda: calculator.get_accuracy(*sides[:2])):
        found = checked(call, sides[0], sides[2])
        assert found["check_finite", 0] == found["as_embeddings", 0] == found["check_squares", 0] == 1
        assert max(found.values()) == 1


def test_functions(sides):
    x, labels, y, others = sides
    for call in (
        lambda: positive_ranks(x, labels),
        lambda: positive_ranks(x, labels, depth=3),
        lambda: positive_ranks(x, labels, y, others),
        lambda: TorchKNN()(x, 3, y, False),
        lambda: TorchKMeans()(x, 5),
    ):
        found = checked(call, x, y)
        assert found["as_embeddings", 0] == found["check_squares", 0] == 1 == max(found.values())


def test_a_metric_checks_what_it_kept_once(sides):
    metric = AveragePrecision()
    metric.update(*sides[:2])
    found = checked(metric.compute, metric.embeddings)
    assert found == {("check_finite", 0): 1, ("check_squares", 0): 1}
