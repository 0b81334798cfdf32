import numpy as np
import pytest
import torch
from metric_oracle import averages, scores
from posterior_oracle import confusion_matrix
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tensormetrics.posterior import get_metric, sample_metrics, temporary_registrations
from tensormetrics.posterior.metrics.registry import ConfusionMetric

COUNTS = torch.tensor([[[13, 2, 1], [3, 20, 4], [1, 5, 9]], [[4, 1, 1], [1, 7, 1], [1, 1, 9]]])
METRICS = [
    "acc",
    "true_positive_rate",
    "f1@macro",
    "mcc",
    "mean_absolute_error",
    "polynomial_weighted_kappa+power=2.5",
    "p4@harmonic",
]


class LargestTensor(TorchDispatchMode):
    """Dispatch mode that records the size in bytes of the largest tensor of any operation."""

    size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        sizes = [x.untyped_storage().nbytes() for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        self.size = max(self.size, *sizes, 0)
        return result


@pytest.fixture
def row_maxima():
    with temporary_registrations():

        class RowMaxima(ConfusionMetric):
            full_name = "Largest Share of Each Row"
            is_multiclass = False
            bounds = (0.0, 1.0)
            dependencies = ("p_pred_given_condition",)
            sklearn_equivalent = None
            aliases = ["row_maxima"]

            def compute_metric(self, p_pred_given_condition):
                return np.max(p_pred_given_condition, axis=2)

        yield


@pytest.mark.parametrize("method", ["posterior", "prior", "random"])
def test_sample_metrics_equals_loop_over_samples(method, row_maxima, device):
    prior = torch.tensor([[1.0, 0.5, 0.25], [0.5, 2, 0.5], [1, 1, 1]])
    address = {"method": method, "seed": 5, "start": 3, "names": ["x", "y"], "dtype": torch.float64}
    priors = {"prevalence_prior": 0.5, "confusion_prior": prior}
    samples = sample_metrics(COUNTS.to(device), [*METRICS, "row_maxima"], 6, **priors, **address)
    for e, name in enumerate("xy"):
        observed = np.zeros((3, 3)) if method == "prior" else COUNTS[e].double().numpy()
        cells = observed + prior.double().numpy()
        cells = np.repeat(cells.mean(1, keepdims=True), 3, 1) if method == "random" else cells
        for s in range(6):
            matrix = confusion_matrix(observed.sum(1) + 0.5, cells, s + 3, name, method, seed=5)
            expected = scores(matrix)
            for metric in "f1", "p4":
                averaged = averages(expected[metric], expected["prevalence"])
                expected |= {f"{metric}@{averaging}": value for averaging, value in averaged.items()}
            expected["row_maxima"] = (matrix / matrix.sum(1, keepdims=True)).max(1)
            for metric, values in zip([*METRICS, "row_maxima"], samples, strict=True):
                np.testing.assert_allclose(values[s, e].cpu(), np.atleast_1d(expected[metric]), 1e-8, err_msg=metric)


def test_sample_metrics_input_gives_observed_values(row_maxima, device):
    metrics = [*METRICS, "row_maxima", "p_condition_given_pred"]
    for metric, values in zip(metrics, sample_metrics(COUNTS.to(device), metrics, 9, method="input"), strict=True):
        assert torch.equal(values, get_metric(metric)(COUNTS.to(device))[None]) and values.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("C", [3, 30])
def test_sample_metrics_chunks_and_shards_equal_full_call(C, dtype, device):
    metrics = ["acc", "recall", "f1@macro", "rmse", "mcc", "p4@harmonic", "ppv@micro", "p_pred", "accuracy"]
    counts = torch.randint(1, 9, (2, C, C), device=device)
    options = {"confusion_prior": 1, "prevalence_prior": 1, "dtype": dtype}
    full = sample_metrics(counts, metrics, 100, **options)
    assert [x.shape for x in full] == [(100, 2, K) for K in (1, C, 1, 1, 1, 1, 1, C, 1)]
    for limit in 1, 5_000 * C, 50_000 * C:  # bytes: one sample at a time, and several
        for x, y in zip(sample_metrics(counts, metrics, 100, memory_limit=limit, **options), full, strict=True):
            assert torch.equal(x, y)
    shards = [sample_metrics(counts, metrics, n, start=start, **options) for start, n in ((0, 7), (7, 64), (71, 29))]
    for *parts, full_values in zip(*shards, full, strict=True):
        assert torch.equal(torch.cat(parts), full_values)
    for metric, full_values in zip(metrics, full, strict=False):
        (single,) = sample_metrics(counts, metric, 100, **options)
        (second,) = sample_metrics(counts[1], metric, 100, names=["1"], **options)
        assert torch.equal(single, full_values) and torch.equal(second, full_values[:, 1:])


def test_sample_metrics_empty_inputs_keep_shapes(row_maxima, device):
    metrics = "acc", "tpr", "mae", "row_maxima"
    for method in "posterior", "input":
        empty = sample_metrics(COUNTS[:0].to(device), metrics, 4, method=method)
        assert [x.shape[1:] for x in empty] == [(0, 1), (0, 3), (0, 1), (0, 3)]
    assert [x.shape for x in sample_metrics(COUNTS.to(device), metrics, 0)] == [(0, 2, K) for K in (1, 3, 1, 3)]
    assert sample_metrics(COUNTS.to(device), [], 4) == []


def test_sample_metrics_memory_limit_bounds_largest_tensor(row_maxima, device):
    counts = torch.ones(1, 200, 200, device=device)  # 100 matrices of float64 would be 32 MB
    for metrics, max_bytes in (["row_maxima"], 16e6), (["acc", "f1@macro", "mae"], 3e6):
        with LargestTensor() as largest:
            sample_metrics(counts, metrics, 100, memory_limit=int(max_bytes))
        assert 0 < largest.size < max_bytes
