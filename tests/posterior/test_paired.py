# ruff: noqa: E501 (messages are not split)
import math

import numpy as np
import pytest
import torch
from known_statistics import KNOWN
from posterior_oracle import log_gamma, normalized
from raising import raises

from tensormetrics.core.numbers.philox import philox4x32, philox_key
from tensormetrics.posterior import (
    PairedItems,
    PosteriorWarning,
    Study,
    get_metric,
    sample_confusion_matrices,
    sample_metrics,
    sample_paired_matrices,
)

K = torch.arange(1, 41)
TRUTH = 7 * K // 3 % 2
A = torch.where((K.double() * 0.6180339887498949).frac() < 0.8, TRUTH, 1 - TRUTH)
B = torch.where((K.double() * 0.7548776662466927).frac() < 0.7, TRUTH, 1 - TRUTH)
ONES = {"prevalence_prior": 1, "confusion_prior": 1}
ZEROS = {"prevalence_prior": 0, "confusion_prior": 0}
METRICS = ["acc", "ppv", "tnr@macro", "rmse", "p_pred_given_condition"]


def pair(truth, *predictions, C, device="cpu"):
    return PairedItems("test", torch.stack([truth * C + pred for pred in predictions]).to(device))


def three_classes():
    generator = torch.Generator().manual_seed(0)
    truth, a, b = torch.randint(0, 3, (3, 50), generator=generator)
    return pair(truth, torch.where(a == 2, truth, a), torch.where(b > 0, truth, b), C=3)


def make_study(**options):
    study = Study(0, metrics={"acc": {"aggregation": "fe"}, "f1": {}}, **options)
    for name, labels in ("a", A), ("b", B):
        study.add_experiment(name, None, 0, 0, TRUTH, labels, items="test")
    return study


def test_grouped_items_prevalence_has_variance_of_groups(device):
    """20 groups of two items, 12 of the first class: Dirichlet(12, 8), however many items a group has."""
    groups = torch.arange(20).repeat_interleave(2)
    truth = (groups >= 12).long()
    items = pair(truth, truth, C=2, device=device)._replace(groups=groups.to(device))
    first = sample_paired_matrices(items, 2, 20_000, **ZEROS, dtype=torch.float64)[:, 0, 0].sum(-1).cpu()
    variance = 0.6 * 0.4 / 21
    fourth = (first - first.mean()).pow(4).mean()
    assert abs(first.mean() - 0.6) <= 5 * math.sqrt(variance / len(first))
    assert abs(first.var() - variance) <= 5 * math.sqrt((fourth - variance**2) / len(first))


def test_paired_matrices_golden_values_match(device):
    golden = KNOWN["paired"]
    items = pair(TRUTH, A, B, C=2, device=device)
    matrices = sample_paired_matrices(items, 2, 40_000, **ZEROS, dtype=torch.float64)
    accuracy = matrices.diagonal(dim1=-2, dim2=-1).sum(-1)
    expected = [golden["first_draws_acc_a"], golden["first_draws_acc_b"]]
    torch.testing.assert_close(accuracy[:4].T.cpu(), torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)
    d = (accuracy[:, 0] - accuracy[:, 1]).cpu()
    mean, variance = golden["mean_difference_acc"], golden["var_difference_acc"]
    assert abs(d.mean() - mean) <= 5 * math.sqrt(variance / len(d))
    fourth = (d - d.mean()).pow(4).mean()
    assert abs(d.var() - variance) <= 5 * math.sqrt((fourth - variance**2) / len(d))


def test_paired_matrices_sample_equals_loop(device):
    items = three_classes()
    sample, prior = 2**32 + 5, torch.tensor([[1, 0.5, 0.1], [2, 0, 3], [0, 0.3, 4]], dtype=torch.float64)
    options = {"prevalence_prior": 0, "confusion_prior": prior, "start": sample, "dtype": torch.float64, "seed": 3}
    matrices = sample_paired_matrices(PairedItems("test", items.cells.to(device)), 3, 1, **options)
    weights = []
    for block in range(13):
        random_bits = philox4x32((5, block, 0, 1), philox_key(3, "items:test", "posterior", "items"))
        weights += [-math.log((bits + 0.5) / 2**32) for bits in random_bits]
    for e in range(2):
        cells = np.zeros((3, 3))
        for n, cell in enumerate(items.cells[e].tolist()):
            cells[cell // 3, cell % 3] += weights[n]
        key = philox_key(3, str(e), "posterior", "prior-mass")
        cells += [[math.exp(log_gamma(float(prior[i, j]), key, 4 * i + j, sample)) for j in range(3)] for i in range(3)]
        key = philox_key(3, "items:test", "posterior", "prevalence")
        rows = (items.cells[e] // 3).bincount(minlength=3).tolist()
        prevalence = normalized([log_gamma(float(rows[i]), key, i, sample) for i in range(3)])
        expected = np.array(prevalence)[:, None] * cells / cells.sum(1, keepdims=True)
        np.testing.assert_allclose(matrices[0, e].cpu().numpy(), expected, rtol=1e-11)


@pytest.mark.parametrize("prior", ["bayes", "jeffreys", "perks"])
def test_paired_matrices_keep_posterior_of_experiment(prior):
    items = three_classes()
    counts = torch.stack([cells.bincount(minlength=9).view(3, 3) for cells in items.cells])
    priors = {"prevalence_prior": prior, "confusion_prior": prior}
    matrices = sample_paired_matrices(items, 3, 20_000, **priors, dtype=torch.float64)
    concentration = counts + {"bayes": 1.0, "jeffreys": 0.5, "perks": 1 / 3}[prior]
    total = concentration.sum(-1, keepdim=True)
    mean = concentration / total
    variance = mean * (1 - mean) / (total + 1)
    rows = matrices / matrices.sum(-1, keepdim=True)
    assert ((rows.mean(0) - mean).abs() <= 5 * (variance / len(rows)).sqrt()).all()
    variance_of_variance = ((rows - mean).pow(4).mean(0) - variance**2) / len(rows)
    assert ((rows.var(0) - variance).abs() <= 5 * variance_of_variance.sqrt()).all()

    stats = pytest.importorskip("scipy.stats")
    unpaired = sample_confusion_matrices(counts, 20_000, **priors, seed=1)
    for get in (lambda m: m[:, 0, 1, 1], lambda m: m[:, 1].diagonal(dim1=-2, dim2=-1).sum(-1), lambda m: m[:, 0, 2, 0]):
        assert stats.ks_2samp(get(matrices).numpy(), get(unpaired).numpy()).pvalue > 1e-3


def test_paired_matrices_have_common_prevalence_and_weights(device):
    items = pair(TRUTH, A, B, A, C=2, device=device)
    matrices = sample_paired_matrices(items, 2, 100, **ZEROS)
    assert torch.equal(matrices[:, 0], matrices[:, 2]) and not torch.equal(matrices[:, 0], matrices[:, 1])
    assert torch.allclose(matrices[:, 0].sum(-1), matrices[:, 1].sum(-1), rtol=1e-6)  # the prevalence
    single = sample_paired_matrices(PairedItems("test", items.cells[1]), 2, 100, **ZEROS)
    assert torch.equal(single[:, 0], matrices[:, 1])
    with_prior = sample_paired_matrices(items, 2, 100, **ONES)
    assert not torch.equal(with_prior[:, 0], with_prior[:, 2])  # the mass of the prior differs by experiment
    perfect = sample_paired_matrices(pair(TRUTH, TRUTH, C=2, device=device), 2, 10, **ZEROS)
    assert (perfect[..., 0, 1] == 0).all() and (perfect[..., 1, 0] == 0).all()
    assert sample_paired_matrices(items, 2, 0).shape == (0, 3, 2, 2)


def test_paired_matrices_parts_equal_full_call():
    items = three_classes()
    full = sample_paired_matrices(items, 3, 150, **ONES)
    parts = [sample_paired_matrices(items, 3, n, **ONES, start=start) for start, n in ((0, 1), (1, 70), (71, 79))]
    assert torch.equal(torch.cat(parts), full)


def test_paired_metrics_equal_metrics_of_matrices():
    items = three_classes()
    counts = torch.stack([cells.bincount(minlength=9).view(3, 3) for cells in items.cells])
    options = {"items": items, **ONES}
    samples = sample_metrics(counts, METRICS, 70, **options, dtype=torch.float64)
    matrices = sample_paired_matrices(items, 3, 70, **ONES, dtype=torch.float64)
    for values, name in zip(samples, METRICS, strict=True):
        torch.testing.assert_close(values, get_metric(name)(matrices), rtol=1e-12, atol=0)
    for name, values in zip(METRICS, sample_metrics(counts, METRICS, 70, **options), strict=True):
        assert values.dtype == torch.float32
        for limit in 1, 5_000:
            (first,) = sample_metrics(counts, name, 70, **options, memory_limit=limit)
            assert torch.equal(first, values), name
    for method in "prior", "random", "input":
        first, second = (sample_metrics(counts, "acc", 9, method=method, **ONES, items=i)[0] for i in (items, None))
        assert torch.equal(first, second)


def test_study_comparisons_on_equal_items_are_paired(device, tmp_path):
    study = make_study(device=device)
    difference = study.column("acc", None, "a") - study.column("acc", None, "b")
    items = pair(TRUTH, A, B, C=2, device=device)
    matrices = sample_paired_matrices(items, 2, 10_000, names=["a/a", "b/b"], **ZEROS)
    accuracy = matrices.double().diagonal(dim1=-2, dim2=-1).sum(-1)
    assert torch.allclose(difference.double(), accuracy[:, 0] - accuracy[:, 1], atol=1e-6)
    study.add_experiment("c", None, 0, 0, TRUTH, B, items="other")
    assert torch.equal(study.column("acc", None, "a") - study.column("acc", None, "b"), difference)
    tests = [comparison.test for comparison, *_ in study.compare("acc").cells]
    assert tests[0] != "draws" and tests[1:] == ["draws"] * 2
    study.save(tmp_path / "study.json")
    again = Study.load(tmp_path / "study.json", device=device)
    for name in "a", "b", "c":
        assert torch.equal(again.samples("f1", name), study.samples("f1", name))
    assert [comparison.test for comparison, *_ in again.compare("acc").cells] == tests
    single = Study(0, metrics={"acc": {}}, device=device)
    single.add_experiment("a", None, 0, 0, TRUTH, A)
    assert not torch.equal(single.samples("acc", "a"), study.samples("acc", "a"))


def same_truth(first=None, second=None, truth=TRUTH):
    study = Study(0, metrics={"acc": {}})
    study.add_experiment("a", None, 0, 0, TRUTH, A, items=first)
    study.add_experiment("b", None, 0, 0, truth, B, items=second)
    return study


def test_study_equal_truths_without_items_warn():
    message = (
        "'a/a' and 'b/b' have the same y_true{}, but are compared as if their items were different ones; write "
        "items='test' in add_experiment of both to compare them item by item, or items=False if their items do differ"
    )
    for items in (None, None), ("test", None):
        unsure = same_truth(*items)
        with pytest.warns(PosteriorWarning) as caught:
            unsure.compare("acc")
        assert [str(w.message) for w in caught] == [message.format("")]
    unsure.add_experiment("c", None, 0, 0, TRUTH, A)
    with pytest.warns(PosteriorWarning) as caught:
        unsure.compare("acc")
    assert [str(w.message) for w in caught] == [message.format(" (so have 2 other pairs)")]


def test_study_explicit_items_give_no_warning():
    other = TRUTH.clone()
    other[:2] = other[:2].flip(0) if other[0] != other[1] else 1 - other[:2]
    for certain in same_truth("x", "x"), same_truth("x", "y"), same_truth(False, None), same_truth(truth=other):
        certain.compare("acc")  # without a warning
    assert same_truth(False, False).to_dict() == same_truth().to_dict()  # of the matrices


def test_study_labels_survive_to_dict():
    study = Study(0, metrics={"acc": {}})
    class_names = np.array(["cat", "dog"])
    study.add_experiment("a", None, 1, 1, class_names[TRUTH], class_names[A], items="x", labels=["dog", "cat"])
    study.add_experiment("b", None, 1, 1, TRUTH.tolist(), [2, *B[1:].tolist()], items="y", num_classes=3)
    again = Study.from_dict(study.to_dict())
    assert again.to_dict() == study.to_dict() and again["b"].num_classes == 3
    assert torch.equal(again["a/a"].items.cells, study["a/a"].items.cells)
    assert study["a/a"].confusion_matrix[0, 0] == ((TRUTH == 1) & (A == 1)).sum()


ERRORS = [
    ({"confusion_matrix": [[1, 2], [3, 4]], "items": "test"}, ValueError, "experiment 'x/x': got items with confusion_matrix, wanted y_true and y_pred"),
    ({"items": "test"}, ValueError, "experiment 'x/x': got items with nothing, wanted y_true and y_pred"),
    ({"y_true": 1 - TRUTH, "y_pred": A, "items": "test"}, ValueError, "experiment 'x/x': its y_true or its classes are not those of 'a/a', which has the items 'test' too; give both the same y_true and the same labels"),
    ({"y_true": TRUTH, "y_pred": A, "items": "test", "num_classes": 3, "confusion_prior": 1}, ValueError, "experiment 'x/x': its y_true or its classes are not those of 'a/a', which has the items 'test' too; give both the same y_true and the same labels"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "error", "message"), ERRORS)
def test_study_invalid_items_raise(arguments, error, message):
    study = make_study()
    before = study.to_dict()
    with raises(error, message):
        study.add_experiment("x", **{"prevalence_prior": 0, "confusion_prior": 0, **arguments})
    assert study.to_dict() == before


INVALID_ITEMS = [
    ([0, 1], None, TypeError, "items.cells: got a list, wanted a tensor"),
    (torch.tensor([0.0, 1.0]), None, ValueError, "items.cells: got torch.float32, wanted an integer dtype"),
    (torch.zeros(2, 2, 2).long(), None, ValueError, "items.cells: got shape (2, 2, 2), wanted (E, N)"),
    (torch.tensor([0, 4]), None, ValueError, "items.cells: got 0 to 4, wanted 0 to 3 for 2 classes"),
    (torch.tensor([-1, 3]), torch.tensor([0, 0]), ValueError, "items.cells: got -1 to 3, wanted 0 to 3 for 2 classes"),
    (torch.tensor([0, 1]), torch.tensor([0]), ValueError, "items.groups: got shape (1,), wanted (2,)"),
    (torch.tensor([0, 1]), ["a", "b"], TypeError, "items.groups: got a list, wanted a tensor"),
]


@pytest.mark.parametrize(("cells", "groups", "error", "message"), INVALID_ITEMS)
def test_paired_matrices_invalid_items_raise(cells, groups, error, message):
    with pytest.raises(error) as caught:
        sample_paired_matrices(PairedItems("test", cells, groups), 2, 5)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("grouped", [False, True])
def test_paired_matrices_take_arrays_and_small_integers(grouped, device):
    cells, groups = torch.tensor([[0, 1, 3, 3], [0, 0, 3, 2]]), torch.tensor([0, 0, 1, 2]) if grouped else None
    expected = sample_paired_matrices(PairedItems("test", cells, groups), 2, 5)
    small = PairedItems("test", cells.byte().to(device), None if groups is None else groups.short().to(device))
    arrays = PairedItems("test", cells.numpy(), None if groups is None else groups.numpy())
    assert torch.equal(sample_paired_matrices(small, 2, 5).cpu(), expected)
    assert torch.equal(sample_paired_matrices(arrays, 2, 5), expected)
