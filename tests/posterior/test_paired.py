# ruff: noqa: E501 (messages stand in one piece)
import math

import numpy as np
import pytest
import torch
from known_statistics import KNOWN
from posterior_oracle import log_gamma, normalised

from tensormetrics.posterior import (
    PairedItems,
    PosteriorWarning,
    Study,
    get_metric,
    sample_confusion_matrices,
    sample_metrics,
    sample_paired_matrices,
)
from tensormetrics.uncertainty.engine.philox import philox4x32, philox_key

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


def study(**options):
    found = Study(0, metrics={"acc": {"aggregation": "fe"}, "f1": {}}, **options)
    for name, labels in ("a", A), ("b", B):
        found.add_experiment(name, None, 0, 0, TRUTH, labels, items="test")
    return found


def test_the_prevalence_of_groups_has_the_spread_of_their_number(device):
    """20 groups of two items, 12 of the first class: Dirichlet(12, 8), however many items a group has."""
    groups = torch.arange(20).repeat_interleave(2)
    truth = (groups >= 12).long()
    items = pair(truth, truth, C=2, device=device)._replace(groups=groups.to(device))
    first = sample_paired_matrices(items, 2, 20_000, **ZEROS, dtype=torch.float64)[:, 0, 0].sum(-1).cpu()
    variance = 0.6 * 0.4 / 21
    fourth = (first - first.mean()).pow(4).mean()
    assert abs(first.mean() - 0.6) <= 5 * math.sqrt(variance / len(first))
    assert abs(first.var() - variance) <= 5 * math.sqrt((fourth - variance**2) / len(first))


def test_known_draws(device):
    known = KNOWN["paired"]
    items = pair(TRUTH, A, B, C=2, device=device)
    matrices = sample_paired_matrices(items, 2, 40_000, **ZEROS, dtype=torch.float64)
    accuracy = matrices.diagonal(dim1=-2, dim2=-1).sum(-1)
    expected = [known["first_draws_acc_a"], known["first_draws_acc_b"]]
    torch.testing.assert_close(accuracy[:4].T.cpu(), torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)
    d = (accuracy[:, 0] - accuracy[:, 1]).cpu()
    mean, variance = known["mean_difference_acc"], known["var_difference_acc"]
    assert abs(d.mean() - mean) <= 5 * math.sqrt(variance / len(d))
    fourth = (d - d.mean()).pow(4).mean()
    assert abs(d.var() - variance) <= 5 * math.sqrt((fourth - variance**2) / len(d))


def test_one_sample_by_hand(device):
    items = three_classes()
    sample, prior = 2**32 + 5, torch.tensor([[1, 0.5, 0.1], [2, 0, 3], [0, 0.3, 4]], dtype=torch.float64)
    options = {"prevalence_prior": 0, "confusion_prior": prior, "start": sample, "dtype": torch.float64, "seed": 3}
    found = sample_paired_matrices(PairedItems("test", items.cells.to(device)), 3, 1, **options)
    weights = []
    for block in range(13):
        words = philox4x32((5, block, 0, 1), philox_key(3, "items:test", "posterior", "items"))
        weights += [-math.log((word + 0.5) / 2**32) for word in words]
    for e in range(2):
        cells = np.zeros((3, 3))
        for n, cell in enumerate(items.cells[e].tolist()):
            cells[cell // 3, cell % 3] += weights[n]
        key = philox_key(3, str(e), "posterior", "prior-mass")
        cells += [[math.exp(log_gamma(float(prior[i, j]), key, 4 * i + j, sample)) for j in range(3)] for i in range(3)]
        key = philox_key(3, "items:test", "posterior", "prevalence")
        rows = (items.cells[e] // 3).bincount(minlength=3).tolist()
        share = normalised([log_gamma(float(rows[i]), key, i, sample) for i in range(3)])
        expected = np.array(share)[:, None] * cells / cells.sum(1, keepdims=True)
        np.testing.assert_allclose(found[0, e].cpu().numpy(), expected, rtol=1e-11)


@pytest.mark.parametrize("prior", ["bayes", "jeffreys", "perks"])
def test_each_experiment_keeps_its_posterior(prior):
    items = three_classes()
    counts = torch.stack([cells.bincount(minlength=9).view(3, 3) for cells in items.cells])
    priors = {"prevalence_prior": prior, "confusion_prior": prior}
    found = sample_paired_matrices(items, 3, 20_000, **priors, dtype=torch.float64)
    concentration = counts + {"bayes": 1.0, "jeffreys": 0.5, "perks": 1 / 3}[prior]
    total = concentration.sum(-1, keepdim=True)
    mean = concentration / total
    variance = mean * (1 - mean) / (total + 1)
    rows = found / found.sum(-1, keepdim=True)
    assert ((rows.mean(0) - mean).abs() <= 5 * (variance / len(rows)).sqrt()).all()
    spread = ((rows - mean).pow(4).mean(0) - variance**2) / len(rows)
    assert ((rows.var(0) - variance).abs() <= 5 * spread.sqrt()).all()

    stats = pytest.importorskip("scipy.stats")
    alone = sample_confusion_matrices(counts, 20_000, **priors, seed=1)
    for get in (lambda m: m[:, 0, 1, 1], lambda m: m[:, 1].diagonal(dim1=-2, dim2=-1).sum(-1), lambda m: m[:, 0, 2, 0]):
        assert stats.ks_2samp(get(found).numpy(), get(alone).numpy()).pvalue > 1e-3


def test_what_is_shared(device):
    items = pair(TRUTH, A, B, A, C=2, device=device)
    found = sample_paired_matrices(items, 2, 100, **ZEROS)
    assert torch.equal(found[:, 0], found[:, 2]) and not torch.equal(found[:, 0], found[:, 1])
    assert torch.allclose(found[:, 0].sum(-1), found[:, 1].sum(-1), rtol=1e-6)  # the prevalence
    alone = sample_paired_matrices(PairedItems("test", items.cells[1]), 2, 100, **ZEROS)
    assert torch.equal(alone[:, 0], found[:, 1])
    with_prior = sample_paired_matrices(items, 2, 100, **ONES)
    assert not torch.equal(with_prior[:, 0], with_prior[:, 2])  # the prior's mass is each experiment's own
    perfect = sample_paired_matrices(pair(TRUTH, TRUTH, C=2, device=device), 2, 10, **ZEROS)
    assert (perfect[..., 0, 1] == 0).all() and (perfect[..., 1, 0] == 0).all()
    assert sample_paired_matrices(items, 2, 0).shape == (0, 3, 2, 2)


def test_parts_join():
    items = three_classes()
    whole = sample_paired_matrices(items, 3, 150, **ONES)
    parts = [sample_paired_matrices(items, 3, n, **ONES, start=start) for start, n in ((0, 1), (1, 70), (71, 79))]
    assert torch.equal(torch.cat(parts), whole)


def test_metrics_are_those_of_the_matrices():
    items = three_classes()
    counts = torch.stack([cells.bincount(minlength=9).view(3, 3) for cells in items.cells])
    options = {"items": items, **ONES}
    found = sample_metrics(counts, METRICS, 300, **options, dtype=torch.float64)
    matrices = sample_paired_matrices(items, 3, 300, **ONES, dtype=torch.float64)
    for values, name in zip(found, METRICS, strict=True):
        torch.testing.assert_close(values, get_metric(name)(matrices), rtol=1e-12, atol=0)
    for name, values in zip(METRICS, sample_metrics(counts, METRICS, 300, **options), strict=True):
        assert values.dtype == torch.float32
        for limit in 1, 20_000:
            (one,) = sample_metrics(counts, name, 300, **options, memory_limit=limit)
            assert torch.equal(one, values), name
    for method in "prior", "random", "input":
        one, other = (sample_metrics(counts, "acc", 9, method=method, **ONES, items=i)[0] for i in (items, None))
        assert torch.equal(one, other)


def test_comparisons_of_a_study(device, tmp_path):
    found = study(device=device)
    paired = found.get_pairwise_comparison("acc", experiment_a="a", experiment_b="b")
    assert paired.paired is True and "Both were evaluated on the same items." in paired.template_sentence()
    items = pair(TRUTH, A, B, C=2, device=device)
    matrices = sample_paired_matrices(items, 2, 10_000, names=["a/a", "b/b"], **ZEROS)
    accuracy = matrices.double().diagonal(dim1=-2, dim2=-1).sum(-1)
    assert torch.allclose(paired.diff_dist.double(), accuracy[:, 0] - accuracy[:, 1], atol=1e-6)
    found.add_experiment("c", None, 0, 0, TRUTH, B, items="other")
    assert found.get_pairwise_comparison("acc", experiment_a="a", experiment_b="c").paired is False
    assert found.get_pairwise_comparison("acc", experiment_a="a", experiment_b="b/aggregated").paired is False
    assert torch.equal(
        found.get_pairwise_comparison("acc", experiment_a="a", experiment_b="b").diff_dist, paired.diff_dist
    )
    assert found.compare_all_pairs("acc").paired == [True, False, False]
    assert found.get_listwise_comparison_result("acc").paired is True
    assert found.get_listwise_comparison_result("acc", groups=True).paired is False
    found.save(tmp_path / "study.json")
    again = Study.load(tmp_path / "study.json", device=device)
    for name in "a", "b", "c":
        assert torch.equal(again.get_metric_samples("f1", name).values, found.get_metric_samples("f1", name).values)
    assert again.compare_all_pairs("acc").paired == [True, False, False]
    alone = Study(0, metrics={"acc": {}}, device=device)
    alone.add_experiment("a", None, 0, 0, TRUTH, A)
    assert not torch.equal(alone.get_metric_samples("acc", "a").values, found.get_metric_samples("acc", "a").values)


def same_truth(first=None, second=None, truth=TRUTH):
    found = Study(0, metrics={"acc": {}})
    found.add_experiment("a", None, 0, 0, TRUTH, A, items=first)
    found.add_experiment("b", None, 0, 0, truth, B, items=second)
    return found


def test_equal_truths_without_items_are_pointed_out():
    pair = {"experiment_a": "a", "experiment_b": "b"}
    message = (
        "'a/a' and 'b/b' have the same y_true{}, but are compared as if their items were different ones; write "
        "items='test' in add_experiment of both to compare them item by item, or items=False if their items do differ"
    )
    for items in (None, None), ("test", None):
        unsure = same_truth(*items)
        for compare in (
            lambda s: s.get_pairwise_comparison("acc", **pair),
            lambda s: s.report_pairwise_comparison("acc", **pair),
            lambda s: s.report_pairwise_comparisons("acc"),
            lambda s: s.report_listwise_comparison("acc"),
        ):
            with pytest.warns(PosteriorWarning) as told:
                compare(unsure)
            assert [str(w.message) for w in told] == [message.format("")]
    unsure.add_experiment("c", None, 0, 0, TRUTH, A)
    with pytest.warns(PosteriorWarning) as told:
        assert unsure.compare_all_pairs("acc").paired == [False] * 3
    assert [str(w.message) for w in told] == [message.format(" (so have 2 other pairs)")]


def test_what_is_said_of_the_items_is_believed():
    other = TRUTH.clone()
    other[:2] = other[:2].flip(0) if other[0] != other[1] else 1 - other[:2]
    for certain in same_truth("x", "x"), same_truth("x", "y"), same_truth(False, None), same_truth(truth=other):
        certain.report_pairwise_comparisons("acc")  # without a warning
    assert same_truth(False, False).to_dict() == same_truth().to_dict()  # of the matrices


def test_labels_of_a_study_come_back():
    found = Study(0, metrics={"acc": {}})
    words = np.array(["cat", "dog"])
    found.add_experiment("a", None, 1, 1, words[TRUTH], words[A], items="x", labels=["dog", "cat"])
    found.add_experiment("b", None, 1, 1, TRUTH.tolist(), [2, *B[1:].tolist()], items="y", num_classes=3)
    again = Study.from_dict(found.to_dict())
    assert again.to_dict() == found.to_dict() and again["b"].num_classes == 3
    assert torch.equal(again["a/a"].items.cells, found["a/a"].items.cells)
    assert found["a/a"].confusion_matrix[0, 0] == ((TRUTH == 1) & (A == 1)).sum()


ERRORS = [
    ({"confusion_matrix": [[1, 2], [3, 4]], "items": "test"}, ValueError, "experiment 'x/x': got items with confusion_matrix, wanted y_true and y_pred"),
    ({"items": "test"}, ValueError, "experiment 'x/x': got items with nothing, wanted y_true and y_pred"),
    ({"y_true": 1 - TRUTH, "y_pred": A, "items": "test"}, ValueError, "experiment 'x/x': its y_true or its classes are not those of 'a/a', which has the items 'test' too; give both the same y_true and the same labels"),
    ({"y_true": TRUTH, "y_pred": A, "items": "test", "num_classes": 3, "confusion_prior": 1}, ValueError, "experiment 'x/x': its y_true or its classes are not those of 'a/a', which has the items 'test' too; give both the same y_true and the same labels"),
    ({"y_true": TRUTH, "y_pred": A, "items": 3}, TypeError, "experiment 'x/x': got items=3, wanted a string"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "error", "message"), ERRORS)
def test_items_that_are_refused(given, error, message):
    found = study()
    before = found.to_dict()
    with pytest.raises(error) as caught:
        found.add_experiment("x", **{"prevalence_prior": 0, "confusion_prior": 0, **given})
    assert str(caught.value) == message and found.to_dict() == before
    with pytest.raises(ValueError, match=r"^items.cells: got shape \(2, 2, 2\), wanted \(E, N\)"):
        sample_paired_matrices(PairedItems("test", torch.zeros(2, 2, 2, dtype=torch.int64)), 2, 5)
