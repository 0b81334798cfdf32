"""Words are resampled with all their rows: p-values and intervals against enumeration and NumPy loops."""

import functools
import itertools

import numpy as np
import pytest
import torch
from metric_cases import answer
from raising import raises
from scipy.stats import spearmanr
from test_permutation import ALTERNATIVES, extreme

from tensormetrics import association
from tensormetrics.association import WEAT, Query, WordEmbeddingModel, functional
from tensormetrics.association.functional import WordSet, permutation_p_value

ROWS = {"equal": [3, 3, 3, 3, 3, 3, 3], "unequal": [1, 4, 2, 2, 5, 1, 3]}
every_rows = pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
every_alternative = pytest.mark.parametrize("alternative", ALTERNATIVES)


def ids_of_rows(rows):
    """Return the word id of each row; ids are positive multiples of 7, so that none equals a position."""
    return torch.tensor([7 * i + 7 for i, count in enumerate(rows) for _ in range(count)])


def word_rows(rows, generator, *shape):
    """Draw (rows, *shape) per word: an effect of the word plus smaller effects of its rows."""
    return [
        torch.randn(1, *shape, generator=generator, dtype=torch.float64)
        + 0.3 * torch.randn(count, *shape, generator=generator, dtype=torch.float64)
        for count in rows
    ]


def partitions(words, n, score):
    """Score all partitions of words (arrays of rows) into n and the rest; the first partition is the observed one."""
    scores = []
    for selected in itertools.combinations(range(len(words)), n):
        others = [i for i in range(len(words)) if i not in selected]
        scores.append(score(*([words[i] for i in indices] for indices in (selected, others))))
    return np.array(scores)


def mean(words):
    """Average over words the means over their rows."""
    return np.mean([word.mean(0) for word in words], 0)


def difference(u, v):
    return mean(u) - mean(v)


def rnd_of(x, y, a):
    distances = [[np.linalg.norm(word - mean(target), axis=-1) for word in a] for target in (x, y)]
    return mean(distances[0]) - mean(distances[1])


def ect_of(x, y, a):
    unit = [word / np.linalg.norm(word, axis=-1, keepdims=True) for word in a]
    cosines = [[(word @ mean(target) / np.linalg.norm(mean(target))).mean() for word in unit] for target in (x, y)]
    return spearmanr(*np.round(cosines, 12)).statistic


def shuffled(rows, words, generator):
    # rows of a word need not be adjacent
    order = torch.randperm(len(words), generator=generator)
    return rows[order], words[order]


@every_rows
@every_alternative
@pytest.mark.parametrize("ties", [False, True])
def test_permutation_of_words_with_rows_equals_enumeration(rows, alternative, ties, generator, device):
    words = word_rows(rows, generator)
    if ties:
        words = [word.mul(2).round() / 2 for word in words]
    arrays = [word.numpy() for word in words]
    d = partitions(arrays, 3, difference)
    (u, u_words), (v, v_words) = (
        shuffled(torch.cat(words[part]), ids_of_rows(rows[part]), generator) for part in (slice(3), slice(3, None))
    )
    u, v = (WordSet(s.to(device), words=words.to(device)) for s, words in ((u, u_words), (v, v_words)))
    p = permutation_p_value(u, v, alternative=alternative)
    assert p.item() == pytest.approx(extreme(d, d[0], alternative), rel=1e-14) and p.dtype == torch.float64
    approximate = permutation_p_value(u, v, alternative=alternative, method="approximate", replicates=4000)
    assert abs(approximate.item() - p.item()) <= 4 * (p.item() * (1 - p.item()) / 4000) ** 0.5 + 1e-3


@every_alternative
def test_permutation_batches_masks_and_padding_equal_single_queries(alternative, generator, device):
    """The batch has queries of equal and unequal row counts, and masks some rows or all rows of words."""
    row_counts = [[2, 2, 2, 2, 2], [1, 3, 2, 2, 1], [3, 1], [1, 1, 1, 1], [2, 2, 4]]
    u, v = (torch.full((5, 14), torch.nan, dtype=torch.float64) for _ in range(2))
    u_words, v_words = (torch.zeros(5, 14, dtype=torch.int64) for _ in range(2))
    for i, rows in enumerate(row_counts):
        words = word_rows(rows, generator)
        for scores, word_ids, part in ((u, u_words, slice(1)), (v, v_words, slice(1, None))):
            values = torch.cat(words[part])
            scores[i, 2 : 2 + len(values)], word_ids[i, 2 : 2 + len(values)] = values, ids_of_rows(rows[part])
    for method in ("exact", "approximate"):
        options = {"alternative": alternative, "method": method, "replicates": 300}
        batch = (WordSet(*(t.to(device) for t in (s, ~s.isnan(), words))) for s, words in ((u, u_words), (v, v_words)))
        p = permutation_p_value(*batch, **options)
        for i in range(len(row_counts)):
            unpadded = [
                (scores[i][~scores[i].isnan()], words[i][~scores[i].isnan()])
                for scores, words in ((u, u_words), (v, v_words))
            ]
            one = (WordSet(s.to(device), words=words.to(device)) for s, words in unpadded)
            single = permutation_p_value(*one, **options)
            assert p[i] == single
            if method == "exact":
                arrays = [s[w == n].numpy() for s, w in unpadded for n in w.unique()]
                d = partitions(arrays, 1, difference)
                assert p[i].item() == pytest.approx(extreme(d, d[0], alternative), rel=1e-14)


@pytest.mark.parametrize("method", ["auto", "approximate"])
def test_p_values_one_row_per_word_equal_those_without_word_ids(method, generator, device):
    u, v = (torch.randn(4, n, generator=generator, dtype=torch.float64).to(device) for n in (5, 6))
    mask = torch.rand(4, 5, generator=generator).to(device) < 0.7
    options = {"method": method, "replicates": 200}
    word_ids, v_with_ids = torch.arange(5, device=device), WordSet(v, words=torch.arange(6, device=device))
    for optional_mask in (None, mask):
        without_ids, with_ids = WordSet(u, optional_mask), WordSet(u, optional_mask, word_ids)
        p = permutation_p_value(without_ids, v, **options)
        assert torch.equal(permutation_p_value(with_ids, v_with_ids, **options), p)
        assert torch.equal(permutation_p_value(with_ids, v, **options), p)
        assert torch.equal(
            functional.sign_flip_p_value(with_ids, **options), functional.sign_flip_p_value(without_ids, **options)
        )


def test_permutation_auto_counts_words_not_rows(generator):
    u, v = (torch.randn(160, generator=generator, dtype=torch.float64) for _ in range(2))
    word_ids = torch.arange(160) // 10
    p = permutation_p_value(WordSet(u, words=word_ids), WordSet(v, words=word_ids))
    means = (s.view(16, 10).mean(-1) for s in (u, v))
    assert p.item() == pytest.approx(permutation_p_value(*means, method="exact").item(), rel=1e-6)
    unequal = WordSet(u[1:], words=word_ids[1:]), WordSet(v, words=word_ids)
    means = torch.stack([u[1:10].mean(), *u[10:].view(15, 10).mean(-1)]), v.view(16, 10).mean(-1)
    assert permutation_p_value(*unequal) == permutation_p_value(*means)


def test_permutation_repeated_rows_preserve_ties(generator):
    """Repeated rows change no exact p-value, also where means of integers over rows are not exact."""
    for _ in range(30):
        u, v = (torch.randint(-3, 4, (n,), generator=generator).double() / 3 for n in (4, 5))
        word_sets = []
        for scores in u, v:
            rows = torch.randint(1, 5, (len(scores),), generator=generator)
            word_ids = torch.arange(len(scores)).repeat_interleave(rows)
            word_sets.append(WordSet(scores[word_ids], words=word_ids))
        for alternative in ALTERNATIVES:
            options = {"alternative": alternative, "method": "exact"}
            assert permutation_p_value(*word_sets, **options) == permutation_p_value(u, v, **options)


@every_rows
@every_alternative
def test_sign_flip_of_pairs_with_rows_equals_enumeration(rows, alternative, generator, device):
    pairs = word_rows(rows, generator)
    signs = np.array(list(itertools.product([1, -1], repeat=len(rows))))
    flipped = np.array([mean([s * p.numpy() for s, p in zip(row, pairs, strict=True)]) for row in signs])
    r, words = shuffled(torch.cat(pairs), ids_of_rows(rows), generator)
    p = functional.sign_flip_p_value(WordSet(r.to(device), words=words.to(device)), alternative=alternative)
    assert p.item() == pytest.approx(extreme(flipped, flipped[0], alternative), rel=1e-14)
    wide = torch.nn.functional.pad(r, (2, 1), value=torch.nan).to(device)
    wide = WordSet(wide, ~wide.isnan(), torch.nn.functional.pad(words, (2, 1)).to(device))
    assert functional.sign_flip_p_value(wide, alternative=alternative) == p


TARGETS = {"rnd": (functional.rnd, rnd_of), "ect": (functional.ect, ect_of)}


@every_rows
@every_alternative
@pytest.mark.parametrize(("metric", "oracle"), TARGETS.values(), ids=TARGETS.keys())
def test_target_permutation_of_words_with_rows_equals_enumeration(metric, oracle, rows, alternative, generator, device):
    words, a = word_rows(rows, generator, 4), torch.randn(5, 4, generator=generator, dtype=torch.float64)
    attributes = [word.numpy()[None] for word in a]
    scores = partitions([w.numpy() for w in words], 3, lambda x, y: oracle(x, y, attributes))
    (x, x_words), (y, y_words) = (
        shuffled(torch.cat(words[part]), ids_of_rows(rows[part]), generator) for part in (slice(3), slice(3, None))
    )
    x, y, a = (t.to(device) for t in (x, y, a))
    x_words, y = x_words.to(device), WordSet(y, words=y_words.to(device))
    p = functional.target_permutation_p_value(metric, WordSet(x, words=x_words), y, a, alternative=alternative)
    exact = extreme(scores, scores[0], alternative)
    assert p.item() == pytest.approx(exact, rel=1e-14)
    approximate = functools.partial(
        functional.target_permutation_p_value, metric, alternative=alternative, replicates=2000
    )
    p = approximate(WordSet(x, words=x_words), y, a, method="approximate")
    assert abs(p.item() - exact) <= 4 * (exact * (1 - exact) / 2000) ** 0.5 + 1e-3
    wide = torch.nn.functional.pad(x, (0, 0, 2, 1), value=torch.nan)
    wide = WordSet(wide, ~wide.isnan().any(-1), torch.nn.functional.pad(x_words, (2, 1)))
    assert approximate(wide, y, a, method="approximate") == p


@every_rows
def test_group_permutation_of_words_with_rows_agrees_with_enumeration(rows, generator, device):
    """Each permutation redistributes the words of three groups, and a word brings all its rows."""
    sizes = [rows[:2], rows[2:5], rows[5:]]
    groups = [word_rows(size, generator, 4) for size in sizes]
    a = torch.randn(3, 4, 4, generator=generator, dtype=torch.float64)
    words = [word for group in groups for word in group]
    scores = []
    for order in itertools.permutations(range(7)):
        if all(order[i] < order[i + 1] for i in (0, 2, 3, 5)):  # each assignment to groups once
            deal = [[words[i] for i in order[start:end]] for start, end in ((0, 2), (2, 5), (5, 7))]
            unit = functools.partial(torch.nn.functional.normalize, dim=-1)
            means = [torch.stack([unit(word).mean(0) for word in d]).mean(0) for d in deal]
            centers = torch.nn.functional.normalize(a, dim=-1).mean(1)
            scores.append(
                ((torch.stack(means) - torch.stack(means).mean(0)) * (centers - centers.mean(0))).sum().item()
            )
    width = max(map(sum, sizes))
    x, mask = torch.full((3, width, 4), torch.nan, dtype=torch.float64), torch.zeros(3, width, dtype=torch.bool)
    word_ids = torch.zeros(3, width, dtype=torch.int64)
    for g, (group, size) in enumerate(zip(groups, sizes, strict=True)):
        x[g, : sum(size)], word_ids[g, : sum(size)] = torch.cat(group), ids_of_rows(size)
        mask[g, : sum(size)] = True
    x = WordSet(*(t.to(device) for t in (x, mask, word_ids)))
    p = functional.group_permutation_p_value(x, a.to(device), replicates=4000).item()
    exact = extreme(np.array(scores), scores[0], "greater")
    assert abs(p - exact) <= 4 * (exact * (1 - exact) / 4000) ** 0.5 + 1e-3


def test_p_values_invalid_word_ids_raise():
    u = torch.zeros(4)
    for words, kind, message in (
        ([0, 0, 1, 1], TypeError, "u.words: got a list, wanted a tensor; write torch.as_tensor(u.words)"),
        (u, TypeError, "u.words: got torch.float32, wanted an integer dtype: the id of each row's word"),
        (torch.zeros(3).long(), ValueError, "u.words: got shape (3,), wanted (..., 4), one for each row"),
    ):
        with raises(kind, message):
            permutation_p_value(WordSet(u, words=words), u)
    with raises(ValueError, "leading dimensions do not broadcast: (3,) of r.words, (2,) of r"):
        functional.sign_flip_p_value(WordSet(torch.zeros(2, 4), words=torch.zeros(3, 4).long()))


# Queries of a model whose words have several rows.


def contexts_of(words, counts, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = word_rows([counts[i % len(counts)] for i in range(len(words))], generator, 6)
    return WordEmbeddingModel.from_contexts(dict(zip(words, rows, strict=True)), "contexts")


WORDS = [f"{name}{i}" for name in "xyab" for i in range(3)]
SETS = [[f"{name}{i}" for i in range(3)] for name in "xyab"]
every_counts = pytest.mark.parametrize("counts", [[1], [3], [1, 4, 2]], ids=["one", "equal", "unequal"])


def rows_of(model, words):
    return [model.vectors[model.rows(word)] for word in words]


@every_counts
@every_alternative
def test_run_query_p_values_with_contexts_equal_enumeration(counts, alternative):
    model = contexts_of(WORDS, counts)
    x, y, a, b = (rows_of(model, words) for words in SETS)
    options = {"p_value": True, "alternative": alternative}
    numpy = [word.numpy() for word in x + y]
    unit = functools.partial(torch.nn.functional.normalize, dim=-1)
    axis = mean([unit(word).numpy() for word in a]) - mean([unit(word).numpy() for word in b])
    attributes = [word.numpy() for word in a]
    lengths = functools.partial(np.linalg.norm, axis=-1)
    d = partitions([word @ axis / lengths(word) for word in numpy], 3, difference)
    p_value = answer(WEAT(**options), Query(SETS[:2], SETS[2:]), model)["p_value"]
    assert p_value == pytest.approx(extreme(d, d[0], alternative), rel=1e-14)
    for metric, score in ((association.RND, rnd_of), (association.ECT, ect_of)):
        scores = partitions(numpy, 3, lambda u, v, score=score: score(u, v, attributes))
        p_value = answer(metric(**options), Query(SETS[:2], SETS[2:3]), model)["p_value"]
        assert p_value == pytest.approx(extreme(scores, scores[0], alternative), rel=1e-14)


ALL = (
    WEAT,
    association.RND,
    association.ECT,
    association.RIPA,
    association.SCWEAT,
    association.GWEAT,
    association.MAC,
    association.RNSB,
    association.SAME,
    association.DirectBias,
)


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.__name__)
def test_run_queries_with_contexts_equals_run_query(metric):
    """Batches whose sets differ in rows and words run the same test as single queries."""
    words = [f"w{i}" for i in range(14)]
    model = contexts_of(words, [2] if metric.paired else [1, 2, 1, 3])
    sets = [words[:4], words[4:8], words[8:11], words[11:]]
    targets, attributes = (2 if size == "n" else size for size in metric.metric_template)
    queries = [
        Query([sets[i] for i in order[:targets]], [sets[i] for i in order[2 : 2 + attributes]], names[:targets])
        for order, names in (((0, 1, 2, 3), ["t", "u"]), ((2, 3, 0, 1), ["v", "w"]))
    ]
    tested = (
        {"p_value": True, "permutations": 300}
        if metric in (WEAT, association.RND, association.RIPA, association.GWEAT)
        else {}
    )
    options = {**tested, "replicates": 20}
    metric = metric(**options)
    expected = [metric.run_query(query, model) for query in queries]
    rtol = 1e-9 if isinstance(metric, association.RNSB) else 1e-12
    (cells,) = association.run_queries(metric, queries, [model]).cells
    for cell, estimate in zip(cells, expected, strict=True):
        np.testing.assert_allclose([*map(float, cell)], [*map(float, estimate)], rtol=rtol)
    if tested:
        (cells,) = association.run_queries(metric, queries, [model], value="p_value").cells
        np.testing.assert_allclose(cells, [float(estimate.details["p_value"]) for estimate in expected], rtol=rtol)
