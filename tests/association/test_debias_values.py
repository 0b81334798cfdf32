"""Debiasing methods against NumPy loops over single words."""

import itertools

import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics.association import (
    DoubleHardDebias,
    HalfSiblingRegression,
    HardDebias,
    MulticlassHardDebias,
    RepulsionAttractionNeutralization,
    WordEmbeddingModel,
)
from tensormetrics.association.metrics._clusters import k_means, largest_cosines


@pytest.fixture
def table():
    return np.random.default_rng(0).normal(size=(40, 6))


def named(table, **rename):
    words = [rename.get(f"w{i}", f"w{i}") for i in range(len(table))]
    return WordEmbeddingModel.from_numpy(table.copy(), words)


def unit(v):
    return v / np.linalg.norm(v)


def direction(pairs):
    centered = np.concatenate([[(p - q) / 2, (q - p) / 2] for p, q in pairs])
    g = np.linalg.svd(centered)[2][0]
    return g if sum((p - q) @ g for p, q in pairs) > 0 else -g


def test_hard_debias_equals_values_computed_by_hand():
    vectors = np.array([[1, 0.5], [-1, 0.5], [3.0, 4], [0, -2], [0, 0]])
    model = WordEmbeddingModel.from_numpy(vectors, ["she", "he", "a", "b", "none"])
    debias = HardDebias().fit(model, [["she", "he"]])
    np.testing.assert_allclose(debias.bias_direction, [1, 0], atol=1e-15)
    after = debias.transform(model).vectors.numpy()
    height = 1 / np.sqrt(5)  # norm of the mean of the pair's unit vectors
    bias_component = np.sqrt(1 - height**2)
    expected = [[bias_component, height], [-bias_component, height], [0, 1], [0, -1], [0, 0]]
    np.testing.assert_allclose(after, expected, atol=1e-15)


def test_hard_debias_equalizes_all_case_variants_of_pairs(table):
    model = named(table, w0="she", w1="he", w2="She", w3="He", w4="SHE", w5="hE")
    debias = HardDebias().fit(model, [["she", "he"]])
    assert debias.words == {"equalize": [["she", "he"], ["She", "He"], ["SHE", "HE"]]}
    after = debias.transform(model, ignore=["she", "he", "She", "He", "SHE"]).vectors @ debias.bias_direction
    np.testing.assert_allclose(after[[0, 2]], -after[[1, 3]], atol=1e-12)
    assert after[0].abs() > 0.1 and after[4].abs() > 1e-3 and after[5].abs() < 1e-12


def test_hard_debias_transforms_model_without_the_pairs(table):
    fitted = HardDebias().fit(named(table), [["w0", "w1"]])
    other = WordEmbeddingModel.from_numpy(table[5:9].copy(), list("abcd"))
    np.testing.assert_allclose(fitted.transform(other).vectors, fitted(other.vectors), atol=1e-12)


def test_hard_debias_word_of_two_pairs_uses_the_last(table):
    once, twice = (
        HardDebias().fit(named(table), [["w0", "w1"]], pairs)
        for pairs in ([["w4", "w6"]], [["w4", "w5"], ["w4", "w6"]])
    )
    np.testing.assert_allclose(once.transform(named(table))["w4"], twice.transform(named(table))["w4"], atol=1e-12)


def test_multiclass_hard_debias_equals_loop_over_words(table):
    sets = [["w0", "w1", "w2"], ["w3", "w4", "w5"]]
    equalize_rows = [[6, 7], [6, 7, 8], [11, 12], [0, 9, 10], [13, 14, 15, 16, 9], [17, 12]]  # sets of unequal sizes
    equal = [[f"w{i}" for i in rows_of_set] for rows_of_set in equalize_rows]
    units = np.array([unit(v) for v in table])
    rows = np.concatenate([units[i : i + 3] - units[i : i + 3].mean(0) for i in (0, 3)])
    basis = np.linalg.svd(rows)[2][:2]
    project = basis.T @ basis
    expected = units.copy()
    for i in range(6, 40):
        expected[i] = unit(units[i] - project @ units[i])
    for rows_of_set in equalize_rows:  # the last set of a word counts
        mean = units[rows_of_set].mean(0)
        rest = mean - project @ mean
        for i in rows_of_set:
            expected[i] = unit(rest + np.sqrt(1 - rest @ rest) * unit(project @ (units[i] - mean)))
    debias = MulticlassHardDebias(pca_args={"n_components": 2})
    after = debias.fit_transform(named(table), definitional_sets=sets, equalize_sets=equal)
    np.testing.assert_allclose(after.vectors, expected, atol=1e-12)
    with raises(ValueError, "equalize_sets[1]: got 1 words, ['w3'], wanted at least 2"):
        debias.fit(named(table), sets, [["w0", "w1"], ["w3"]])
    with raises(
        ValueError, "equalize_sets: got 2 tuples, none of which is complete in the vocabulary of 'Unnamed model'"
    ):
        debias.fit(named(table), sets, [["w0", "lost"], ["w3", "w4", "gone"]])


def test_multiclass_hard_debias_components_above_rank_are_zero(table):
    sets = [["w0", "w1", "w2"], ["w3", "w4", "w5"]]  # rank 4
    four, ten = (MulticlassHardDebias(pca_args={"n_components": k}) for k in (4, 10))
    a, b = (debias.fit(named(table), sets, sets) for debias in (four, ten))
    np.testing.assert_allclose(a.bias_subspace, b.bias_subspace[:4], atol=1e-12)
    assert not b.bias_subspace[4:].any() and b.bias_subspace.shape == (6, 6)
    np.testing.assert_allclose(a(torch.tensor(table)), b(torch.tensor(table)), atol=1e-12)


def test_half_sibling_regression_equals_loop_over_words(table):
    words = np.array([table[2], table[5], table[7]])
    expected = table.copy()
    for i in set(range(40)) - {2, 5, 7}:
        ridge = np.linalg.solve(words @ words.T + 3.0 * np.eye(3), words @ table[i])
        expected[i] -= ridge @ words
    after = HalfSiblingRegression().fit_transform(named(table), definitional_words=["w2", "w5", "w7"], alpha=3.0)
    np.testing.assert_allclose(after.vectors, expected, atol=1e-12)
    with raises(ValueError, "alpha: got 0, wanted a number > 0"):
        HalfSiblingRegression().fit(named(table), ["w2"], alpha=0)


def double_hard(table, rows, n, components):
    """Return the rows to cluster, each candidate's agreement with the groups, and the vectors of the best candidate."""
    from scipy.cluster.vq import kmeans2

    g = direction([table[:2], table[2:4]])
    mean = table.mean(0)
    axes = np.linalg.svd(table - mean)[2]
    projections = [unit(table[i]) @ (unit(table[0]) - unit(table[1])) for i in rows]
    order = [rows[i] for i in np.argsort(projections)]
    extreme_rows = order[:n] + order[-n:]
    results, agreement = [], []
    for u in axes[:components]:
        rest = np.array([v - mean - (u @ v) * u for v in table])
        results.append(rest - np.outer(rest @ g, g))
        points = results[-1][extreme_rows]
        runs = [kmeans2(points, 2, minit="++", seed=seed) for seed in range(30)]
        labels = min((r for r in runs), key=lambda r: ((points - r[0][r[1]]) ** 2).sum())[1]
        same = (labels == np.repeat([0, 1], n)).mean()
        agreement.append(max(same, 1 - same))
    return extreme_rows, agreement, results[int(np.argmin(agreement))]


def test_double_hard_debias_equals_loop_over_components():
    generator = np.random.default_rng(3)
    table = generator.normal(size=(60, 5)) * [4, 2, 1, 1, 1]
    rows = list(range(4, 60))
    extreme_rows, agreement, after = double_hard(table, rows, 8, 3)
    assert len(set(agreement)) == 3  # so that the best candidate is unique
    fit = {"definitional_pairs": [["w0", "w1"], ["w2", "w3"]], "bias_representation": ["w0", "w1"]}
    for scope, changed in (("all", rows), ("biased", extreme_rows)):
        expected = table.copy()
        expected[changed] = after[changed]
        debias = DoubleHardDebias(n_words=8, n_components=3, scope=scope)
        model = debias.fit_transform(named(table), ignore=["w0", "w1", "w2", "w3"], **fit)
        np.testing.assert_allclose(model.vectors, expected, atol=1e-10)
        np.testing.assert_allclose(debias(torch.tensor(table[rows])), expected[rows], atol=1e-10)


def test_k_means_of_eight_points_has_minimum_inertia():
    """Enumerate all assignments of eight points to three clusters."""
    points = torch.randn(8, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    clusters, centers = k_means(points, 3, seed=0, starts=50)
    assignments = np.array(list(itertools.product(range(3), repeat=8)))
    inertia = [
        sum(((x := points.numpy()[a == k]) - x.mean(0)).ravel() @ (x - x.mean(0)).ravel() for k in set(a))
        for a in assignments
    ]
    best = assignments[int(np.argmin(inertia))]
    assert len({*zip(best, clusters.tolist(), strict=True)}) == 3  # equal up to the numbering of clusters
    for k in range(3):
        torch.testing.assert_close(centers[k], points[clusters == k].mean(0))


def test_double_hard_debias_invalid_arguments_raise(table):
    fit = {"definitional_pairs": [["w0", "w1"]]}
    with raises(ValueError, "bias_representation[0]: got 1 words, ['w0'], wanted 2"):
        DoubleHardDebias().fit(named(table), bias_representation=["w0"], **fit)
    debias = DoubleHardDebias().fit(named(table), bias_representation=["w0", "w1"], **fit)
    with raises(ValueError, "DoubleHardDebias: got 1 vectors, wanted at least 2 to compare"):
        debias.transform(named(table), ["w5"])


def repulsion_attraction_neutralization(table, row, g, k, theta, epochs, learning_rate, weights):
    """Debias one word by autograd; also return the number of repulsive neighbors."""
    units = [torch.tensor(unit(v)) for v in table]
    w, g = units[row], torch.tensor(g)
    order = sorted((i for i in range(len(units)) if i != row), key=lambda i: -(units[i] @ w))[:k]
    repulsion = []
    for v in (units[i] for i in order):
        rest = [u - (u @ g) * g for u in (w, v)]
        cosine = rest[0] @ rest[1] / (rest[0].norm() * rest[1].norm())
        if (w @ v - cosine) / (w @ v) > theta:
            repulsion.append(v)
    moved = w.clone().requires_grad_()
    adam = torch.optim.Adam([moved], lr=learning_rate)
    for _ in range(epochs):
        adam.zero_grad()
        repelled = sum((moved @ v).abs() / moved.norm() for v in repulsion) / max(1, len(repulsion))
        attracted = (moved @ w / moved.norm() - 1).abs() / 2
        neutral = (moved @ g).abs() / moved.norm()
        (weights[0] * repelled + weights[1] * attracted + weights[2] * neutral).backward()
        adam.step()
    return unit(moved.detach().numpy()), len(repulsion)


def test_repulsion_attraction_neutralization_equals_autograd_loop(table):
    options = {"epochs": 30, "theta": 0.05, "n_neighbours": 7, "learning_rate": 0.01, "weights": (0.5, 0.2, 0.4)}
    debias = RepulsionAttractionNeutralization(**options).fit(named(table), [["w0", "w1"], ["w2", "w3"]])
    g = direction([(unit(table[0]), unit(table[1])), (unit(table[2]), unit(table[3]))])
    np.testing.assert_allclose(debias.bias_direction, g, atol=1e-12)
    after = debias.transform(named(table), [f"w{i}" for i in range(4, 40, 3)]).vectors.numpy()
    expected, sizes = np.array([unit(v) for v in table]), set()
    for row in range(4, 40, 3):
        expected[row], size = repulsion_attraction_neutralization(table, row, g, 7, 0.05, 30, 0.01, (0.5, 0.2, 0.4))
        sizes.add(size)
    assert len(sizes) > 2
    np.testing.assert_allclose(after, expected, atol=1e-9)
    assert torch.equal(debias(named(table).vectors, torch.arange(0)), torch.empty(0, 6, dtype=torch.float64))


def test_largest_cosines_ties_are_ordered_by_row():
    """Rounding noise depends on device, batch and chunk; it must not decide."""
    cosines = torch.tensor([0.5, 0.9, 0.5 + 1e-15, 0.5 - 1e-15, -torch.inf, 0.5, torch.nan, -0.2], dtype=torch.float64)
    assert largest_cosines(cosines, 3).tolist() == [1, 0, 2] and largest_cosines(cosines, 5).tolist() == [1, 0, 2, 3, 5]
    assert largest_cosines(cosines[[4, 3, 2, 0]].expand(2, 4), 2).tolist() == [[1, 2], [1, 2]]
    assert largest_cosines(torch.tensor([0.5, 0.5 + 1e-11], dtype=torch.float64), 1).tolist() == [1]
