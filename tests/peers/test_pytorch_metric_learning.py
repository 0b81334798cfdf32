"""Agreement with pytorch-metric-learning 2.x: its testers run with our calculator and get what they get with theirs."""

import functools
import inspect
import logging
import warnings

import pytest
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

from tensormetrics.compat import pytorch_metric_learning as compat
from tensormetrics.compat.pytorch_metric_learning import accuracy_calculator
from tensormetrics.retrieval import AccuracyCalculator, FaissKMeans, TorchKNN

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pml = pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning.distances import CosineSimilarity, SNRDistance
    from pytorch_metric_learning.testers import (
        GlobalEmbeddingSpaceTester,
        GlobalTwoStreamEmbeddingSpaceTester,
        WithSameParentLabelTester,
    )
    from pytorch_metric_learning.utils import accuracy_calculator as theirs
    from pytorch_metric_learning.utils import inference
    from pytorch_metric_learning.utils.inference import CustomKNN, FaissKNN

if not pml.__version__.startswith("2."):
    pytest.skip(f"testers are in 2.x, this is {pml.__version__}", allow_module_level=True)

KNN_METRICS = (
    "mean_average_precision",
    "mean_average_precision_at_r",
    "mean_reciprocal_rank",
    "precision_at_1",
    "r_precision",
)
MODEL = torch.nn.Sequential(torch.nn.Linear(64, 24), torch.nn.Tanh())


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("PML").setLevel(logging.ERROR)
    with torch.no_grad():
        for weight in MODEL.parameters():
            weight.normal_(0, 0.05)


def digits(first, last):
    """Pixels, and labels of two levels: the digit, and whether it is odd."""
    data = load_digits()
    labels = torch.tensor(data.target[first:last])
    return torch.tensor(data.data[first:last], dtype=torch.float32), torch.stack([labels, labels % 2], 1)


their_calculator = functools.partial(theirs.AccuracyCalculator, device=torch.device("cpu"))


def run_tester(tester, calculator, splits, levels="all", datasets=None):
    datasets = datasets or {"train": TensorDataset(*digits(0, 400)), "val": TensorDataset(*digits(400, 700))}
    run = tester(
        batch_size=128,
        dataloader_num_workers=0,
        data_device=torch.device("cpu"),
        label_hierarchy_level=levels,
        accuracy_calculator=calculator,
    )
    results = run.test(datasets, 1, MODEL, splits_to_eval=splits)
    return {f"{split}/{name}": value for split, values in results.items() for name, value in values.items()}


SPLITS = {
    "itself": [("val", ["val"])],
    "another": [("val", ["train"])],
    "both": [("val", ["train", "val"])],
}


@pytest.mark.parametrize("module", [theirs, inference], ids=["accuracy_calculator", "inference"])
def test_every_name_and_argument_is_served(module):
    internal = {"add_to_index_and_search", "convert_to_cpu_index", "convert_to_gpu_index", "get_topk", "run_pca"}
    internal |= {"mask_reshape_knn_idx", "return_results", "try_gpu"}
    for name, function in vars(module).items():
        if name in internal or getattr(function, "__module__", "") != module.__name__:
            continue
        ours = getattr(compat, name)
        assert getattr(getattr(compat, module.__name__.rpartition(".")[2]), name, ours) is ours
        for method in ("__init__", "__call__") if inspect.isclass(function) and ours is not function else [""]:
            pair = (getattr(side, method) if method else side for side in (function, ours))
            wanted, got = ({*inspect.signature(side).parameters} for side in pair)
            assert wanted <= got, name


@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("options", [{}, {"k": 20}, {"k": "max_bin_count"}, {"avg_of_avgs": True}], ids=str)
def test_global_tester(splits, options):
    # r_precision is left out where k is below R: the peer divides by k instead of R there.
    metrics = KNN_METRICS[:-1] if options.get("k") == 20 else KNN_METRICS
    ours = AccuracyCalculator(metrics, **options)
    expected = their_calculator(metrics, **options)
    got = run_tester(GlobalEmbeddingSpaceTester, ours, [(q, list(r)) for q, r in SPLITS[splits]])
    wanted = run_tester(GlobalEmbeddingSpaceTester, expected, [(q, list(r)) for q, r in SPLITS[splits]])
    assert got.keys() == wanted.keys() and got == pytest.approx(wanted, abs=1e-6)
    assert {type(value) for value in got.values()} == {float, int}


def test_everything_with_the_clusters_of_faiss():
    metrics = ("AMI", "NMI", *KNN_METRICS)
    ours = AccuracyCalculator(kmeans_func=FaissKMeans())
    got = run_tester(GlobalEmbeddingSpaceTester, ours, [("val", ["val"])], 0)
    wanted = run_tester(GlobalEmbeddingSpaceTester, their_calculator(), [("val", ["val"])], 0)
    assert {f"val/{name}_level0" for name in metrics} < got.keys() and got == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("tester", [GlobalTwoStreamEmbeddingSpaceTester, WithSameParentLabelTester])
def test_other_testers(tester):
    pixels, labels = digits(0, 500)
    pairs = {"val": TensorDataset(pixels, pixels + torch.randn_like(pixels), labels[:, 0])}
    datasets = pairs if tester is GlobalTwoStreamEmbeddingSpaceTester else None
    calculators = AccuracyCalculator(KNN_METRICS), their_calculator(KNN_METRICS)
    got, wanted = (run_tester(tester, calculator, [("val", ["val"])], 0, datasets) for calculator in calculators)
    assert got == pytest.approx(wanted, abs=1e-6) and len(got) == 6


@pytest.mark.parametrize("distance", [SNRDistance(), CosineSimilarity()], ids=["snr", "cosine"])
@pytest.mark.parametrize("splits", SPLITS)
def test_their_searches_in_our_calculator(distance, splits):
    metrics = KNN_METRICS[:-1]
    got, wanted = (
        run_tester(GlobalEmbeddingSpaceTester, calculator, [(q, list(r)) for q, r in SPLITS[splits]])
        for calculator in (
            AccuracyCalculator(metrics, k=30, knn_func=CustomKNN(distance)),
            their_calculator(metrics, k=30, knn_func=CustomKNN(distance)),
        )
    )
    assert got == pytest.approx(wanted, abs=1e-6)


def test_searches_and_clusters_equal_theirs():
    faiss = pytest.importorskip("faiss")
    pixels, labels = digits(0, 300)
    pixels += torch.rand_like(pixels)  # no ties
    for name, arguments in {
        "FaissKNN": [(), (True, True, faiss.IndexFlatIP)],
        "CustomKNN": [(SNRDistance(),), (CosineSimilarity(),), (CosineSimilarity(), 32)],
    }.items():
        for of_class in arguments:
            got, wanted = (
                getattr(module, name)(*of_class)(pixels, 5, pixels, ref_includes_query=True)
                for module in (compat, inference)
            )
            torch.testing.assert_close(got[0], wanted[0], rtol=1e-5, atol=1e-5)
            assert torch.equal(got[1], wanted[1])
    got, wanted = (module.FaissKMeans(seed=3)(pixels, nmb_clusters=10) for module in (compat, inference))
    assert torch.equal(got, wanted)
    got = AccuracyCalculator(KNN_METRICS, k=250, knn_func=FaissKNN()).get_accuracy(pixels, labels[:, 0])
    assert got == pytest.approx(AccuracyCalculator(KNN_METRICS, k=250).get_accuracy(pixels, labels[:, 0]), abs=1e-6)


@pytest.mark.parametrize("per_class", [False, True])
def test_return_per_class_and_helpers(per_class):
    pixels, labels = digits(0, 200)
    labels = labels[:, 0]
    labels[7] = 50  # lone
    ours = AccuracyCalculator(KNN_METRICS, return_per_class=per_class)
    expected = their_calculator(KNN_METRICS, return_per_class=per_class)
    got, wanted = (calculator.get_accuracy(pixels, labels) for calculator in (ours, expected))
    for name in KNN_METRICS:
        assert got[name] == pytest.approx(wanted[name], abs=1e-6)

    indices = TorchKNN().indices(pixels, 199, pixels, True)
    knn_labels, columns = labels[indices], labels[:, None]
    counts = accuracy_calculator.get_label_match_counts(labels, labels, accuracy_calculator.EQUALITY)
    for ours, expected in zip(counts, theirs.get_label_match_counts(labels, labels, theirs.EQUALITY), strict=True):
        assert torch.equal(ours, expected)
    lone = accuracy_calculator.get_lone_query_labels(labels, counts, True, accuracy_calculator.EQUALITY)
    for ours, expected in zip(lone, theirs.get_lone_query_labels(labels, counts, True, theirs.EQUALITY), strict=True):
        assert torch.equal(ours, expected)
    mask = lone[1]
    knn_labels, columns = knn_labels[mask], columns[mask]
    rest = (False, per_class, torch.eq)
    for call in (
        lambda helpers: helpers.precision_at_k(knn_labels, columns, 7, *rest),
        lambda helpers: helpers.r_precision(knn_labels, columns, True, counts, *rest),
        lambda helpers: helpers.mean_average_precision(knn_labels, columns, True, counts, *rest),
        lambda helpers: helpers.mean_average_precision(knn_labels, columns, True, counts, *rest, at_r=True),
        lambda helpers: helpers.mean_reciprocal_rank(knn_labels, columns, *rest),
    ):
        assert call(accuracy_calculator) == pytest.approx(call(theirs), abs=1e-6)
