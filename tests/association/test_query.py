import json
from pathlib import Path

import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics.association import Query, WordEmbeddingModel
from tensormetrics.association.extend import IndexedQuery

GOLDEN = json.loads((Path(__file__).parent / "golden_doors.json").read_text())


def named(targets, attributes):
    return Query([["w"] for _ in targets], [["v"] for _ in attributes], targets, attributes)


@pytest.mark.parametrize("case", GOLDEN["query_name"], ids=lambda case: case["id"])
def test_query_name_equals_golden_values(case):
    assert named(case["target_names"], case["attribute_names"]).query_name == case["expected"]


def test_query_name_without_attributes_or_names_uses_defaults():
    assert named(["A", "B"], []).query_name == "A and B"
    query = Query([["a"], ["b"]], [["c"]])
    assert query.target_sets_names == ["Target set 0", "Target set 1"]
    assert query.query_name == "Target set 0 and Target set 1 wrt Attribute set 0"
    assert query.template == (2, 1)


@pytest.mark.parametrize("case", GOLDEN["subqueries"], ids=lambda case: case["id"])
def test_get_subqueries_equals_golden_values(case):
    query = named(case["target_names"], case["attribute_names"])
    assert [part.query_name for part in query.get_subqueries(tuple(case["template"]))] == case["expected"]


def test_get_subqueries_template_n_keeps_all_sets():
    query = named(["a", "b"], ["x", "y", "z"])
    assert [part.query_name for part in query.get_subqueries(("n", 2))] == [
        "a and b wrt x and y",
        "a and b wrt x and z",
        "a and b wrt y and z",
    ]
    assert query.get_subqueries(("n", "n")) == [query]
    assert [part.query_name for part in query.get_subqueries((1, 0))] == ["a", "b"]


def test_query_copies_words_of_any_container():
    words = ["a", "a", "b"]
    query = Query((words, np.array(["c"])), [], ("X", "Y"))
    words.append("d")
    assert query.target_sets == [["a", "a", "b"], ["c"]] and type(query.target_sets[1][0]) is str
    assert Query(np.array([["a", "b"], ["c", "d"]]), []).target_sets == [["a", "b"], ["c", "d"]]
    assert Query([[]], []).target_sets == [[]]
    assert named(["A"], ["A"]).query_name == "A wrt A"


def test_query_equality_repr_and_dict():
    query = Query([["a"]], [["b"]], ["T"], ["A"])
    assert query == Query([["a"]], [["b"]], ["T"], ["A"])
    assert query != Query([["a"]], [["b"]], ["T"], ["B"]) and query != "T wrt A"
    assert repr(query) == "<Query: T wrt A\n- Target sets: [['a']]\n- Attribute sets:[['b']]>"
    assert query.dict() == {
        "target_sets": [["a"]],
        "attribute_sets": [["b"]],
        "target_sets_names": ["T"],
        "attribute_sets_names": ["A"],
        "query_name": "T wrt A",
        "template": (1, 1),
    }


def test_query_invalid_arguments_raise():
    twice = "more than once, wanted distinct names"
    for arguments, kind, message in (
        (("ab", []), TypeError, "target_sets: got a str, wanted a list of lists of words"),
        (([["a"]], {"b"}), TypeError, "attribute_sets: got a set, wanted a list of lists of words"),
        (([["a"], "b"], []), TypeError, "target_sets[1]: got a str, wanted a list of words"),
        (([["a"]], [["b"], ["c", 3]]), TypeError, "attribute_sets[1][1]: got a int, wanted a word (str)"),
        (([["a"]], [], [1]), TypeError, "target_sets_names[0]: got a int, wanted a word (str)"),
        (([["a"]], [], "T"), TypeError, "target_sets_names: got a str, wanted a list of words"),
        (([], [["a"]]), ValueError, "target_sets: got 0 sets, wanted at least one"),
        (([["a"]], [], ["T", "U"]), ValueError, "target_sets_names: got 2 names for 1 sets, wanted one for each"),
        (([["a"]], [["b"], ["c"]], ["T"], ["A", "A"]), ValueError, f"attribute_sets_names: got ['A'] {twice}"),
    ):
        with raises(kind, message):
            Query(*arguments)


def test_get_subqueries_invalid_templates_raise():
    for template, kind, message in (
        ((3, 1), ValueError, "got 3 target sets, wanted 1 to 2, as many as 'a and b wrt x' has"),
        ((0, 1), ValueError, "got 0 target sets, wanted 1 to 2, as many as 'a and b wrt x' has"),
        ((1, 2), ValueError, "got 2 attribute sets, wanted 0 to 1, as many as 'a and b wrt x' has"),
        (("m", 1), TypeError, "got 'm' target sets, wanted an integer or 'n'"),
        ((1, True), TypeError, "got True attribute sets, wanted an integer or 'n'"),
        (2, TypeError, "got 2, wanted a pair (target sets, attribute sets)"),
    ):
        with raises(kind, f"template: {message}"):
            named(["a", "b"], ["x"]).get_subqueries(template)


@pytest.fixture
def model(device):
    return WordEmbeddingModel.from_tensor(torch.arange(12.0, device=device).view(6, 2), list("abcdef"))


def test_index_query_gives_rows_and_masks(model, device):
    index = model.index_query(Query([["a", "b", "a"], ["c"]], [["f", "e", "d"]]))
    assert index.targets.tolist() == [[0, 1], [2, 0]] and index.target_mask.tolist() == [[True, True], [True, False]]
    assert index.attributes.tolist() == [[5, 4, 3]] and index.attribute_mask.all()
    assert index.words == ([["a", "b"], ["c"]], [["f", "e", "d"]]) and index.reason is None
    assert index.targets.device == index.target_mask.device == model.vectors.device


def test_index_query_sets_are_unpadded_without_masks(model):
    index = model.index_query(Query([["a", "b"], ["c"]], [["f"], ["e", "d"]]))
    rows = [s.tolist() for s in index.sets(model.vectors)]
    assert rows == [[[0, 1], [2, 3]], [[4, 5]], [[10, 11]], [[8, 9], [6, 7]]]


def test_sets_templates_stack_join_or_deduplicate_words(model):
    index = model.index_query(Query([["a", "b"], ["b"]], [["f"], ["e"]]))
    targets, attributes = index.sets(model.vectors, ("n", "n"))
    assert targets.values.shape == (2, 2, 2) and attributes.tolist() == [[[10, 11]], [[8, 9]]]
    assert targets.mask.tolist() == [[True, True], [True, False]] and targets.words is None
    joined, *_ = index.sets(model.vectors, ("joined", 2))
    assert joined.tolist() == [[0, 1], [2, 3], [2, 3]]
    distinct, *_ = index.sets(model.vectors, ("distinct", 2))
    assert distinct.values[distinct.mask].tolist() == [[0, 1], [2, 3]]
    with raises(ValueError, "template: got (1, 1) for a query of (2, 2) sets"):
        index.sets(model.vectors, (1, 1))


def test_sets_templates_of_batch_join_or_deduplicate_words(model):
    queries = Query([["a", "b"], ["c"]], [["d"], ["e", "f"]]), Query([["a"], ["a", "b"]], [["c"], ["d"]])
    batch = IndexedQuery.stack([model.index_query(query) for query in queries])
    joined, attributes = batch.sets(model.vectors[:, :1], ("joined", "n"))
    assert [t[m].tolist() for t, m in zip(*joined[:2], strict=True)] == [[[0], [2], [4]], [[0], [0], [2]]]
    vectors, mask, _ = attributes
    assert vectors.shape == (2, 2, 2, 1) and vectors[mask].tolist() == [[6], [8], [10], [4], [6]]
    distinct, _ = batch.sets(model.vectors, ("distinct", "n"))
    assert distinct.mask.tolist() == [[True, True, True, False], [True, False, False, True]]
    assert batch.targets.tolist() == [[[0, 1], [2, 0]], [[0, 0], [0, 1]]]
    assert batch.target_mask.tolist() == [[[True, True], [True, False]], [[True, False], [True, True]]]


def test_stack_pads_queries_to_one_batch(model):
    first = model.index_query(Query([["a", "b", "c"], ["d"]], [["e"]]))
    second = model.index_query(Query([["f"], ["e"]], [["d"]]))
    lost = model.index_query(Query([["f"], ["x"]], [["d"]]))
    batch = IndexedQuery.stack([first, second, lost])
    x, y, a = batch.sets(model.vectors)
    assert x.values.shape == (3, 3, 2) and y.values.shape == a.values.shape == (3, 1, 2)
    assert x.mask.sum(-1).tolist() == [3, 1, 0] and y.mask.sum(-1).tolist() == [1, 1, 0]
    assert torch.equal(x.values[1, 0], model.vectors[5])
    assert batch.reason[:2] == [None, None] and "'Target set 1' lost 1 of 1 words" in batch.reason[2]
    tables = torch.stack([model.vectors, -model.vectors])[:, None]  # two checkpoints, three queries
    assert batch.sets(tables)[0].values.shape == (2, 1, 3, 3, 2)
    with raises(ValueError, "queries: got 2 with the templates [(2, 1), (1, 1)], wanted equal templates"):
        IndexedQuery.stack([first, model.index_query(Query([["a"]], [["b"]]))])


def test_index_query_of_lost_set_has_no_rows(model):
    index = model.index_query(Query([["f"], ["x"]], [["d"]]))
    assert index.row_words == ([[], []], [[]]) and [rows.shape for rows in index.pools(0, 0)] == [(0, 0), (0, 0)]


def test_index_query_of_empty_set_gives_nan(model):
    index = model.index_query(Query([["a"], []], [["b"]]))
    assert index.reason == "'Target set 1' is empty"
    assert all(s.mean().isnan() for s in index.sets(model.vectors))


def test_stack_pairs_and_groups_of_tuples_have_equal_masks(model):
    index = model.index_query(Query([["a", "b"], ["c", "d"]], [["e"]]), paired=True)
    short = model.index_query(Query([["a"], ["c"]], [["e"]]), paired=True)
    x, y, a = IndexedQuery.stack([index, short]).sets(model.vectors)
    assert x.mask.tolist() == y.mask.tolist() == [[True, True], [True, False]] and torch.is_tensor(a)
    index, short = (model.index_query(Query([["a"]], [["b", "c"][:n], ["d", "e"][:n]]), paired=True) for n in (2, 1))
    _, groups = IndexedQuery.stack([index, short]).sets(model.vectors, (1, "n"))
    assert groups.mask.tolist() == [[[True, True], [True, True]], [[True, False], [True, False]]]
