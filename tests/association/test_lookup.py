import json
from pathlib import Path

import numpy as np
import pytest
from raising import raises

from tensormetrics.association import Query, WordEmbeddingModel
from tensormetrics.association.embeddings.lookup import WordSearch
from tensormetrics.association.functional import preprocess_word

GOLDEN = json.loads((Path(__file__).parent / "golden_doors.json").read_text())
CASING = GOLDEN["casing"]
LOWER = {"lowercase": True}


@pytest.fixture
def model():
    return WordEmbeddingModel.from_numpy(np.array(list(CASING.values()), np.float32), list(CASING), "casing")


def ids(case):
    return case["id"]


@pytest.mark.parametrize("case", GOLDEN["preprocess"], ids=ids)
def test_preprocess_word_equals_golden_values(case):
    assert preprocess_word(case["word"], case["options"], case["vocab_prefix"]) == case["expected"]


def test_preprocess_word_options_are_applied_in_order():
    options = {"strip_accents": False, "lowercase": False, "preprocessor": None}
    assert preprocess_word("Ñ", options) == preprocess_word("Ñ") == "Ñ"
    assert preprocess_word("Ñ", {"lowercase": True, "preprocessor": lambda word: word * 2}, "p/") == "p/ÑÑ"
    assert preprocess_word("ÑANDÚ", {"lowercase": True, "strip_accents": "unicode"}) == "nandu"


def test_preprocess_word_misspelled_option_warns():
    message = r"^options: the option 'lowecase' is unknown and ignored; perhaps 'lowercase'$"
    with pytest.warns(UserWarning, match=message):
        assert preprocess_word("A", {"lowecase": True}) == "A"


def test_preprocess_word_invalid_arguments_raise():
    with raises(TypeError, "word: got a int, wanted a str"):
        preprocess_word(3)
    with raises(TypeError, "options: got a NoneType, wanted a dict of options"):
        preprocess_word("a", None)
    with raises(
        ValueError, "options['strip_accents']: got 'latin', wanted one of None, True, False, 'unicode', 'ascii'"
    ):
        preprocess_word("a", {"strip_accents": "latin"})
    with raises(ValueError, "options['lowercase']: got 'yes', wanted one of None, True, False"):
        preprocess_word("a", {"lowercase": "yes"})
    with raises(TypeError, "options['preprocessor']: got a str, wanted a function of a word"):
        preprocess_word("a", {"preprocessor": "lower"})


@pytest.mark.parametrize("case", GOLDEN["lookup"], ids=ids)
def test_lookup_equals_golden_values(case, model):
    expected = case["expected"]
    matches = WordSearch(model, None, case["preprocessors"], case["strategy"]).words(case["words"])
    assert (matches.keys, matches.lost) == (expected["keys"], expected["lost"])
    assert len(matches.lost) / matches.total == expected["lost_fraction"]
    assert list(matches.not_found) == expected["not_found"]


def test_lost_vocabulary_threshold_is_inclusive_and_counts_distinct_words(model):
    words = ["Ana", "ana", "ANA", "bob", "bob", "lost"]  # 1 of 5 distinct
    assert model.index_query(Query([words], []), lost_vocabulary_threshold=0.2).reason is None
    reason = model.index_query(Query([words], []), lost_vocabulary_threshold=0.19).reason
    assert reason == "'Target set 0' lost 1 of 5 words (0.2 > 0.19)"


def test_index_query_collapsed_and_recovered_words_are_not_lost(model):
    query = Query([["BOB", "Bob", "bob"]], [["JOSE"]])
    index = model.index_query(query, lost_vocabulary_threshold=0, preprocessors=[LOWER])
    assert index.words == ([["bob"]], [["jose"]]) and index.reason is None
    index = model.index_query(query, lost_vocabulary_threshold=0, preprocessors=[{}, LOWER], strategy="all")
    assert index.words == ([["bob", "Bob"]], [["jose"]]) and index.lost == ([[]], [[]])


def test_index_query_all_words_lost_is_rejected_at_any_threshold(model):
    index = model.index_query(Query([["x", "y"]], [["ana"]]), lost_vocabulary_threshold=1)
    assert index.reason == "'Target set 0' lost 2 of 2 words (nothing is left)" and index.lost == ([["x", "y"]], [[]])


def test_index_query_missing_words_of_all_sets_are_logged(model, logged):
    query = Query([["x"], ["bob", "y"]], [[]], ["X", "Y"], ["A"])
    index = model.index_query(query, warn_not_found_words=True)
    assert index.reason == "'X' lost 1 of 1 words (1 > 0.2); 'Y' lost 1 of 2 words (0.5 > 0.2); 'A' is empty"
    assert logged.messages == [
        "'X': not in the vocabulary of 'casing': x",
        "'Y': not in the vocabulary of 'casing': y",
        "'X' lost 1 of 1 words (1 > 0.2) in the model 'casing'; the lost_vocabulary_threshold is 0.2",
        "'Y' lost 1 of 2 words (0.5 > 0.2) in the model 'casing'; the lost_vocabulary_threshold is 0.2",
        "'A' is empty in the model 'casing'; the lost_vocabulary_threshold is 0.2",
        "the query 'X and Y wrt A' has no score in the model 'casing'",
    ]


def test_index_query_pairs_are_formed_before_words_are_dropped(model):
    query = Query([["x", "ana", "Ana"], ["bob", "Bob", "jose"]], [["nandu", "nandu"]])
    index = model.index_query(query, lost_vocabulary_threshold=0.4, paired=True)
    assert index.words == ([["ana", "Ana"], ["Bob", "jose"]], [["nandu"]])
    assert index.lost[0] == [["x"], ["bob"]]
    reason = model.index_query(query, lost_vocabulary_threshold=0.3, paired=True).reason
    assert reason == "'Target set 0' and 'Target set 1' lost 1 of 3 tuples (0.333 > 0.3)"


def test_index_query_pairs_use_positions_and_one_preprocessor(model):
    query = Query([["Ana", "Ana"], ["Bob", "Bob"]], [["nandu"]])
    assert model.index_query(query, paired=True).words[0] == [["Ana", "Ana"], ["Bob", "Bob"]]
    both = {"preprocessors": [{}, LOWER], "paired": True}
    query = Query([["Ana", "jose"], ["Bob", "NANDU"]], [["nandu"]])
    assert model.index_query(query, **both).words[0] == [["Ana", "jose"], ["Bob", "nandu"]]
    assert model.index_query(query, strategy="all", **both).words[0] == [
        ["Ana", "ana", "jose"],
        ["Bob", "bob", "nandu"],
    ]


def test_index_query_one_target_set_pairs_attributes(model):
    query = Query([["nandu"]], [["Ana", "x", "ana"], ["Bob", "bob", "jose"]])
    index = model.index_query(query, lost_vocabulary_threshold=0.5, paired=True)
    assert index.words[1] == [["Ana", "ana"], ["Bob", "jose"]]
    with raises(
        ValueError,
        "query: 'T' has 1, 'U' has 2 words, wanted lists of one length, because they form tuples by position",
    ):
        model.index_query(Query([["a"], ["b", "c"]], [], ["T", "U"]), paired=True)


def test_index_query_invalid_options_raise(model):
    query = Query([["ana"]], [])

    options, lost = "wanted a list of dicts of options", "lost_vocabulary_threshold"
    for name, value, kind, message in (
        (lost, True, TypeError, "got True, wanted a number between 0 and 1"),
        (lost, "0", TypeError, "got '0', wanted a number between 0 and 1"),
        (lost, 1.5, ValueError, "got 1.5, wanted a number between 0 and 1"),
        ("preprocessors", {}, TypeError, f"got a dict, {options}; tensormetrics.compat.wefe takes it"),
        ("preprocessors", [], TypeError, "got an empty list, wanted at least one dict of options; write [{}] for none"),
        ("preprocessors", None, TypeError, f"got a NoneType, {options}"),
        ("strategy", "last", ValueError, "got 'last', wanted one of 'first', 'all'"),
        ("paired", None, TypeError, "got None, wanted True or False"),
        ("warn_not_found_words", None, TypeError, "got None, wanted True or False"),
    ):
        with raises(kind, f"{name}: {message}"):
            model.index_query(query, **{name: value})
    for preprocessors, message in (
        ([{}, "x"], "preprocessors[1]: got a str, wanted a dict of options"),
        ([{}, {"preprocessor": 3}], "preprocessors[1]['preprocessor']: got a int, wanted a function of a word"),
        ([{"preprocessor": len}], "preprocessor: got a int for the word 'ana', wanted a str"),
    ):
        with raises(TypeError, message):
            model.index_query(query, preprocessors=preprocessors)
    with raises(TypeError, "query: got a list, wanted a Query"):
        model.index_query([["a"]])
