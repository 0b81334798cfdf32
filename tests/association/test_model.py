import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics.association import Query, WordEmbeddingModel

WORDS = ["a", "b", "c"]


@pytest.fixture
def model(device):
    return WordEmbeddingModel.from_tensor(torch.arange(6.0, device=device).view(3, 2), WORDS, "m")


def test_from_tensor_references_tensor_and_sees_training(device):
    table = torch.nn.Embedding(3, 2, device=device)
    model = WordEmbeddingModel.from_tensor(table.weight, WORDS)
    assert model.vectors is table.weight
    before = model["a"]
    table(torch.zeros(1, dtype=torch.int64, device=device)).sum().backward()
    torch.optim.SGD(table.parameters(), 0.5).step()
    np.testing.assert_allclose(model["a"], before - 0.5, rtol=1e-6)


def test_from_numpy_references_array_unless_layout_is_unsupported():
    array = np.zeros((3, 2))
    model = WordEmbeddingModel.from_numpy(array, WORDS)
    model.update("b", np.array([1.0, 2.0]))
    assert array[1].tolist() == [1, 2] and model.vectors.dtype == torch.float64
    for other in (array[::-1], array.astype(">f8"), np.broadcast_to(array[:1], (3, 2))):
        copy = WordEmbeddingModel.from_numpy(other, WORDS)
        copy.update("a", np.array([7.0, 7.0]))
        assert copy["a"].tolist() == [7, 7] and 7 not in array


@pytest.mark.parametrize(
    "vocabulary",
    [
        {"key_to_index": {"b": 1, "a": 0, "c": 2}},
        {"index_to_key": WORDS},
        {"vocab": {word: SimpleNamespace(index=i, count=9) for i, word in enumerate(WORDS)}},
    ],
    ids=lambda vocabulary: next(iter(vocabulary)),
)
def test_model_of_keyed_vectors_references_array_unless_dtype_differs(vocabulary):
    wv = SimpleNamespace(vectors=np.arange(6, dtype=np.float32).reshape(3, 2), **vocabulary)
    model = WordEmbeddingModel(wv, "weat_w2v", "")
    assert model.wv is wv and model["b"].tolist() == [2, 3] and len(model) == 3
    wv.vectors[1] = 9
    assert model["b"].tolist() == [9, 9]
    copy = WordEmbeddingModel(wv, dtype=torch.float64)
    wv.vectors[1] = 8
    assert copy["b"].tolist() == [9, 9] and copy["b"].dtype == np.float64


def test_model_of_model_has_same_vectors(model):
    other = WordEmbeddingModel(model, "other", "p_")
    assert other.vectors is model.vectors and other.wv is model and other.name == other.model_name == "other"


def test_getitem_and_rows_look_up_words(model):
    assert model["b"].tolist() == [2, 3] and model["b"].dtype == np.float32
    assert model.get("b").tolist() == [2, 3] and model.get("x") is None and model.get("x", 4) == 4
    assert "a" in model and "x" not in model and 3 not in model and [] not in model and len(model) == 3
    rows = model.rows("c")
    assert rows.dtype == torch.int64 and rows.device == model.vectors.device
    assert model.vectors[rows].tolist() == [[4, 5]]
    with raises(KeyError, "the word 'x' is not in the vocabulary of the model 'm'"):
        model["x"]
    with raises(TypeError, "word: got a int, wanted a str"):
        model[3]
    assert model.to(dtype=torch.bfloat16)["b"].dtype == np.float32


def test_repr_and_equality(model):
    assert repr(model) == "<WordEmbeddingModel named 'm' with 3 word embeddings of 2 dims>"
    prefixed = WordEmbeddingModel(model, vocab_prefix="/c/en/")
    assert repr(prefixed) == (
        "<WordEmbeddingModel 'Unnamed model' with 3 word embeddings of 2 dims and '/c/en/' as word prefix>"
    )
    assert model == WordEmbeddingModel(model, "m", "") and model != prefixed and model != "m"
    assert model != model.to(dtype=torch.float64)
    assert model != WordEmbeddingModel.from_tensor(model.vectors + 1, WORDS, "m")


def test_vocab_prefix_is_prepended_to_looked_up_words():
    model = WordEmbeddingModel.from_tensor(torch.ones(2, 3), ["/c/en/a", "a"], vocab_prefix="/c/en/")
    assert model.index_query(Query([["A"]], []), preprocessors=[{"lowercase": True}]).words[0] == [["/c/en/a"]]


def test_to_copies_only_for_another_dtype(model, device):
    same = model.to(device)
    assert same.vectors is model.vectors
    double = model.to(dtype=torch.float64)
    assert double.vectors.dtype == torch.float64 and double.name == "m"
    model.vectors.zero_()
    assert double["b"].tolist() == [2, 3]


def test_normalize_after_update_normalizes_current_rows(device):
    model = WordEmbeddingModel.from_tensor(torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]], device=device), WORDS)
    table = model.vectors
    model.normalize()
    torch.testing.assert_close(model.vectors.cpu(), torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.0, 1.0]]))
    model.update("a", torch.tensor([0.0, 5.0], device=device))
    model.normalize()
    assert model["a"].tolist() == [0, 1] and model.vectors is table


def test_update_and_batch_update_write_rows(model):
    model.batch_update(["c", "a"], np.array([[1, 1], [2, 2]], np.float16))
    assert model.vectors.tolist() == [[2, 2], [2, 3], [1, 1]]
    model.batch_update(words=("b", "c"), embeddings=[np.array([4, 4], "f"), torch.tensor([5, 5]).half()])
    model.update(word="a", embedding=np.array([6, 6], "f"))
    assert model.vectors.tolist() == [[6, 6], [4, 4], [5, 5]]


def test_batch_update_invalid_arguments_write_nothing(model):
    before = model.vectors.clone()
    zero, no_word, two = torch.zeros(2, 2), ", wanted a list of words", np.zeros(2, "f")
    rows = "got rows of the shapes"
    wide = "got torch.float64, which torch.float32 of the model 'm' cannot hold without loss; convert them first"
    for words, embeddings, kind, message in (
        (["a", "x"], zero, ValueError, "words: ['x'] are not in the vocabulary of the model 'm'"),
        (["a", 1], zero, TypeError, "words[1]: got a int, wanted a word (str)"),
        (None, zero, TypeError, f"words: got a NoneType{no_word}"),
        ("ab", zero, TypeError, f"words: got a str{no_word}"),
        (["a", "a"], zero, ValueError, "words: got ['a'] more than once, wanted distinct words"),
        (["a", "b"], torch.zeros(2, 3), ValueError, "embeddings: got shape (2, 3), wanted (2, 2)"),
        (["a", "b"], torch.zeros(1, 2), ValueError, "embeddings: got shape (1, 2), wanted (2, 2)"),
        (["a", "b"], [two, [0, 0]], TypeError, "embeddings[1]: got a list, wanted an array"),
        (["a", "b"], None, TypeError, "embeddings: got a NoneType, wanted an array, a tensor or a list of these"),
        (["a", "b"], [two, np.zeros(3, "f")], ValueError, f"embeddings: {rows} [(2,), (3,)] for 2 words"),
        (["a", "b"], [two], ValueError, "embeddings: got rows of the shapes [(2,)] for 2 words"),
        (["a", "b"], np.zeros((2, 2)), ValueError, f"embeddings: {wide}"),
    ):
        with raises(kind, message):
            model.batch_update(words, embeddings)
    with raises(TypeError, "embedding: got a list, wanted an array or a tensor"):
        model.update("a", [0, 0])
    with raises(ValueError, "embeddings: got shape (1, 3), wanted (1, 2)"):
        model.update("a", np.zeros(3, np.float32))
    assert torch.equal(model.vectors, before)


def test_constructors_invalid_arguments_raise():
    with raises(
        TypeError,
        "wv: got a dict, wanted an object with vectors (an array or tensor) and one of key_to_index, index_to_key, "
        "vocab; or write WordEmbeddingModel.from_tensor, from_word2vec, from_encoder or another of its from_...",
    ):
        WordEmbeddingModel({"a": [1.0]})
    zero = torch.zeros(3, 2)
    for vectors, words, kind, message in (
        ([[1.0]], ["a"], TypeError, "vectors: got a list, wanted a tensor"),
        (zero[:, 0], WORDS, ValueError, "vectors: got shape (3,), wanted (V, D)"),
        (zero.long(), WORDS, TypeError, "vectors: got torch.int64, wanted a floating dtype; write vectors.float()"),
        (zero[:2], WORDS, ValueError, "words: got 3 words for 2 rows of vectors, wanted one for each"),
        (zero, ["a", "b", "a"], ValueError, "words: got ['a'] more than once, wanted distinct words"),
        (zero, "abc", TypeError, "words: got a str, wanted a list of words"),
        (zero, ["a", 1, "c"], TypeError, "words[1]: got a int, wanted a word (str)"),
    ):
        with raises(kind, message):
            WordEmbeddingModel.from_tensor(vectors, words)
    with raises(TypeError, "array: got int64, wanted a floating dtype; write array.astype('float32')"):
        WordEmbeddingModel.from_numpy(np.zeros((3, 2), int), WORDS)
    with raises(ValueError, "words: 'b' has the row 2, wanted 0 to 1"):
        WordEmbeddingModel(SimpleNamespace(vectors=torch.zeros(2, 2), key_to_index={"a": 0, "b": 2}))
    with raises(TypeError, "name: got a int, wanted a str or None"):
        WordEmbeddingModel.from_tensor(torch.zeros(3, 2), WORDS, name=3)


def encoder(calls):
    def encode(strings):
        calls.append(strings)
        return torch.tensor([[len(s), s.count("a"), 1.0] for s in strings])

    return encode


def test_encoder_is_called_once_per_string(device):
    calls = []
    templates = ("{}", "This is {}.", "{}")
    model = WordEmbeddingModel.from_encoder(encoder(calls), templates=templates, batch_size=3, device=device)
    index = model.index_query(Query([["a", "bb"], ["a"]], [["c"]]))
    assert calls == [["a", "This is a.", "bb"], ["This is bb.", "c", "This is c."]]
    assert index.sets(model.vectors)[0].values[:, 0].tolist() == [
        1,
        10,
        1,
        2,
        11,
        2,
    ]  # the set contains the vectors of all templates
    assert index.words == ([["a", "bb"], ["a"]], [["c"]]) and model.vectors.device.type == device.type
    model.index_query(Query([["c", "d"]], []))
    assert calls[2:] == [["d", "This is d."]] and len(model) == 4
    assert "anything" in model and 3 not in model
    assert model["a"].tolist() == [4, 1, 1]  # the mean over the templates


def read_only(strings):
    rows = np.array([[len(s), s.count("a"), 1.0] for s in strings], np.float32)
    rows.flags.writeable = False
    return rows


RETURNED = {
    "an array": read_only,
    "a reversed array": lambda strings: read_only(strings[::-1])[::-1],
    "arrays": lambda strings: list(read_only(strings)),
    "tensors": lambda strings: list(torch.from_numpy(read_only(strings).copy())),
    "lists": lambda strings: read_only(strings).tolist(),
}


@pytest.mark.parametrize("encode", RETURNED.values(), ids=RETURNED.keys())
def test_from_encoder_accepts_arrays_tensors_and_lists(encode, device):
    query = Query([["a", "bb"]], [["caa"]])
    model, expected = (WordEmbeddingModel.from_encoder(f, device=device) for f in (encode, encoder([])))
    index = model.index_query(query)
    assert index.sets(model.vectors)[0].tolist() == [[1, 1, 1], [2, 0, 1]] and model.vectors.device.type == device.type
    assert index.sets(model.vectors)[1].tolist() == expected.index_query(query).sets(expected.vectors)[1].tolist()


def test_from_encoder_contexts_mean_averages_templates():
    calls = []
    model = WordEmbeddingModel.from_encoder(encoder(calls), templates=("{}", "a {}"), contexts="mean")
    index = model.index_query(Query([["x", "yy"]], []))
    assert index.sets(model.vectors)[0].tolist() == [[2, 0.5, 1], [3, 0.5, 1]]
    assert model["x"].tolist() == [2, 0.5, 1] and len(calls) == 1


def test_from_encoder_invalid_outputs_raise():
    unequal = "got a list for 2 strings, wanted a tensor, an array or a list of 2 rows of one length"
    for rows, kind, message in (
        ([{"a": 1}, {}], TypeError, unequal),
        ([torch.zeros(2), torch.zeros(3)], TypeError, unequal),
        (np.zeros((1, 2)), ValueError, "got the shape (1, 2) for 2 strings, wanted (2, D)"),
        (torch.zeros(2), ValueError, "got the shape (2,) for 2 strings, wanted (2, D)"),
        (np.zeros((2, 2), int), TypeError, "got torch.int64, wanted a floating dtype"),
    ):
        with raises(kind, f"encode: {message}"):
            WordEmbeddingModel.from_encoder(lambda _, rows=rows: rows).index_query(Query([["a", "b"]], []))


def test_from_encoder_invalid_options_raise():
    with raises(ValueError, "templates: got 'This is it', wanted a str with {} in the place of the word"):
        WordEmbeddingModel.from_encoder(encoder([]), templates=["This is it"])
    with raises(TypeError, "templates: got '{}', wanted a list of str such as ['This is {}.']"):
        WordEmbeddingModel.from_encoder(encoder([]), templates="{}")
    with raises(ValueError, "contexts: got 'max', wanted one of 'all', 'mean'"):
        WordEmbeddingModel.from_encoder(encoder([]), contexts="max")


def test_from_contexts_words_have_several_rows(device):
    pools = {"a": torch.ones(2, 3, device=device), "b": torch.zeros(1, 3, device=device)}
    model = WordEmbeddingModel.from_contexts(pools, "bert")
    assert model.rows("a").tolist() == [0, 1] and model.rows("b").tolist() == [2] and model.vocab == {"a": 0, "b": 2}
    (x,) = model.index_query(Query([["b", "a"]], [])).sets(model.vectors)
    assert x.values[:, 0].tolist() == [0, 1, 1] and len(x.words.unique()) == 2 and x.words[1] == x.words[2]
    with raises(ValueError, "words: ['a'] have several vectors in the model 'bert'; write to model.vectors"):
        model.update("a", torch.ones(3))
    for sets in (
        ([["a"], ["b"]], []),
        ([["a", "b"]], [["a"], ["b"]]),
    ):  # with one target set the attribute sets are paired
        first, second = model.index_query(Query(*sets), paired=True).sets(model.vectors)[-2:]
        assert first.values[:, 0].tolist() == [1, 1] and second.values[:, 0].tolist() == [0, 0]
        assert first.words.tolist() == second.words.tolist() == [0, 0]
    assert model.index_query(Query([["a"]], [["a"], ["a"]]), paired=True).reason is None
    with raises(ValueError, "contexts['b']: got shape (1, 2), wanted (K, 3)"):
        WordEmbeddingModel.from_contexts({"a": torch.ones(2, 3), "b": torch.ones(1, 2)})
    with raises(ValueError, "contexts: got no vector for ['b'], wanted at least one each"):
        WordEmbeddingModel.from_contexts({"a": torch.ones(2, 3), "b": torch.ones(0, 3)})


def test_from_contexts_rows_of_tuples_cycle_until_used_equally_often():
    pools = {word: torch.arange(float(count)).unsqueeze(-1) for word, count in (("a", 2), ("b", 3), ("c", 1), ("d", 2))}
    model = WordEmbeddingModel.from_contexts(pools)
    x, y = model.index_query(Query([["a", "c"], ["b", "d"]], []), paired=True).sets(model.vectors)
    assert x.values.flatten().tolist() == [0, 1, 0, 1, 0, 1, 0, 0] and x.words.tolist() == [0] * 6 + [1] * 2
    assert y.values.flatten().tolist() == [0, 1, 2, 0, 1, 2, 0, 1] and y.words.tolist() == x.words.tolist()
    unequal = WordEmbeddingModel.from_contexts({"a": torch.ones(101, 1), "b": torch.ones(100, 1)})
    message = "query: ('a', 'b') have [101, 100] vectors, which form 10100 tuples; wanted equal numbers"
    with raises(ValueError, message):
        unequal.index_query(Query([["a"], ["b"]], []), paired=True)


@pytest.mark.slow
def test_import_loads_no_optional_packages():
    # torchmetrics itself imports matplotlib where it is installed.
    code = "import sys, torchmetrics; before = set(sys.modules); import tensormetrics.association; "
    code += "print({'gensim', 'pandas', 'matplotlib'} & (sys.modules.keys() - before))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
