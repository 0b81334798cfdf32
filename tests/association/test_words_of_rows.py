"""Words with several rows move with all their rows: p-values and intervals against enumeration and loops in numpy."""

import functools
import itertools

import numpy as np
import pytest
import torch
from raising import raises
from scipy.stats import spearmanr
from test_permutation import ALTERNATIVES, extreme

from tensormetrics import association
from tensormetrics.association import (
    ECT,
    GWEAT,
    MAC,
    RIPA,
    RND,
    SAME,
    SCWEAT,
    WEAT,
    DirectBias,
    Query,
    WordEmbeddingModel,
    WordSet,
    bootstrap_interval,
    group_permutation_p_value,
    permutation_p_value,
    run_queries,
    sign_flip_p_value,
    target_permutation_p_value,
)
from tensormetrics.association.resampling.null_distribution import TEST_TYPES
from tensormetrics.association.resampling.word_samples import word_sample, word_weights
from tensormetrics.association.sets.word_ids import joined_words

ROWS = {"equal": [3, 3, 3, 3, 3, 3, 3], "unequal": [1, 4, 2, 2, 5, 1, 3]}
every_rows = pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
TYPES = {alternative: name for name, alternative in TEST_TYPES.items()}
every_side = pytest.mark.parametrize("alternative", ALTERNATIVES)


def numbered(rows):
    """The number of each row's word: 1-based multiples of 7, so that no number is a place."""
    return torch.tensor([7 * i + 7 for i, count in enumerate(rows) for _ in range(count)])


def word_rows(rows, generator, *shape):
    """Per word (rows, *shape): an effect of the word, and a smaller one of each row."""
    return [
        torch.randn(1, *shape, generator=generator, dtype=torch.float64)
        + 0.3 * torch.randn(count, *shape, generator=generator, dtype=torch.float64)
        for count in rows
    ]


def partitions(words, n, score):
    """`score` of all partitions of words (each an array of rows) into n and the rest, the given one first."""
    scores = []
    for chosen in itertools.combinations(range(len(words)), n):
        others = [i for i in range(len(words)) if i not in chosen]
        scores.append(score(*([words[i] for i in side] for side in (chosen, others))))
    return np.array(scores)


def mean(words):
    """The mean over words of the means over their rows."""
    return np.mean([word.mean(0) for word in words], 0)


def difference(u, v):
    return mean(u) - mean(v)


def rnd_of(x, y, a):
    distances = [[np.linalg.norm(word - mean(side), axis=-1) for word in a] for side in (x, y)]
    return mean(distances[0]) - mean(distances[1])


def ect_of(x, y, a):
    unit = [word / np.linalg.norm(word, axis=-1, keepdims=True) for word in a]
    cosines = [[(word @ mean(side) / np.linalg.norm(mean(side))).mean() for word in unit] for side in (x, y)]
    return spearmanr(*np.round(cosines, 12)).statistic


def shuffled(side, words, generator):
    # rows of a word need not stand together
    order = torch.randperm(len(words), generator=generator)
    return side[order], words[order]


@every_rows
@every_side
@pytest.mark.parametrize("ties", [False, True])
def test_exact_permutations_of_words(rows, alternative, ties, generator, device):
    words = word_rows(rows, generator)
    if ties:
        words = [word.mul(2).round() / 2 for word in words]
    arrays = [word.numpy() for word in words]
    d = partitions(arrays, 3, difference)
    (u, u_words), (v, v_words) = (
        shuffled(torch.cat(words[part]), numbered(rows[part]), generator) for part in (slice(3), slice(3, None))
    )
    u, v = (WordSet(s.to(device), words=words.to(device)) for s, words in ((u, u_words), (v, v_words)))
    p = permutation_p_value(u, v, alternative=alternative)
    assert p.item() == pytest.approx(extreme(d, d[0], alternative), rel=1e-14) and p.dtype == torch.float64
    drawn = permutation_p_value(u, v, alternative=alternative, method="approximate", replicates=4000)
    assert abs(drawn.item() - p.item()) <= 4 * (p.item() * (1 - p.item()) / 4000) ** 0.5 + 1e-3


@every_side
def test_batches_masks_and_padding_of_words(alternative, generator, device):
    """Queries of equal and unequal rows in one batch, with words that are masked in part and as wholes."""
    kinds = [[2, 2, 2, 2, 2], [1, 3, 2, 2, 1], [3, 1], [1, 1, 1, 1], [2, 2, 4]]
    u, v = (torch.full((5, 14), torch.nan, dtype=torch.float64) for _ in range(2))
    u_words, v_words = (torch.zeros(5, 14, dtype=torch.int64) for _ in range(2))
    for i, rows in enumerate(kinds):
        words = word_rows(rows, generator)
        for side, numbers, part in ((u, u_words, slice(1)), (v, v_words, slice(1, None))):
            values = torch.cat(words[part])
            side[i, 2 : 2 + len(values)], numbers[i, 2 : 2 + len(values)] = values, numbered(rows[part])
    for method in ("exact", "approximate"):
        options = {"alternative": alternative, "method": method, "replicates": 300}
        batch = (WordSet(*(t.to(device) for t in (s, ~s.isnan(), words))) for s, words in ((u, u_words), (v, v_words)))
        p = permutation_p_value(*batch, **options)
        for i in range(len(kinds)):
            sides = [
                (side[i][~side[i].isnan()], words[i][~side[i].isnan()]) for side, words in ((u, u_words), (v, v_words))
            ]
            one = (WordSet(s.to(device), words=words.to(device)) for s, words in sides)
            alone = permutation_p_value(*one, **options)
            assert p[i] == alone
            if method == "exact":
                arrays = [s[w == n].numpy() for s, w in sides for n in w.unique()]
                d = partitions(arrays, 1, difference)
                assert p[i].item() == pytest.approx(extreme(d, d[0], alternative), rel=1e-14)


@pytest.mark.parametrize("method", ["auto", "approximate"])
def test_one_row_a_word_is_what_it_was(method, generator, device):
    u, v = (torch.randn(4, n, generator=generator, dtype=torch.float64).to(device) for n in (5, 6))
    mask = torch.rand(4, 5, generator=generator).to(device) < 0.7
    options = {"method": method, "replicates": 200}
    own, others = torch.arange(5, device=device), WordSet(v, words=torch.arange(6, device=device))
    for given in (None, mask):
        plain, numbered = WordSet(u, given), WordSet(u, given, own)
        p = permutation_p_value(plain, v, **options)
        assert torch.equal(permutation_p_value(numbered, others, **options), p)
        assert torch.equal(permutation_p_value(numbered, v, **options), p)
        assert torch.equal(sign_flip_p_value(numbered, **options), sign_flip_p_value(plain, **options))


def test_the_number_of_words_decides_what_is_exact(generator):
    u, v = (torch.randn(160, generator=generator, dtype=torch.float64) for _ in range(2))
    sixteen = torch.arange(160) // 10
    p = permutation_p_value(WordSet(u, words=sixteen), WordSet(v, words=sixteen))
    means = (s.view(16, 10).mean(-1) for s in (u, v))
    assert p.item() == pytest.approx(permutation_p_value(*means, method="exact").item(), rel=1e-6)
    unequal = WordSet(u[1:], words=sixteen[1:]), WordSet(v, words=sixteen)
    means = torch.stack([u[1:10].mean(), *u[10:].view(15, 10).mean(-1)]), v.view(16, 10).mean(-1)
    assert permutation_p_value(*unequal) == permutation_p_value(*means)


def test_ties_of_words_with_several_rows_are_kept(generator):
    """Repeated rows change no exact p-value, also where means of integers over rows are not exact."""
    for _ in range(30):
        u, v = (torch.randint(-3, 4, (n,), generator=generator).double() / 3 for n in (4, 5))
        sides = []
        for side in u, v:
            rows = torch.randint(1, 5, (len(side),), generator=generator)
            numbers = torch.arange(len(side)).repeat_interleave(rows)
            sides.append(WordSet(side[numbers], words=numbers))
        for alternative in ALTERNATIVES:
            options = {"alternative": alternative, "method": "exact"}
            assert permutation_p_value(*sides, **options) == permutation_p_value(u, v, **options)


@every_rows
@every_side
def test_signs_of_pairs_with_all_their_rows(rows, alternative, generator, device):
    pairs = word_rows(rows, generator)
    signs = np.array(list(itertools.product([1, -1], repeat=len(rows))))
    flipped = np.array([mean([s * p.numpy() for s, p in zip(row, pairs, strict=True)]) for row in signs])
    r, words = shuffled(torch.cat(pairs), numbered(rows), generator)
    p = sign_flip_p_value(WordSet(r.to(device), words=words.to(device)), alternative=alternative)
    assert p.item() == pytest.approx(extreme(flipped, flipped[0], alternative), rel=1e-14)
    wide = torch.nn.functional.pad(r, (2, 1), value=torch.nan).to(device)
    wide = WordSet(wide, ~wide.isnan(), torch.nn.functional.pad(words, (2, 1)).to(device))
    assert sign_flip_p_value(wide, alternative=alternative) == p


TARGETS = {"rnd": (association.rnd, rnd_of), "ect": (association.ect, ect_of)}


@every_rows
@every_side
@pytest.mark.parametrize(("metric", "oracle"), TARGETS.values(), ids=TARGETS.keys())
def test_targets_with_all_their_rows(metric, oracle, rows, alternative, generator, device):
    words, a = word_rows(rows, generator, 4), torch.randn(5, 4, generator=generator, dtype=torch.float64)
    attributes = [word.numpy()[None] for word in a]
    scores = partitions([w.numpy() for w in words], 3, lambda x, y: oracle(x, y, attributes))
    (x, x_words), (y, y_words) = (
        shuffled(torch.cat(words[part]), numbered(rows[part]), generator) for part in (slice(3), slice(3, None))
    )
    x, y, a = (t.to(device) for t in (x, y, a))
    x_words, y = x_words.to(device), WordSet(y, words=y_words.to(device))
    p = target_permutation_p_value(metric, WordSet(x, words=x_words), y, a, alternative=alternative)
    exact = extreme(scores, scores[0], alternative)
    assert p.item() == pytest.approx(exact, rel=1e-14)
    drawn = functools.partial(target_permutation_p_value, metric, alternative=alternative, replicates=2000)
    p = drawn(WordSet(x, words=x_words), y, a, method="approximate")
    assert abs(p.item() - exact) <= 4 * (exact * (1 - exact) / 2000) ** 0.5 + 1e-3
    wide = torch.nn.functional.pad(x, (0, 0, 2, 1), value=torch.nan)
    wide = WordSet(wide, ~wide.isnan().any(-1), torch.nn.functional.pad(x_words, (2, 1)))
    assert drawn(wide, y, a, method="approximate") == p


@every_rows
def test_groups_with_all_their_rows(rows, generator, device):
    """Each shuffle deals the words of three groups anew, and a word brings all its rows."""
    sizes = [rows[:2], rows[2:5], rows[5:]]
    groups = [word_rows(size, generator, 4) for size in sizes]
    a = torch.randn(3, 4, 4, generator=generator, dtype=torch.float64)
    words = [word for group in groups for word in group]
    scores = []
    for order in itertools.permutations(range(7)):
        if all(order[i] < order[i + 1] for i in (0, 2, 3, 5)):  # each deal once
            deal = [[words[i] for i in order[start:end]] for start, end in ((0, 2), (2, 5), (5, 7))]
            unit = functools.partial(torch.nn.functional.normalize, dim=-1)
            means = [torch.stack([unit(word).mean(0) for word in d]).mean(0) for d in deal]
            centres = torch.nn.functional.normalize(a, dim=-1).mean(1)
            scores.append(
                ((torch.stack(means) - torch.stack(means).mean(0)) * (centres - centres.mean(0))).sum().item()
            )
    width = max(map(sum, sizes))
    x, mask = torch.full((3, width, 4), torch.nan, dtype=torch.float64), torch.zeros(3, width, dtype=torch.bool)
    numbers = torch.zeros(3, width, dtype=torch.int64)
    for g, (group, size) in enumerate(zip(groups, sizes, strict=True)):
        x[g, : sum(size)], numbers[g, : sum(size)] = torch.cat(group), numbered(size)
        mask[g, : sum(size)] = True
    x = WordSet(*(t.to(device) for t in (x, mask, numbers)))
    p = group_permutation_p_value(x, a.to(device), replicates=4000).item()
    exact = extreme(np.array(scores), scores[0], "greater")
    assert abs(p - exact) <= 4 * (exact * (1 - exact) / 4000) ** 0.5 + 1e-3


def test_rows_of_a_word_share_its_weight(device):
    count = 4
    words = torch.arange(count).repeat_interleave(torch.arange(count) + 1).to(device)
    sample = word_sample(None, words, torch.Size([len(words)]), device)
    drawn = word_weights([sample], 40, 3)[0]
    rows = sample.reweighted(drawn)
    for row, weights in zip(rows, drawn, strict=True):
        for word in range(count):
            assert row[words == word].unique().numel() == 1
        assert float(row.mean()) == pytest.approx(1)
        assert float(row[words == 1][0] / row[0]) == pytest.approx(float(weights[1] / weights[0]))
    without = sample.without(0, len(words))
    for word in range(count):
        assert (without[word][words == word] == 0).all() and float(without[word].mean()) == pytest.approx(1)
    assert (without[count:] == 1).all()  # no such words


def test_copies_of_a_row_change_no_interval(generator, device):
    """Three copies of every vector are the same words, also as pairs, as tuples and in groups."""
    copies = functools.partial(torch.repeat_interleave, repeats=3)
    for metric, shapes in (
        (association.weat_effect_size, [(4, 5), (3, 5), (5, 5), (6, 5)]),
        (association.ripa, [(4, 5), (4, 5), (5, 5)]),
        (association.mac, [(4, 5), (2, 3, 5)]),
        (association.same, [(4, 5), (2, 3, 5)]),
        (association.direct_bias, [(4, 5), (2, 3, 5)]),
    ):
        sets = [torch.randn(shape, generator=generator, dtype=torch.float64).to(device) for shape in shapes]
        few = bootstrap_interval(metric, *sets, replicates=40)
        copied = []
        for each in sets:
            words = copies(torch.arange(each.shape[-2], device=device), dim=0)
            copied.append(WordSet(copies(each, dim=-2), words=words.expand(*each.shape[:-2], -1)))
        many = bootstrap_interval(metric, *copied, replicates=40)
        torch.testing.assert_close([*many], [*few], rtol=1e-9, atol=1e-12)


def test_errors_of_words():
    u = torch.zeros(4)
    for words, kind, message in (
        ([0, 0, 1, 1], TypeError, "u.words: got a list, wanted a tensor; write torch.as_tensor(u.words)"),
        (u, TypeError, "u.words: got torch.float32, wanted an integer dtype: the id of each row's word"),
        (torch.zeros(3).long(), ValueError, "u.words: got shape (3,), wanted (..., 4), one for each row"),
    ):
        with raises(kind, message):
            permutation_p_value(WordSet(u, words=words), u)
    with raises(ValueError, "leading dimensions do not broadcast: (3,) of r.words, (2,) of r"):
        sign_flip_p_value(WordSet(torch.zeros(2, 4), words=torch.zeros(3, 4).long()))


# In words: a model whose words have several rows.


def contexts_of(words, counts, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = word_rows([counts[i % len(counts)] for i in range(len(words))], generator, 6)
    return WordEmbeddingModel.from_contexts(dict(zip(words, rows, strict=True)), "contexts")


WORDS = [f"{side}{i}" for side in "xyab" for i in range(3)]
SETS = [[f"{side}{i}" for i in range(3)] for side in "xyab"]
every_counts = pytest.mark.parametrize("counts", [[3], [1, 4, 2]], ids=["equal", "unequal"])


def rows_of(model, words):
    return [model.vectors[model.rows(word)] for word in words]


@every_counts
@every_side
def test_p_values_in_words_with_contexts(counts, alternative):
    model = contexts_of(WORDS, counts)
    x, y, a, b = (rows_of(model, words) for words in SETS)
    options = {"calculate_p_value": True, "p_value_test_type": TYPES[alternative]}
    numpy = [word.numpy() for word in x + y]
    unit = functools.partial(torch.nn.functional.normalize, dim=-1)
    axis = mean([unit(word).numpy() for word in a]) - mean([unit(word).numpy() for word in b])
    attributes = [word.numpy() for word in a]
    lengths = functools.partial(np.linalg.norm, axis=-1)
    d = partitions([word @ axis / lengths(word) for word in numpy], 3, difference)
    found = WEAT(**options).run_query(Query(SETS[:2], SETS[2:]), model)["p_value"]
    assert found == pytest.approx(extreme(d, d[0], alternative), rel=1e-14)
    for metric, score in ((RND, rnd_of), (ECT, ect_of)):
        scores = partitions(numpy, 3, lambda u, v, score=score: score(u, v, attributes))
        found = metric(**options).run_query(Query(SETS[:2], SETS[2:3]), model)["p_value"]
        assert found == pytest.approx(extreme(scores, scores[0], alternative), rel=1e-14)


def test_pairs_and_single_words_with_contexts():
    pairs = contexts_of(["x0", "y0", "a0"], [3])
    several = contexts_of(WORDS, [3])
    x, y, a = (torch.stack(rows_of(several, words)).numpy() for words in SETS[:3])
    directions = (x - y) / np.linalg.norm(x - y, axis=-1, keepdims=True)  # (pairs, rows, D)
    of_pair = (directions @ a.reshape(-1, 6).mean(0)).mean(-1)
    flipped = [np.mean(np.array(signs) * of_pair) for signs in itertools.product([1, -1], repeat=3)]
    query = Query(SETS[:2], SETS[2:3])
    p = RIPA(calculate_p_value=True).run_query(query, several)["p_value"]
    assert p == pytest.approx(extreme(np.array(flipped), flipped[0], "greater"), rel=1e-14)
    assert RIPA(calculate_p_value=True).run_query(Query([["x0"], ["y0"]], [["a0"]]), pairs)["p_value"] in (0.5, 1)

    model = contexts_of(WORDS, [1, 4, 2])
    w, a, b = (rows_of(model, words) for words in (SETS[0], *SETS[2:]))
    unit = torch.nn.functional.normalize
    found = SCWEAT(calculate_p_value=True).run_query(Query(SETS[:1], SETS[2:]), model)["p_value_by_word"]
    for name, word in zip(SETS[0], w, strict=True):
        cosines = [(unit(word, dim=-1) @ unit(rows, dim=-1).T).mean(0).numpy() for rows in a + b]
        d = partitions(cosines, 3, difference)
        assert found[name] == pytest.approx(extreme(d, d[0], "greater"), rel=1e-14)


COUNTED = {WEAT: {"return_effect_size": True}, GWEAT: {"p_value_iterations": 200}}  # the score of WEAT is a sum of rows
ALL = (WEAT, RND, ECT, RIPA, SCWEAT, GWEAT, MAC, SAME, DirectBias)


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.__name__)
@pytest.mark.parametrize("kind", ["contexts", "templates", "all forms"])
def test_copies_of_rows_change_no_interval_and_no_p_value(metric, kind):
    """A model in which every word has three equal rows answers as one with one row a word."""
    targets, attributes = (2 if size == "n" else size for size in metric.metric_template)
    query = Query(SETS[:targets], SETS[2 : 2 + attributes])
    table = torch.randn(len(WORDS), 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    once, look_up = WordEmbeddingModel.from_tensor(table, WORDS), {}
    if kind == "contexts":
        copied = WordEmbeddingModel.from_contexts(dict(zip(WORDS, table.unsqueeze(1).expand(-1, 3, -1), strict=True)))
    elif kind == "templates":

        def encode(strings):
            return torch.stack([table[next(i for i, word in enumerate(WORDS) if word in s)] for s in strings])

        copied = WordEmbeddingModel.from_encoder(encode, templates=("{}", "a {} .", "one {} !"))
    else:
        forms = [prefix + word for prefix in ("", "!", "?") for word in WORDS]
        copied = WordEmbeddingModel.from_tensor(table.repeat(3, 1), forms)
        look_up = {"strategy": "all", "preprocessors": [{}, *({"preprocessor": mark.__add__} for mark in "!?")]}
    tested = {"calculate_p_value": True} if "calculate_p_value" in metric._option_names() else {}
    options = {"replicates": 30, **COUNTED.get(metric, {}), **tested}
    one, many = metric().run_query(query, once, **options), metric().run_query(query, copied, **options, **look_up)
    assert many["low"] < many["high"] and many["result"] == pytest.approx(one["result"], rel=1e-9)
    for key in one.keys() & {"p_value", "low", "high"}:
        assert many[key] == pytest.approx(one[key], rel=1e-9, abs=1e-12), key
    for word, p in one.get("p_value_by_word", {}).items():
        assert many["p_value_by_word"][word] == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize("metric", [WEAT, RND, RIPA, GWEAT], ids=lambda metric: metric.__name__)
def test_many_queries_are_the_queries_with_contexts(metric):
    """Batches, whose sets differ in rows and words, ask the same test as one query after the other."""
    words = [f"w{i}" for i in range(14)]
    model = contexts_of(words, [2] if metric is RIPA else [1, 2, 1, 3])
    sets = [words[:4], words[4:8], words[8:11], words[11:]]
    attributes = 2 if metric.metric_template[1] in (2, "n") else 1
    chosen = (0, 1, 2, 3), (2, 3, 0, 1)
    queries = [
        Query([sets[i] for i in order[:2]], [sets[i] for i in order[2 : 2 + attributes]], ["t", f"u{order}"])
        for order in chosen
    ]
    options = {"calculate_p_value": True, "p_value_iterations": 300, "replicates": 20}
    for value in ("p_value", "low"):
        table = run_queries(metric, queries, [model], metric_params=options, value=value, as_dataframe=False)
        alone = [metric(**options).run_query(query, model)[value] for query in queries]
        np.testing.assert_allclose(table.values[0].cpu().numpy(), alone, rtol=1e-12)


def false_positives_and_coverage(counts, generator, words=16, tables=300, replicates=199):
    """Targets of one population in each of `tables`: shares of p <= .05, and of intervals that hold the truth, 0."""
    rows = [counts[i % len(counts)] for i in range(words)]
    of_word = torch.tensor([i for i, count in enumerate(rows) for _ in range(count)])
    effects = torch.randn(2, tables, words, 1, 1, generator=generator, dtype=torch.float64)[:, :, of_word]
    noise = 0.3 * torch.randn(2, tables, len(of_word), 1, 1, generator=generator, dtype=torch.float64)
    u, v = (effects + noise).flatten(2)
    u, v = (WordSet(s, torch.ones_like(of_word, dtype=torch.bool), of_word) for s in (u, v))
    exchanged = permutation_p_value(u, v, method="approximate", replicates=replicates)

    def gap(x, y):  # means of the rows, as often as they are drawn
        means = [(s[..., 0] * m).sum(-1) / m.sum(-1) for s, m, _ in (x, y)]
        return means[0] - means[1]

    _, low, high = bootstrap_interval(gap, *(s._replace(values=s.values.unsqueeze(-1)) for s in (u, v)), replicates=400)
    return (exchanged <= 0.05).double().mean().item(), ((low <= 0) & (high >= 0)).double().mean().item()


@pytest.mark.slow
@pytest.mark.parametrize("counts", [[1], [5], [10], [1, 5, 10], [2, 9]], ids=str)
def test_p_values_and_intervals_say_what_they_mean_where_words_have_several_rows(counts, generator):
    rejected, covered = false_positives_and_coverage(counts, generator, words=25, tables=2000)
    assert abs(rejected - 0.05) <= 0.015 and 0.9 <= covered <= 0.98, (rejected, covered)


def test_words_of_two_sets_are_no_words_of_one():
    first, second = torch.tensor([[7, 7]]), torch.tensor([[7, 3, 3, 9]])
    joined = joined_words(torch.Size([1]), (first, 2, first.device), (second, 4, first.device))
    assert len(joined.unique()) == 4 and joined[0, 0] == joined[0, 1] and joined[0, 3] == joined[0, 4]
    joined = joined_words(torch.Size([1]), (first, 2, first.device), (None, 4, first.device))
    assert len(joined.unique()) == 5 and joined[0, 0] == joined[0, 1]
    assert joined_words(torch.Size([1]), (None, 2, first.device), (None, 4, first.device)) is None
