"""LEACE and INLP against closed forms and loops in NumPy and scikit-learn."""

import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics.association import INLP, LEACE, WordEmbeddingModel
from tensormetrics.association.debias import leace
from tensormetrics.association.resampling.folds import deal_words


def labeled_rows(rows=300, dims=6, classes=2, seed=0):
    """Return correlated rows whose means depend on their class, and their labels."""
    random = np.random.default_rng(seed)
    labels = random.permutation(rows) % classes
    means = random.normal(size=(classes, dims))
    return random.normal(size=(rows, dims)) @ random.normal(size=(dims, dims)) + 5 + means[labels], labels


def numpy_leace(x, labels):
    """Return x - S^(1/2) U U' S^(-1/2) (x - mean), by the symmetric square root of the covariance matrix S."""
    mean, z = x.mean(0), np.eye(labels.max() + 1)[labels]
    covariance = np.cov(x.T)
    variances, axes = np.linalg.eigh(covariance)
    root = axes @ np.diag(np.sqrt(variances)) @ axes.T
    white = np.linalg.inv(root)
    u, s, _ = np.linalg.svd(white @ (x - mean).T @ (z - z.mean(0)) / (len(x) - 1))
    u = u[:, : (s > 1e-10).sum()]
    return x - (x - mean) @ (root @ u @ u.T @ white).T


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_leace_matches_closed_form(classes):
    x, labels = labeled_rows(classes=classes)
    method = LEACE().fit_tensors(torch.tensor(x), torch.tensor(labels))
    assert method.proj_left.shape == (6, classes - 1)
    np.testing.assert_allclose(method(torch.tensor(x)), numpy_leace(x, labels), atol=1e-10)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.float16, 1e-6)])
def test_leace_removes_covariance_with_labels(dtype, tolerance):
    x, labels = labeled_rows(5000, 40, 3)
    rows, z = torch.tensor(x).to(dtype), torch.nn.functional.one_hot(torch.tensor(labels)).double()
    after = LEACE().fit_tensors(rows, torch.tensor(labels))(rows)

    def covariance(rows):
        return torch.linalg.matrix_norm((rows.double() - rows.double().mean(0)).mT @ (z - z.mean(0)))

    assert covariance(after) < tolerance * covariance(rows)
    torch.testing.assert_close(after.mean(0), rows.double().mean(0), rtol=1e-6, atol=1e-6)


def test_leace_of_fewer_rows_than_dimensions_removes_their_differences():
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        x, labels = labeled_rows(12, 40)
        rows, labels = torch.tensor(x, dtype=dtype), torch.tensor(labels)
        after = LEACE().fit_tensors(rows, labels)(rows)
        torch.testing.assert_close(after[labels == 0].mean(0), after[labels == 1].mean(0), atol=50 * tolerance, rtol=0)
        new = torch.randn(5, 40, dtype=dtype)
        assert LEACE().fit_tensors(rows, labels)(new).abs().max() < 1e3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(20))
def test_leace_in_batches_and_blocks_matches_float64_fit(dtype, seed, monkeypatch):
    x, labels = labeled_rows(900, 30, 4)
    order = np.lexsort((np.random.default_rng(seed).permutation(900), labels))  # the first batch has one class
    truth = torch.tensor(numpy_leace(x, labels)[order])
    rows, labels = torch.tensor(x[order], dtype=dtype), torch.tensor(labels[order])
    # Rounding changes the covariance matrix by eps of its norm, and its inverse by its condition times that.
    tolerance = torch.finfo(dtype).eps * np.linalg.cond(np.cov(x.T)) * np.abs(x).max()

    def check(method: LEACE) -> None:
        torch.testing.assert_close(method(rows), truth, atol=tolerance, rtol=0)

    sizes = [200, 0, 1, 399, 300]
    check(LEACE().fit_tensors(rows, labels))
    check(LEACE().fit_batches(zip(rows.split(sizes), labels.split(sizes), strict=True)))
    monkeypatch.setattr(leace, "ROWS", 7)
    monkeypatch.setattr(leace, "BLOCK", 4)
    check(LEACE().fit_tensors(rows, labels))


def test_leace_order_and_repetition_of_rows_and_class_ids_change_nothing():
    x, labels = map(torch.tensor, labeled_rows(classes=3))
    expected = LEACE().fit_tensors(x, labels)(x)
    order = torch.randperm(len(x))
    for rows, classes in (
        (x[order], labels[order]),
        (x.repeat(3, 1), labels.repeat(3)),
        (x, torch.tensor([-7, 10**12, 5])[labels]),
        (x.unsqueeze(0), labels.unsqueeze(0)),
    ):
        torch.testing.assert_close(LEACE().fit_tensors(rows, classes)(x), expected.expand(*rows.shape[:-2], *x.shape))
    torch.testing.assert_close(LEACE().fit_batches([(x, 3 * labels)])(x), expected)  # ids 1, 2, 4 and 5 are unused


def test_leace_changes_another_model_of_the_same_space():
    x, labels = labeled_rows()
    words = [f"w{i}" for i in range(len(x))]
    model = WordEmbeddingModel.from_numpy(x.copy(), words)
    groups = [[word for word, label in zip(words, labels, strict=True) if label == k] for k in range(2)]
    method = LEACE().fit(model, groups)
    other = WordEmbeddingModel.from_numpy(x[:4] + 1, list("abcd"))
    np.testing.assert_allclose(method.transform(other).vectors, method(torch.tensor(x[:4] + 1)))
    np.testing.assert_allclose(method.transform(model).vectors, numpy_leace(x, labels), atol=1e-10)


def numpy_inlp(x, labels, is_training, iterations, C):
    """Fit classifiers of scikit-learn in turn and project on the null space of all (Ravfogel et al. 2020)."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    scale = np.sqrt(x[is_training].var(0).mean())
    z = (x - x[is_training].mean(0)) / scale
    project, basis = np.eye(x.shape[1]), np.zeros((0, x.shape[1]))
    majority = np.mean(labels[~is_training] == np.bincount(labels[is_training]).argmax())
    for _ in range(iterations):
        classes = [1] if labels.max() == 1 else range(labels.max() + 1)
        classifiers = []
        for k in classes:
            classifier = linear_model.LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, max_iter=1000)
            classifiers.append(classifier.fit(z[is_training] @ project, labels[is_training] == k))
        margins = np.stack([classifier.decision_function(z @ project) for classifier in classifiers], 1)
        predicted = (margins[:, 0] > 0).astype(int) if len(classifiers) == 1 else margins.argmax(1)
        if np.mean((predicted == labels)[~is_training]) <= majority:
            break
        basis = np.concatenate([basis, *(classifier.coef_ for classifier in classifiers)])
        project = np.eye(x.shape[1]) - np.linalg.pinv(basis) @ basis
    return x @ project, len(basis)


@pytest.mark.parametrize(("rows", "dims", "classes", "iterations"), [(200, 6, 2, 35), (240, 9, 3, 35), (60, 80, 2, 3)])
def test_inlp_matches_a_loop_of_classifiers(rows, dims, classes, iterations):
    x, labels = labeled_rows(rows, dims, classes)
    method = INLP(n_iterations=iterations, C=0.3)
    after = method.fit_tensors(torch.tensor(x), torch.tensor(labels))(torch.tensor(x))
    _, positions = deal_words(torch.tensor(labels), torch.arange(rows), 0)
    expected, directions = numpy_inlp(x, labels, (positions % 5 != 1).numpy(), iterations, 0.3)
    assert 0 < directions == len(method.bias_subspace)
    np.testing.assert_allclose(after, expected, atol=1e-6)
    basis = method.bias_subspace
    torch.testing.assert_close(basis @ basis.mT, torch.diag((basis.norm(dim=1) > 0.5).double()), atol=1e-12, rtol=0)


def test_inlp_stops_where_classes_do_not_differ():
    x = torch.randn(400, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    method = INLP().fit_tensors(x, (torch.arange(400) % 3 > 0).long())  # two thirds belong to one class
    assert method.bias_subspace.shape == (0, 5)
    assert torch.equal(method(x), x)


def test_inlp_with_words_does_not_depend_on_row_order():
    x, labels = map(torch.tensor, labeled_rows(50))
    words = [f"w{i}" for i in range(50)]
    once = INLP(n_iterations=2).fit_tensors(x, labels, words)
    order = torch.randperm(50)
    other = INLP(n_iterations=2).fit_tensors(x[order], labels[order], [words[i] for i in order])
    torch.testing.assert_close(other(x), once(x))


def test_deal_words_stratifies_by_class_and_keeps_rows_of_words_together():
    words = torch.randperm(40, generator=torch.Generator().manual_seed(1)).repeat(3)
    labels = words % 3
    overall, in_class = deal_words(labels, words, 0)
    for positions in (overall, in_class):
        assert torch.equal(positions[:40], positions[40:80]) and torch.equal(positions[:40], positions[80:])
    assert overall[:40].sort().values.tolist() == list(range(40))
    for k in range(3):
        members = labels[:40] == k
        assert in_class[:40][members].sort().values.tolist() == list(range(int(members.sum())))
        counts = torch.bincount(overall[:40][members] % 5, minlength=5)
        assert counts.max() - counts.min() <= 1
    order = torch.randperm(120)
    assert torch.equal(deal_words(labels[order], words[order], 0)[0], overall[order])
    assert not torch.equal(deal_words(labels, words, 1)[0], overall)
    batch = deal_words(torch.stack([labels, words % 2]), words, 0)
    assert torch.equal(batch[0][0], overall) and torch.equal(batch[1][1], deal_words(words % 2, words, 0)[1])


@pytest.mark.parametrize("method", [LEACE, INLP])
def test_erasure_invalid_tensors_raise(method):
    x, labels = map(torch.tensor, labeled_rows(20))
    model = WordEmbeddingModel.from_tensor(x, [f"w{i}" for i in range(20)])
    with raises(ValueError, "groups: got 1, wanted at least two lists of words, one for each class"):
        method().fit(model, [["w1", "w2"]])
    for vectors, classes, message in (
        (x, 0 * labels, "labels: got 1 classes, wanted at least two"),
        (x, labels[1:], "labels: got shape (19,), wanted (20,), one for each row"),
        (x.unflatten(0, (2, 10)), labels, "labels: got shape (20,), wanted (10,) or (2, 10), one for each row"),
        (x, labels.double(), "labels: got torch.float64, wanted an integer dtype; write labels.long()"),
        (x / 0, labels, "vectors: got NaN or infinity, wanted finite numbers"),
    ):
        with raises(ValueError, message):
            method().fit_tensors(vectors, classes)


def test_erasure_invalid_options_raise():
    x, labels = map(torch.tensor, labeled_rows(20))
    for batches, message in (
        ([], "batches: got none, wanted at least one pair of vectors and labels"),
        ([(x, -labels)], "labels: got -1, wanted integers >= 0"),
        ([(x, 0 * labels)], "labels: got 1 classes, wanted at least two"),
        ([(x[:0], labels[:0])], "labels: got 0 classes, wanted at least two"),
        ([(x, labels), (x[:, :5], labels)], "vectors: got shape (20, 5), wanted (N, 6) as in the first batch"),
    ):
        with raises(ValueError, message):
            LEACE().fit_batches(batches)
    with raises(ValueError, "labels: got one word of each class, wanted at least two of a class, one to hold out"):
        INLP().fit_tensors(x, torch.arange(20))
