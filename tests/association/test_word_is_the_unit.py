"""Words are the units: the number of their rows, the order of rows and their origin change no result."""

import numpy as np
import pytest
import torch
from metric_cases import answer

from tensormetrics import association
from tensormetrics.association import Query, WordEmbeddingModel, functional, run_queries
from tensormetrics.association.functional import WordSet

METRICS = {
    "WEAT": (association.WEAT, 2, 2),
    "WEAT, effect size": (lambda **options: association.WEAT(return_effect_size=True, **options), 2, 2),
    "SCWEAT": (association.SCWEAT, 1, 2),
    "MLEAT": (association.MLEAT, 2, 2),
    "RND": (association.RND, 2, 1),
    "RND, cos": (lambda **options: association.RND(distance="cos", **options), 2, 1),
    "ECT": (association.ECT, 2, 1),
    "MAC": (association.MAC, 2, 2),
    "RNSB": (association.RNSB, 2, 2),
    "RIPA": (association.RIPA, 2, 1),
    "SAME": (association.SAME, 1, 2),
    "DirectBias": (association.DirectBias, 1, 2),
    "GWEAT": (association.GWEAT, 2, 2),
}
SETS = [[f"{name}{i}" for i in range(4)] for name in "xyab"]
WORDS = sum(SETS, [])


def rows_of_words(counts, seed=0):
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(len(WORDS), 6, generator=generator, dtype=torch.float64)
    means[:4] += means[8]
    rows = (
        mean + 0.5 * torch.randn(counts[i % len(counts)], 6, generator=generator, dtype=torch.float64)
        for i, mean in enumerate(means)
    )
    return dict(zip(WORDS, rows, strict=True))


def flat_results(name, contexts, orders=None, **options):
    """Run a query and return all its numbers by name; `orders` reorders the words of a set."""
    make, targets, attributes = METRICS[name] if name in METRICS else (getattr(association, name), 2, 2)
    orders = orders or {}
    sets = [[words[i] for i in orders.get(index, range(4))] for index, words in enumerate(SETS)]
    query = Query(sets[:targets], sets[2 : 2 + attributes])
    model = contexts if isinstance(contexts, WordEmbeddingModel) else WordEmbeddingModel.from_contexts(contexts)
    result, flat = answer(make(**options, **ALL_FORMS if "!x0" in model.vocab else {}), query, model), {}

    def collect(key, value):
        if isinstance(value, dict):
            for inner, nested in value.items():
                collect(f"{key}/{inner}", nested)
        elif not isinstance(value, str):
            flat[key] = float(value)

    collect("", result)
    return flat


def check_equal(one, other, **tolerance):
    assert one.keys() == other.keys()
    for key, value in one.items():
        assert value == pytest.approx(other[key], nan_ok=True, **{"rel": 1e-12, "abs": 1e-12, **tolerance}), key


@pytest.mark.parametrize("name", METRICS)
def test_run_query_repeated_rows_change_nothing(name):
    contexts = rows_of_words([1, 4, 2])
    repeated = {word: rows.repeat(1 + 3 * (i % 3), 1) for i, (word, rows) in enumerate(contexts.items())}
    check_equal(flat_results(name, repeated), flat_results(name, contexts))


def on_demand(contexts, computed_first=()):
    """Return a model that computes three rows per word on demand, those of some words in advance."""

    def encode(strings):
        return torch.stack([contexts[string.split()[0]][int(string.split()[1])] for string in strings])

    model = WordEmbeddingModel.from_encoder(encode, templates=["{} 0", "{} 1", "{} 2"], batch_size=5)
    for word in computed_first:
        model.rows(word)
    return model


def forms(contexts):
    """Return a model in which the rows of a word are those of its forms."""
    table = {mark + word: rows[i] for i, mark in enumerate(("", "!", "?")) for word, rows in contexts.items()}
    return WordEmbeddingModel.from_tensor(torch.stack([*table.values()]), [*table])


ALL_FORMS = {"strategy": "all", "preprocessors": [{}, *({"preprocessor": mark.__add__} for mark in "!?")]}
VARIANTS = {
    "repeated rows": lambda contexts: ({word: rows.repeat(3, 1) for word, rows in contexts.items()}, None),
    "words in another order": lambda contexts: (contexts, dict.fromkeys(range(4), (2, 0, 3, 1))),
    "rows asked for in another order": lambda contexts: (on_demand(contexts, WORDS[::-1]), None),
    "rows computed on demand": lambda contexts: (on_demand(contexts), None),
    "rows of forms": lambda contexts: (forms(contexts), None),
}
DRAWS = 2000
TESTED = ["WEAT", "SCWEAT", "MLEAT", "RND", "RND, cos", "ECT", "RIPA", "GWEAT"]


@pytest.mark.parametrize("name", TESTED)
@pytest.mark.parametrize("variant", VARIANTS)
def test_p_values_do_not_depend_on_rows_of_words(name, variant):
    """Exact p-values are equal; approximate ones of reordered words agree within four standard errors."""
    contexts = rows_of_words([3], seed=2)
    changed, orders = VARIANTS[variant](contexts)
    options = {"p_value": True, "permutations": DRAWS}
    got, expected = flat_results(name, changed, orders, **options), flat_results(name, contexts, **options)
    keys = [key for key in expected if key.startswith("/p_value")]
    assert keys and all(0 < expected[key] <= 1 for key in keys)
    for key in keys:
        p = expected[key]
        margin = 4 * (2 * p * (1 - p) / DRAWS) ** 0.5 if name == "GWEAT" and orders else 1e-12
        assert abs(got[key] - p) <= margin, key


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.filterwarnings("ignore:rnd of sets of")
def test_results_and_intervals_do_not_depend_on_rows_of_words(name, variant):
    """The bounds change by sampling error only: four standard errors of a quantile are a tenth of the interval."""
    contexts = rows_of_words([3], seed=2)
    changed, orders = VARIANTS[variant](contexts)
    options = {"replicates": 200 if name == "RNSB" else DRAWS}
    got, expected = flat_results(name, changed, orders, **options), flat_results(name, contexts, **options)
    width = expected["/high"] - expected["/low"]
    assert width > 0
    margin = width * (0.3 if name == "RNSB" else 0.1) if orders else 1e-9
    for end in ("/low", "/high"):
        assert abs(got.pop(end) - expected.pop(end)) <= margin, end
    if variant == "rows of forms":  # which have values of their own
        got, expected = ({key: x for key, x in result.items() if key.count("/") == 1} for result in (got, expected))
    check_equal(got, expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_ceat_changes_by_sampling_error_of_contexts_only(variant):
    """CEAT samples contexts by position, but its p-value, effect size and interval depend on words."""
    contexts = rows_of_words([3], seed=2)
    changed, orders = VARIANTS[variant](contexts)
    options = {"samples": 500, "p_value": True, "replicates": DRAWS}
    got, expected = flat_results("CEAT", changed, orders, **options), flat_results("CEAT", contexts, **options)
    for key in ("/p_value", "/effect_size"):
        assert got[key] == pytest.approx(expected[key], rel=1e-12)
    if variant in ("rows asked for in another order", "rows computed on demand"):
        check_equal(got, expected)
    error = 4 * (got["/standard_error"] ** 2 + expected["/standard_error"] ** 2) ** 0.5
    assert abs(got["/ceat"] - expected["/ceat"]) <= error
    for end in ("/low", "/high"):
        assert abs(got[end] - expected[end]) <= 0.1 * (expected["/high"] - expected["/low"])


def test_weat_word_of_two_rows_counts_once():
    """A word of two rows has the mean of their associations."""
    x = WordSet(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), words=torch.tensor([5, 5, 2]))
    y, a, b = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    # Associations are 1, -1, 1 for the rows of x, 0 and 1 for its words, and -1 for y.
    assert functional.weat(x, y, a, b) == 0 + 1 - (-1)
    mean_difference, values = 0.5 + 1, np.array([0, 1, -1])
    assert float(functional.weat_effect_size(x, y, a, b)) == pytest.approx(mean_difference / values.std())


def test_weat_unit_row_counts_each_row():
    contexts = rows_of_words([1, 4, 2])
    model = WordEmbeddingModel.from_contexts(contexts)
    query = Query(SETS[:2], SETS[2:])
    by_row = functional.weat(*(torch.cat([contexts[word] for word in words]) for words in SETS))
    result = answer(association.WEAT(unit="row"), query, model)
    assert (
        result["weat"]
        == pytest.approx(float(by_row))
        != pytest.approx(answer(association.WEAT(), query, model)["weat"])
    )
    options = {"replicates": 50}
    by_word = answer(association.WEAT(**options), query, model)
    of_rows = answer(association.WEAT(unit="row", **options), query, model)
    assert of_rows["low"] < of_rows["weat"] < of_rows["high"] and of_rows["low"] != by_word["low"]
    with pytest.raises(ValueError, match="^unit: got 'token', wanted one of 'word', 'row'"):
        association.WEAT(unit="token")
    with pytest.raises(ValueError, match="^unit: got 'row', wanted one of 'word'"):
        association.CEAT(unit="row")


def test_run_queries_unit_row_of_models_with_unequal_rows_raises():
    models = [WordEmbeddingModel.from_contexts(rows_of_words([count]), f"{count}") for count in (1, 3)]
    query = Query(SETS[:2], SETS[2:])
    with pytest.raises(ValueError, match="^unit: got 'row'"):
        run_queries(association.WEAT(unit="row"), [query], models)
    assert run_queries(association.WEAT, [query], models).caption is None


@pytest.mark.parametrize("accepts_weights", [True, False])
def test_rnsb_estimator_counts_words_by_sample_weights(accepts_weights):
    """The estimator gets weights of the rows if it accepts `sample_weight`; otherwise RNSB raises an error."""
    linear_model = pytest.importorskip("sklearn.linear_model")

    class Estimator(linear_model.LogisticRegression):
        def fit(self, x, y, **options):
            return super().fit(x, y, **options)

    if accepts_weights:
        Estimator.fit = linear_model.LogisticRegression.fit
    one = {word: rows[:1] for word, rows in rows_of_words([1]).items()}
    several = {word: rows.repeat(1 + i % 3, 1) for i, (word, rows) in enumerate(one.items())}
    options = {"estimator": Estimator, "estimator_params": {"tol": 1e-12, "max_iter": 1000}}
    if accepts_weights:
        check_equal(flat_results("RNSB", several, **options), flat_results("RNSB", one, **options), rel=1e-5)
        assert flat_results("RNSB", several, **options)["/result"] > 0
        return
    with pytest.raises(ValueError, match="^estimator: got Estimator for words with several rows"):
        flat_results("RNSB", several, **options)
    assert flat_results("RNSB", several, unit="row", **options)["/result"] > 0


@pytest.mark.parametrize("name", ["RIPA", "DirectBias"])
def test_tuples_of_words_with_coprime_row_counts_use_all_combinations(name):
    """If the row counts have no common factor, each row of a word forms a pair with each row of the other word."""
    contexts = rows_of_words([3])
    contexts = {word: rows[: 2 if word[0] in "yb" else 3] for word, rows in contexts.items()}
    if name == "RIPA":
        directions = [
            np.mean([(x - y) / np.linalg.norm(x - y) for x in contexts[p].numpy() for y in contexts[q].numpy()], 0)
            for p, q in zip(SETS[0], SETS[1], strict=True)
        ]
        attributes = [contexts[word].numpy().mean(0) for word in SETS[2]]
        expected = np.mean(attributes, 0) @ np.mean(directions, 0)
    else:
        rows = []
        for p, q in zip(SETS[2], SETS[3], strict=True):
            pairs = [
                (a / np.linalg.norm(a), b / np.linalg.norm(b)) for a in contexts[p].numpy() for b in contexts[q].numpy()
            ]
            rows += [(v - (a + b) / 2) / len(pairs) ** 0.5 for a, b in pairs for v in (a, b)]
        direction = np.linalg.svd(np.array(rows))[2][0]
        cosines = [[abs(v @ direction) / np.linalg.norm(v) for v in contexts[word].numpy()] for word in SETS[0]]
        expected = np.mean([np.mean(of_word) for of_word in cosines])
    assert flat_results(name, contexts)["/result"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("rows_of_pair", [(1, 1), (3, 2), (1, 4)])
def test_ripa_copies_of_rows_change_neither_p_value_nor_interval(rows_of_pair):
    """The unit is the pair of words, whatever the row counts of its words."""
    one = {word: rows[:1] for word, rows in rows_of_words([1]).items()}
    x, y = rows_of_pair
    copies = {word: rows.repeat({"x": x, "y": y}.get(word[0], 1), 1) for word, rows in one.items()}
    options = {"p_value": True, "replicates": 100}
    check_equal(flat_results("RIPA", copies, **options), flat_results("RIPA", one, **options))
