"""Accuracies of recovering classes from vectors against scikit-learn's classifiers, and coverage of intervals."""

import math

import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics import compare
from tensormetrics.association import LEACE, ResidualBias
from tensormetrics.association.functional import residual_bias
from tensormetrics.association.metrics import _linear_probe
from tensormetrics.association.metrics import residual_bias as module
from tensormetrics.association.resampling.folds import deal_words
from tensormetrics.uncertainty import UncertaintyWarning


def rows_of_words(words=60, dims=6, classes=3, seed=0, max_rows=4):
    """Draw clusters of words with one to `max_rows` rows each; some words have the label of another cluster."""
    generator = torch.Generator().manual_seed(seed)
    cluster = torch.randperm(words, generator=generator) % classes
    centers = 6 * torch.randn(classes, dims, generator=generator, dtype=torch.float64)
    counts = torch.randint(1, max_rows + 1, (words,), generator=generator)
    word = torch.arange(words).repeat_interleave(counts)
    labels = torch.where(torch.rand(words, generator=generator) < 0.2, (cluster + 1) % classes, cluster)
    vectors = torch.randn(len(word), dims, generator=generator, dtype=torch.float64) + centers[cluster[word]]
    order = torch.randperm(len(word), generator=generator)
    return vectors[order], labels[word][order], word[order]


def loop_of_classifiers(vectors, labels, words, folds, neighbors, C):
    """Score one fold after the other, rows weighted by one over the number of rows of their word."""
    linear_model, cluster = pytest.importorskip("sklearn.linear_model"), pytest.importorskip("sklearn.cluster")
    fold = (deal_words(labels, words, 0)[0] % folds).numpy()
    x, y, words = vectors.numpy(), labels.numpy(), words.numpy()
    weights = 1 / np.bincount(words)[words]
    classes = y.max() + 1
    mean = np.average(x, axis=0, weights=weights)
    scaled = (x - mean) / np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weights).mean())
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    is_correct = np.zeros((4, len(x)))

    def largest(rows, weight):
        return np.bincount(y[rows], weight[rows], classes).round(9).argmax()

    for k in range(folds):
        train = np.flatnonzero(fold != k)
        margins = [
            linear_model.LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, max_iter=1000)
            .fit(scaled[train], y[train] == c, weights[train])
            .decision_function(scaled)
            for c in range(classes)
        ]
        means = cluster.KMeans(classes, n_init=20, random_state=0).fit(x[train], sample_weight=weights[train])
        label_of_cluster = [largest(train[means.labels_ == c], weights) for c in range(classes)]
        for i in np.flatnonzero(fold == k):
            votes, total = np.zeros(classes), 0.0
            for j in train[np.argsort(-unit[train] @ unit[i], kind="stable")]:
                votes[y[j]] += min(weights[j], neighbors - total)
                total = min(total + weights[j], neighbors)
            is_correct[:, i] = [
                np.argmax([margin[i] for margin in margins]) == y[i],
                label_of_cluster[means.predict(x[i : i + 1])[0]] == y[i],
                votes.round(9).argmax() == y[i],
                largest(train, weights) == y[i],
            ]
    return np.average(is_correct, axis=1, weights=weights)


@pytest.mark.parametrize(("classes", "max_rows", "dims"), [(3, 1, 6), (3, 4, 6), (4, 3, 40)])
def test_residual_bias_equals_loop_of_classifiers(classes, max_rows, dims):
    rows = rows_of_words(60, dims, classes, max_rows=max_rows)
    accuracies = residual_bias(*rows, folds=4, neighbors=5, C=0.3)
    expected = loop_of_classifiers(*rows, 4, 5, 0.3)
    assert list(accuracies) == ["linear_probe", "k_means", "nearest_neighbors", "majority"]
    np.testing.assert_allclose(list(accuracies.values()), expected, atol=1e-12)
    assert 0.5 < expected[:3].min() and expected[:3].max() < 1


def test_residual_bias_scale_and_label_ids_change_nothing():
    vectors, labels, _ = rows_of_words(max_rows=1)
    torch.testing.assert_close(residual_bias(1e-4 * vectors, 7 * labels - 10**15), residual_bias(vectors, labels))


def test_residual_bias_of_layers_chunk_size_changes_nothing(monkeypatch):
    vectors, labels, words = rows_of_words()
    layers = [vectors, vectors @ torch.randn(6, 6, dtype=torch.float64), vectors.flip(-1) * 2]
    layers = torch.stack(layers).unsqueeze(1)
    batch = residual_bias(layers, labels, words)
    monkeypatch.setattr(_linear_probe, "CHUNK", 1)
    monkeypatch.setattr(module, "CHUNK", 1)
    torch.testing.assert_close(residual_bias(layers, labels, words), batch)


def test_residual_bias_depends_on_seed_of_folds():
    vectors, labels, _ = rows_of_words(200, classes=2, max_rows=1)
    noise = vectors + 8 * torch.randn(vectors.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert len({float(residual_bias(noise, labels, seed=seed)["linear_probe"]) for seed in range(5)}) > 1


def test_residual_bias_after_leace_persists_for_nonlinear_classifiers():
    """The classes differ in mean and radius, and LEACE removes the difference in mean (Gonen & Goldberg 2019)."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % 2
    radius = 1.0 + 2 * labels.unsqueeze(-1)
    points = torch.nn.functional.normalize(torch.randn(400, 2, generator=generator, dtype=torch.float64), dim=1)
    vectors = torch.cat([radius * points + 2 * labels.unsqueeze(-1), torch.ones(400, 1, dtype=torch.float64)], 1)
    method = LEACE().fit_tensors(vectors[:200], labels[:200])
    before, after = ResidualBias(), ResidualBias()
    before.update(vectors[200:], labels[200:])
    after.update(method(vectors[200:]), labels[200:])
    probe, left = before.interval()["linear_probe"], after.interval()
    assert probe.low > 0.6
    assert left["linear_probe"].low < 0.5 < left["linear_probe"].high
    assert left["nearest_neighbors"].low > 0.75
    difference = compare(before, after)["linear_probe"]
    assert difference.low > 0 and difference.p_value < 0.01


def test_residual_bias_of_words_that_leace_was_fitted_to_is_below_chance():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(100) % 2
    vectors = torch.randn(100, 10, generator=generator) + labels.unsqueeze(-1)
    same = residual_bias(LEACE().fit_tensors(vectors, labels)(vectors), labels)
    assert same["linear_probe"] < 0.35


def test_residual_bias_intervals_resample_words_and_contain_the_value():
    vectors, labels, words = rows_of_words(40, classes=2)
    metric, repeated = ResidualBias(), ResidualBias()
    metric.update(vectors, labels, groups=words)
    repeated.update(vectors.repeat(3, 1), labels.repeat(3), groups=words.repeat(3))
    value = residual_bias(vectors, labels, words)
    for name, estimate in metric.interval().items():
        assert estimate.groups == 40 and estimate.low <= estimate.value <= estimate.high
        torch.testing.assert_close(estimate.value, value[name])
        again = repeated.interval()[name]
        torch.testing.assert_close((again.low, again.high), (estimate.low, estimate.high))
    assert "linear_probe" in str(metric.table("before"))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_residual_bias_nonfinite_vector_makes_intervals_nan(value):
    vectors, labels, words = rows_of_words(40)
    vectors[5, 2] = value
    metric = ResidualBias()
    metric.update(vectors, labels, groups=words)
    assert all(accuracy.isnan() for accuracy in metric.compute().values())
    assert all(estimate.low.isnan() for estimate in metric.interval().values())


def test_residual_bias_single_words_and_classes_give_expected_accuracies():
    one_word = residual_bias(torch.ones(3, 2), torch.tensor([0, 1, 1]), ["a", "a", "a"])
    assert all(accuracy.isnan() for accuracy in one_word.values())
    metric = ResidualBias()
    metric.update(torch.ones(3, 2), torch.tensor([0, 1, 1]), groups=["a", "a", "a"])
    with pytest.warns(UncertaintyWarning, match="^one item: its spread cannot be known"):
        assert all(estimate.value.isnan() for estimate in metric.interval().values())
    one_class = residual_bias(torch.randn(6, 2), torch.ones(6).long())
    assert all(accuracy == 1 for accuracy in one_class.values())
    rare = residual_bias(torch.randn(31, 2), (torch.arange(31) == 7).long())  # training may lack the second class
    assert all(accuracy == pytest.approx(30 / 31) for accuracy in rare.values())
    singles = residual_bias(torch.randn(5, 2), torch.arange(5))  # no two words have the same class
    assert all(accuracy == 0 for accuracy in singles.values())


def test_residual_bias_invalid_arguments_raise():
    x, y = torch.randn(6, 2), torch.arange(6)
    with raises(ValueError, "labels: got shape (5,), wanted (6,), one for each row"):
        residual_bias(x, y[1:])
    with raises(ValueError, "labels: got torch.float32, wanted an integer dtype; write labels.long()"):
        ResidualBias().update(x, y.float())
    with raises(ValueError, "words: got shape (5,), wanted (6,)"):
        residual_bias(x, y, list("abcde"))


@pytest.mark.slow
@pytest.mark.parametrize(("words", "dims"), [(16, 5), (40, 10), (40, 100), (100, 20)])
def test_residual_bias_intervals_of_independent_labels_cover_chance(words, dims):
    """-s prints the fractions. Intervals of independent words would cover chance in .87 to .91 of the runs."""
    runs, coverage = 200, {}
    for run in range(runs):
        generator = torch.Generator().manual_seed(run)
        labels = torch.randint(0, 2, (words,), generator=generator)
        metric = ResidualBias(seed=run)
        metric.update(torch.randn(words, dims, generator=generator), labels)
        for name, estimate in metric.interval(replicates=400, seed=run).items():
            coverage[name] = coverage.get(name, 0) + bool(estimate.low <= 0.5 <= estimate.high) / runs
    print(words, dims, coverage)
    lower_limit = 0.95 - 3 * math.sqrt(0.95 * 0.05 / runs)
    assert {
        name: fraction for name, fraction in coverage.items() if name != "majority" and fraction < lower_limit
    } == {}


@pytest.mark.parametrize("num_words", [60, 1200])  # with the units of the jackknife, and more than it keeps
def test_residual_bias_interval_does_not_exceed_1(num_words):
    labels = torch.arange(num_words) % 2
    metric = ResidualBias()
    metric.update(torch.randn(num_words, 2, generator=torch.Generator().manual_seed(0)) + 5 * labels[:, None], labels)
    for name, estimate in metric.interval().items():
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1, name
    assert metric.compute()["linear_probe"] > 0.98
