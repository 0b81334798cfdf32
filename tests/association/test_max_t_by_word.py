"""p-values corrected by max-t permute words, so that the order of words in a query does not matter."""

import pytest
import torch

from tensormetrics import association
from tensormetrics.association import Query, WordEmbeddingModel, run_queries

METRICS = {
    "WEAT": (association.WEAT, 2, 2),
    "MLEAT": (association.MLEAT, 2, 2),
    "RND": (association.RND, 2, 1),
    "ECT": (association.ECT, 2, 1),
    "RIPA": (association.RIPA, 2, 1),
    "GWEAT": (association.GWEAT, 2, 2),
}
SETS = [[f"{name}{i}" for i in range(5)] for name in "xyab"]
DRAWS = 2000


def model_of(rows_of_words, seed):
    generator = torch.Generator().manual_seed(seed)
    contexts = {}
    for i, word in enumerate(sum(SETS, [])):
        mean = torch.randn(8, generator=generator, dtype=torch.float64)
        noise = torch.randn(rows_of_words[i % len(rows_of_words)], 8, generator=generator, dtype=torch.float64)
        contexts[word] = mean + 0.3 * noise
    return WordEmbeddingModel.from_contexts(contexts, "model")


def p_values(name, queries, model, correction=None, **options):
    params = {"p_value": True, "method": "approximate", "permutations": DRAWS, **options}
    table = run_queries(METRICS[name][0](**params), queries, [model], value="p_value", correction=correction)
    return torch.tensor(table.cells[0], dtype=torch.float64)


def query_in_order(name, index, order, attribute_order):
    _, targets, attributes = METRICS[name]
    orders = [order, order if name == "RIPA" else order[::-1]]  # pairs stay together
    sets = [[words[i] for i in set_order] for words, set_order in zip(SETS, orders, strict=False)]
    of_attributes = [[words[i] for i in attribute_order] for words in SETS[2 : 2 + attributes]]
    return Query(sets, of_attributes, ["X", "Y"][:targets], [f"{index}, {i}" for i in range(attributes)])


@pytest.mark.parametrize("rows_of_words", [[1], [3]], ids=["a row a word", "three rows a word"])
@pytest.mark.parametrize("name", METRICS)
def test_max_t_query_in_eight_orders_equals_single_query(name, rows_of_words, generator):
    model = model_of(rows_of_words, seed=3)
    orders = [(torch.randperm(5, generator=generator).tolist(), torch.randperm(5, generator=generator).tolist())]
    orders = [(list(range(5)), list(range(5)))] + orders
    orders += [(torch.randperm(5, generator=generator).tolist(), list(range(5))) for _ in range(6)]
    queries = [query_in_order(name, index, *order) for index, order in enumerate(orders)]
    joint = p_values(name, queries, model, "max-t")
    single = p_values(name, queries[:1], model, "max-t")
    assert torch.equal(joint, single.expand(8))
    raw = p_values(name, queries[:1], model)
    assert (single - raw).abs() <= 4 * (2 * raw * (1 - raw) / DRAWS).sqrt()


def test_max_t_shared_words_at_other_positions_are_permuted_jointly():
    """Scores of queries that share all words but one are correlated, whatever the positions of the words."""
    model = model_of([1], seed=5)
    x, y, a, b = SETS
    first = Query([x[:4], y[:4]], [a, b], ["first", "Y"], ["A", "B"])
    second = Query([x[3::-1], y[4:0:-1]], [a, b], ["second", "Y"], ["A", "B"])
    reordered = p_values("WEAT", [first, second], model, "max-t")
    in_order = p_values("WEAT", [first, Query([x[:4], y[1:]], [a, b], ["second", "Y"], ["A", "B"])], model, "max-t")
    assert torch.equal(reordered, in_order)


def test_max_t_word_in_both_targets_gives_raw_p_value():
    """The two occurrences are separate words with different random numbers."""
    model = model_of([1], seed=7)
    x, y, a, b = SETS
    query = Query([[*x, y[0]], [*y, x[0], x[1]]], [a, b])
    corrected, raw = p_values("WEAT", [query], model, "max-t"), p_values("WEAT", [query], model)
    assert (corrected - raw).abs() <= 4 * (2 * raw * (1 - raw) / DRAWS).sqrt()


@pytest.mark.parametrize("name", ["WEAT", "RND", "RIPA", "GWEAT"])
def test_max_t_forms_of_a_word_are_permuted_jointly(name):
    """Under strategy="all" the forms of a word are its rows, which are permuted jointly."""
    model = model_of([1], seed=9)
    table = {word: torch.as_tensor(model[word]) for word in model.vocab}
    both = WordEmbeddingModel.from_tensor(
        torch.stack([*table.values(), *table.values()]), [*table, *(word.upper() for word in table)], "model"
    )
    query = query_in_order(name, 0, [2, 0, 1, 4, 3], [0, 1, 2, 3, 4])
    options = {"preprocessors": [{}, {"uppercase": True}], "strategy": "all"}
    assert torch.equal(p_values(name, [query], both, "max-t", **options), p_values(name, [query], model, "max-t"))
