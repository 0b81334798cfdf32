"""p-values corrected by max-t draw words, so that it does not matter in which order a query lists them."""

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
SETS = [[f"{side}{i}" for i in range(5)] for side in "xyab"]
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
    params = {"calculate_p_value": True, "p_value_method": "approximate", "p_value_iterations": DRAWS, **options}
    asked = {"metric_params": params, "value": "p_value", "correction": correction, "as_dataframe": False}
    return run_queries(METRICS[name][0], queries, [model], **asked).values[0]


def query_in_order(name, number, order, attribute_order):
    _, targets, attributes = METRICS[name]
    orders = [order, order if name == "RIPA" else order[::-1]]  # pairs stay together
    sets = [[words[i] for i in each] for words, each in zip(SETS, orders, strict=False)]
    of_attributes = [[words[i] for i in attribute_order] for words in SETS[2 : 2 + attributes]]
    return Query(sets, of_attributes, ["X", "Y"][:targets], [f"{number}, {i}" for i in range(attributes)])


@pytest.mark.parametrize("rows_of_words", [[1], [3]], ids=["a row a word", "three rows a word"])
@pytest.mark.parametrize("name", METRICS)
def test_max_t_of_one_query_in_eight_orders_equals_that_of_one(name, rows_of_words, generator):
    model = model_of(rows_of_words, seed=3)
    orders = [(torch.randperm(5, generator=generator).tolist(), torch.randperm(5, generator=generator).tolist())]
    orders = [(list(range(5)), list(range(5)))] + orders
    orders += [(torch.randperm(5, generator=generator).tolist(), list(range(5))) for _ in range(6)]
    queries = [query_in_order(name, number, *order) for number, order in enumerate(orders)]
    together = p_values(name, queries, model, "max-t")
    alone = p_values(name, queries[:1], model, "max-t")
    assert torch.equal(together, alone.expand(8))
    raw = p_values(name, queries[:1], model)
    assert (alone - raw).abs() <= 4 * (2 * raw * (1 - raw) / DRAWS).sqrt()


def test_max_t_of_shared_words_at_other_positions_draws_them_together():
    """Two sets that share all words but one: their scores rise and fall together, wherever the words stand."""
    model = model_of([1], seed=5)
    x, y, a, b = SETS
    first = Query([x[:4], y[:4]], [a, b], ["first", "Y"], ["A", "B"])
    second = Query([x[3::-1], y[4:0:-1]], [a, b], ["second", "Y"], ["A", "B"])
    alike = p_values("WEAT", [first, second], model, "max-t")
    listed = p_values("WEAT", [first, Query([x[:4], y[1:]], [a, b], ["second", "Y"], ["A", "B"])], model, "max-t")
    assert torch.equal(alike, listed)


def test_max_t_of_a_word_in_both_targets_has_the_size_of_the_raw_p_value():
    """Each of the two is a word of its own, whose random numbers differ."""
    model = model_of([1], seed=7)
    x, y, a, b = SETS
    query = Query([[*x, y[0]], [*y, x[0], x[1]]], [a, b])
    corrected, raw = p_values("WEAT", [query], model, "max-t"), p_values("WEAT", [query], model)
    assert (corrected - raw).abs() <= 4 * (2 * raw * (1 - raw) / DRAWS).sqrt()


@pytest.mark.parametrize("name", ["WEAT", "RND", "RIPA", "GWEAT"])
def test_max_t_of_words_with_several_forms_moves_the_word(name):
    """Under strategy="all" forms of a word are rows of it, which move together."""
    model = model_of([1], seed=9)
    table = {word: torch.as_tensor(model[word]) for word in model.vocab}
    both = WordEmbeddingModel.from_tensor(
        torch.stack([*table.values(), *table.values()]), [*table, *(word.upper() for word in table)], "model"
    )
    query = query_in_order(name, 0, [2, 0, 1, 4, 3], [0, 1, 2, 3, 4])
    options = {"preprocessors": [{}, {"uppercase": True}], "strategy": "all"}
    assert torch.equal(p_values(name, [query], both, "max-t", **options), p_values(name, [query], model, "max-t"))
