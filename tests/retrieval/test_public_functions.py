"""Inputs that public functions accept: two dtypes, two sets in one call, any numeric dtype; each is checked once."""

import re
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_device import DEVICE, Device
from raising import raises

from tensormetrics.core.native import native
from tensormetrics.retrieval import (
    NDCG,
    AccuracyCalculator,
    AveragePrecision,
    FaissKNN,
    NearestCentroidAccuracy,
    TorchKMeans,
    TorchKNN,
)
from tensormetrics.retrieval import inputs as checks
from tensormetrics.retrieval.functional import positive_ranks
from tensormetrics.retrieval.ranking.rank_counts import RankCounter
from tensormetrics.retrieval.ranking.ranking import RankingOptions
from tensormetrics.retrieval.search import operators


class SingleDtypeKNN:
    """Search that requires one common dtype, like torch.cdist and many user functions."""

    def __call__(self, query, k, reference, ref_includes_query):
        assert query.dtype == reference.dtype
        return TorchKNN(torch.cdist)(query, k, reference, ref_includes_query)


@pytest.mark.parametrize(
    ("query", "reference", "common_dtype"),
    [
        (torch.float16, torch.float32, torch.float32),
        (torch.float32, torch.float64, torch.float64),
        (torch.int64, torch.float32, torch.float64),
    ],
    ids=str,
)
def test_user_functions_get_one_common_dtype(query, reference, common_dtype, device):
    x, labels = torch.arange(20, device=device)[:, None], torch.arange(20, device=device) // 2
    inputs = x.to(query), labels, x.to(reference), labels
    assert AccuracyCalculator(["precision_at_1"], knn_func=SingleDtypeKNN()).get_accuracy(*inputs) == {
        "precision_at_1": 1.0
    }
    calculator = AccuracyCalculator(["precision_at_1"], knn_func=SingleDtypeKNN())
    calculator.update(*inputs[:2], role="query")
    calculator.update(*inputs[2:], role="reference")
    assert calculator.compute() == {"precision_at_1": 1.0}
    dtypes = []

    def distance(a, b):
        dtypes.append((a.dtype, b.dtype))
        return torch.cdist(a, b)

    assert torch.equal(TorchKNN(distance).indices(x.to(query), 1, x.to(reference))[:, 0], torch.arange(20).to(device))
    assert dtypes == [(common_dtype, common_dtype)]


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize("search", ["default", "faiss"])
def test_any_search_accepts_numpy_and_torch_inputs(kind, search, recwarn):
    if search == "faiss":
        pytest.importorskip("faiss")
    knn = FaissKNN() if search == "faiss" else None
    calculator = AccuracyCalculator(["precision_at_1"], knn_func=knn, device="cpu")
    labels = kind(np.arange(10))
    for query, reference in ((np.int64, np.int64), (np.int64, np.float32), (np.float32, np.float64)):
        inputs = (kind(np.arange(10)[:, None].astype(dtype)) for dtype in (query, reference))
        a, b = inputs
        assert calculator.get_accuracy(a, labels, b, labels) == {"precision_at_1": 1.0}


def two_sets(device):
    x, y = torch.randn(20, 4, device=device), torch.randn(50, 4, device=device)
    return x, torch.arange(20, device=device) % 5, y, torch.arange(50, device=device) % 5


@pytest.mark.parametrize("make", [AveragePrecision, NearestCentroidAccuracy, lambda: NDCG(5)])
def test_forward_with_references_matches_updates_by_role(make, device):
    x, labels, y, others = two_sets(device)
    metric, roles = make().to(device), make().to(device)
    value = metric(x, labels, y, others)
    roles.update(x, labels, role="query")
    roles.update(y, others, role="reference")
    assert value == roles.compute() == metric.compute() and metric.update_count == 1
    metric.update(x, labels, role="query")  # more queries against the same references
    assert float(metric.compute()) == pytest.approx(float(value), rel=1e-12)
    name = "reference: got shape (50, 3) after"
    with pytest.raises(ValueError, match=f"^{re.escape(name)}"):
        metric.update(x, labels, y[:, :3], others)
    with raises(
        ValueError, "reference: got some together with role, ids, cameras or groups; write an update for each role"
    ):
        metric.update(x, labels, y, others, role="query")
    with raises(ValueError, "reference_labels: got None, wanted both reference and reference_labels or neither"):
        metric.update(x, labels, y)
    assert metric.update_count == 2 and len(metric.query_embeddings) == 40


def test_more_references_than_int32_max_are_rejected():
    rows = torch.zeros(1, 1).expand(2**31, 1)
    message = (
        "reference: got 2147483648 rows, wanted at most 2147483647; search subsets, or distribute them over processes"
    )
    labels = torch.zeros(1, dtype=torch.int64)
    with raises(ValueError, message):
        TorchKNN()(rows[:1], 1, rows, False)
    with raises(ValueError, message):
        positive_ranks(rows[:1], labels, rows, labels.expand(2**31))
    with raises(ValueError, message):
        RankCounter(rows[:1], -torch.ones(1).long(), rows, RankingOptions(memory_budget=2**20))
    if native.has_kernel("update_topk", "cpu"):
        keys, counts = torch.zeros(1, 34, dtype=torch.int64), torch.zeros(1, dtype=torch.int32)
        bias, limit = torch.zeros(1).expand(2**31), torch.zeros(1)
        with pytest.raises(RuntimeError, match="got 2147483648 references, but columns are 32 bits wide"):
            operators.update_topk(rows[:1], rows[:1], bias, 0, -labels - 1, None, keys, counts, limit, 1, -1)


def test_unusual_numpy_dtypes_give_equal_scores_or_errors():
    x, labels = np.random.RandomState(0).standard_normal((20, 3)), np.arange(20) % 4
    expected = AccuracyCalculator().get_accuracy(x, labels)
    assert AccuracyCalculator().get_accuracy(x.astype(">f8"), labels.astype(">i4")) == expected
    assert AccuracyCalculator().get_accuracy(x, labels.astype(np.uint64) + 2**62) == expected
    ranks = [positive_ranks(torch.tensor(x), torch.tensor(labels.astype(kind))) for kind in (np.uint64, np.int64)]
    assert torch.equal(ranks[0].rank, ranks[1].rank)
    with raises(ValueError, "query: got an array of float128, wanted at most float64; write query.astype(float)"):
        AccuracyCalculator().get_accuracy(x.astype(np.longdouble), labels)
    with raises(ValueError, "query: got layout torch.sparse_coo, wanted a dense tensor; write query.to_dense()"):
        AccuracyCalculator().get_accuracy(torch.tensor(x).to_sparse(), labels)


CHECKS = ("as_tensor", "as_embeddings", "check_finite", "check_squares", "labelled")
FILE = str(Path(checks.__file__))


def count_checks(call, *tensors):
    """Count calls of each check that receive the memory of a tensor, by (check, index of the tensor)."""
    counts, pointers = Counter(), [tensor.data_ptr() for tensor in tensors]

    def record_call(frame, event, _):
        if event == "call" and frame.f_code.co_filename == FILE and frame.f_code.co_name in CHECKS:
            arguments = [
                argument
                for value in frame.f_locals.values()
                for argument in (value.values() if type(value) is dict else [value])
            ]
            for index, pointer in enumerate(pointers):
                if any(
                    isinstance(argument, torch.Tensor) and argument.numel() and argument.data_ptr() == pointer
                    for argument in arguments
                ):
                    counts[frame.f_code.co_name, index] += 1

    sys.setprofile(record_call)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counts


@pytest.fixture
def inputs(device):
    x, y = torch.randn(70, 4, device=device), torch.randn(90, 4, device=device)
    return x, torch.arange(70, device=device) % 5, y, torch.arange(90, device=device) % 5


NAMES = (
    "mean_average_precision", "precision_at_1", "nearest_centroid_accuracy", "AMI", "NMI", "mean_auroc", "ndcg_at_5",
)  # fmt: skip


def test_public_functions_check_every_input_once(inputs):
    x, labels, y, _ = inputs
    calculators = [
        AccuracyCalculator(NAMES, **options)
        for options in ({}, {"k": 3, "exclude": ["mean_auroc"]}, {"k": "max_bin_count"})
    ]
    for call in (
        *(partial(calculator.get_accuracy, *inputs[:n]) for calculator in calculators for n in (2, 4)),
        lambda: positive_ranks(x, labels),
        lambda: positive_ranks(x, labels, depth=3),
        lambda: positive_ranks(*inputs),
        lambda: TorchKNN()(x, 3, y, False),
        lambda: TorchKMeans()(x, 5),
    ):
        counts = count_checks(call, x, y)
        assert counts["as_embeddings", 0] == counts["check_squares", 0] == 1 == max(counts.values())
        assert not isinstance(call, partial) or counts["check_finite", 0] == 1


def test_metric_compute_checks_stored_embeddings_once(inputs):
    metric = AveragePrecision()
    metric.update(*inputs[:2])
    counts = count_checks(metric.compute, metric.embeddings)
    assert counts == {("check_finite", 0): 1, ("check_squares", 0): 1}


LARGEST = 64  # elements that one copy may have, such as tile sizes and class limits
CALLS = {
    "every default": lambda x, y: AccuracyCalculator().get_accuracy(x, y),
    "k": lambda x, y: AccuracyCalculator(k=10, include=("precision_at_1",)).get_accuracy(x, y),
    "TorchKNN": lambda x, y: TorchKNN()(x, 10, x, True),
    "FaissKNN": lambda x, y: FaissKNN()(x, 10, x, True),
    "positive_ranks": positive_ranks,
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:the installed faiss")  # without GPU support falls back to TorchKNN with a warning
def test_metrics_on_gpu_copy_only_small_tensors(name, generator):
    pytest.importorskip("faiss" if name == "FaissKNN" else "torch")
    labels = torch.randint(0, 20, (300,), generator=generator)
    embeddings = torch.randn(300, 32, generator=generator)
    with Device() as device:
        inputs = embeddings.to(DEVICE), labels.to(DEVICE)
        device.copied.clear()
        CALLS[name](*inputs)
    assert max(device.copied, default=0) <= LARGEST
