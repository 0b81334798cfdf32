"""Models read from common sources: fastText, .npz, .safetensors, archives, language models."""

import json
import zipfile

import numpy as np
import pytest
import torch
from fasttext_files import fasttext_file
from metric_cases import answer
from raising import raises

from tensormetrics.association import WEAT, Query, WordEmbeddingModel
from tensormetrics.association.embeddings.formats.word2vec import read_word2vec


def fnv1a(part):
    value = np.uint32(2166136261)
    with np.errstate(over="ignore"):
        for byte in part:
            value = (value ^ np.uint32(np.int8(np.uint8(byte)).astype(np.int32).view(np.uint32))) * np.uint32(16777619)
    return int(value)


@pytest.fixture
def save(tmp_path):
    def save(content, name):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return save


MATRIX = np.random.default_rng(0).normal(size=(3 + 50, 4)).astype(np.float32)


def test_from_fasttext_vectors_are_means_of_subword_rows(save):
    path = save(fasttext_file(["</s>", "né", "New York"], MATRIX, 50), "cc.bin")
    model = WordEmbeddingModel.from_fasttext(path)
    parts = ["<n", "<né", "né", "né>", "é>"]  # of "<né>", 2 and 3 characters
    rows = [1, *(3 + fnv1a(part.encode()) % 50 for part in parts)]
    np.testing.assert_allclose(model["né"], MATRIX[rows].astype(float).mean(0), rtol=1e-6)
    unknown = [3 + fnv1a(part.encode()) % 50 for part in ("<o", "<o>", "o>")]
    np.testing.assert_allclose(model["o"], MATRIX[unknown].astype(float).mean(0), rtol=1e-6)
    assert np.array_equal(model["</s>"], MATRIX[0]) and model.name == "cc"
    assert model.index_query(Query([["né", "anything"]], [["New York"]])).reason is None


def test_from_fasttext_without_subwords_contains_only_its_words(save):
    model = WordEmbeddingModel.from_fasttext(save(fasttext_file(["a", "b"], MATRIX[:2], 0, 0, 0), "x.bin"))
    assert np.array_equal(model["b"], MATRIX[1]) and "c" not in model
    old = fasttext_file(["a"], MATRIX[:1], 50, version=11, kind=3, labels=["__label__x"])
    model = WordEmbeddingModel.from_fasttext(save(old, "old.bin"))
    assert np.array_equal(model["a"], MATRIX[0]) and "b" not in model and "__label__x" not in model


def test_from_fasttext_with_pruned_buckets_uses_remaining_rows(save):
    bucket = fnv1a(b"<a") % 50
    content = fasttext_file(["a"], MATRIX[:2], 50, pruned=1, bucket_rows=[(bucket, 0)])
    model = WordEmbeddingModel.from_fasttext(save(content, "x.bin"))
    num_hits = sum(fnv1a(part) % 50 == bucket for part in (b"<a", b"<a>", b"a>"))
    np.testing.assert_allclose(model["a"], (MATRIX[0] + num_hits * MATRIX[1]) / (1 + num_hits), rtol=1e-6)


def test_from_fasttext_vectors_equal_gensim(save, tmp_path):
    gensim = pytest.importorskip("gensim.models.fasttext")
    sentences = [["naïve", "words", "of", "a", "text"], ["a", "text", "of", "words"]] * 20
    peer = gensim.FastText(sentences, vector_size=8, min_count=1, bucket=200, epochs=2, workers=1, seed=1)
    gensim.save_facebook_model(peer, str(tmp_path / "model.bin"))
    peer = gensim.load_facebook_vectors(str(tmp_path / "model.bin"))
    model = WordEmbeddingModel.from_fasttext(tmp_path / "model.bin")
    for word in ("naïve", "words", "of", "unseen", "日本語"):
        np.testing.assert_allclose(model[word], peer.get_vector(word), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"3 2\na\n", "wanted a model of fastText in one of the versions (11, 12) (.bin)"),
        (fasttext_file(["a"], MATRIX[:1], 0)[:20], "wanted a model of fastText, got 12 bytes and the end"),
        (b"x" * 200, "wanted a model of fastText in one of the versions (11, 12) (.bin)"),
        (
            fasttext_file(["a"], MATRIX[:1], 0, 0, 0, quantized=True),
            "got a quantised model (.ftz), wanted the .bin it was made from",
        ),
        (fasttext_file(["a"], MATRIX[:2], 0, 0, 0)[:-30], "the file ends within its matrix of 2 x 4"),
        (fasttext_file(["a"] * 9, MATRIX, 0)[:120], "wanted 9 words, got the end after 2"),
    ],
)
def test_from_fasttext_invalid_files_raise(save, content, message):
    path = save(content, "x.bin")
    with raises(ValueError, f"{path}: {message}"):
        WordEmbeddingModel.from_fasttext(path)


def test_from_fasttext_damaged_header_raises_value_error_or_reads_model(save):
    """Flip bits of the header one by one, and look up words of the models that can still be read."""
    content = fasttext_file(["a", "bc"], MATRIX[:10], 50, pruned=3, bucket_rows=[(3, 0), (7, 1), (11, 2)])
    header = content.index(MATRIX[0].tobytes())
    for bit in range(0, 8 * header, 5):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            model = WordEmbeddingModel.from_fasttext(save(bytes(damaged), "x.bin"))
            model.arrays(word for word in ("a", "bc", "unseen") if word in model)
        except ValueError as error:
            assert str(error).startswith(str(save(b"", "x.bin")))  # noqa: PT017


def test_from_fasttext_lone_surrogate_is_not_in_vocabulary(save):
    model = WordEmbeddingModel.from_fasttext(save(fasttext_file(["a"], MATRIX[:51], 50), "x.bin"))
    assert "\ud800" not in model and "b" in model
    with pytest.raises(KeyError, match="is not in the vocabulary"):
        model["\ud800"]


GLOVE = {f"glove.{d}d.txt": "\n".join(f"{w} " + " ".join([str(i)] * d) for i, w in enumerate("abc")) for d in (2, 3)}


def test_from_word2vec_member_selects_file_of_archive(tmp_path):
    path = tmp_path / "glove.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in GLOVE.items():
            archive.writestr(name, text)
    model = WordEmbeddingModel.from_word2vec(path, member="glove.3d.txt")
    assert model["c"].tolist() == [2, 2, 2] and model.name == "glove.3d"
    for member, got in (None, "no name"), ("glove.4d.txt", "'glove.4d.txt'"):
        with raises(ValueError, f"member: got {got}, wanted one of those in {path}: glove.2d.txt, glove.3d.txt"):
            read_word2vec(path, member=member)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("only.txt", GLOVE["glove.2d.txt"])
    assert read_word2vec(path)[1].shape == (3, 2)
    path.write_bytes(path.read_bytes()[:40])
    with raises(ValueError, f"{path}: wanted a whole .zip file; File is not a zip file"):
        read_word2vec(path)
    text = tmp_path / "x.txt"
    with raises(ValueError, f"member: got 'a' for {text}, which is no .zip"):
        read_word2vec(text, member="a")


def test_from_npz_reads_table_and_words(tmp_path):
    path, rows = tmp_path / "x.npz", np.arange(6.0).reshape(3, 2)
    np.savez(path, table=rows, vocabulary=np.array(["a", "b", "c"]), counts=np.arange(3))
    model = WordEmbeddingModel.from_npz(path)
    assert model["b"].tolist() == [2, 3] and model.name == "x" and model.vectors.dtype == torch.float64
    (tmp_path / "words.txt").write_text("x\ny z\nw\n")
    assert WordEmbeddingModel.from_npz(path, tmp_path / "words.txt")["y z"].tolist() == [2, 3]
    assert WordEmbeddingModel.from_npz(path, ["p", "q", "r"])["r"].tolist() == [4, 5]
    np.savez(path, table=rows, other=rows, words=np.array(["a", "b", "c"]))
    with raises(ValueError, f"vectors: got no name, wanted one of those in {path}: 'table' (3, 2), 'other' (3, 2)"):
        WordEmbeddingModel.from_npz(path)
    assert WordEmbeddingModel.from_npz(path, vectors="other")["a"].tolist() == [0, 1]
    np.savez(path, table=rows, words=np.array(["a", "b", "c"], object))
    advice = "write np.savez(path, vectors=..., words=np.array(words, dtype=str))"
    with raises(ValueError, f"{path}: got pickled objects; {advice}"):
        WordEmbeddingModel.from_npz(path)
    path.write_bytes(b"PK nothing")
    with raises(ValueError, f"{path}: wanted a .npz file; File is not a zip file"):
        WordEmbeddingModel.from_npz(path)


def test_from_safetensors_reads_tensor_and_vocabulary(tmp_path):
    torch_files = pytest.importorskip("safetensors.torch")
    path, rows = tmp_path / "model.safetensors", torch.arange(6.0).reshape(3, 2).bfloat16()
    torch_files.save_file({"wte.weight": rows, "bias": torch.zeros(2)}, path)
    vocabulary = tmp_path / "vocab.json"
    vocabulary.write_text(json.dumps({"b": 1, "a": 0, "c": 2}))
    model = WordEmbeddingModel.from_safetensors(path, vocabulary)
    assert model["b"].tolist() == [2, 3] and model.vectors.dtype == torch.bfloat16
    with raises(ValueError, f"tensor: got 'wpe', wanted one of those in {path}: 'wte.weight' (3, 2)"):
        WordEmbeddingModel.from_safetensors(path, vocabulary, tensor="wpe")
    for text, message in {
        '{"a": 0, "b": 2}': "wanted an object of words, whose values are the rows 0 to 1",
        "3": "got a int, wanted a list of words, or an object word: row",
        "[": "wanted JSON; Expecting value at character 2",
    }.items():
        vocabulary.write_text(text)
        with raises(ValueError, f"{vocabulary}: {message}"):
            WordEmbeddingModel.from_safetensors(path, vocabulary)
    path.write_bytes(b"x" * 30)
    with pytest.raises(ValueError, match=r"model.safetensors: wanted a .safetensors file; "):
        WordEmbeddingModel.from_safetensors(path, ["a"])


def test_from_npz_words_as_bytes_are_decoded(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, vectors=MATRIX[:2], words=np.array(["né".encode(), b"b"]))
    assert list(WordEmbeddingModel.from_npz(path).vocab) == ["né", "b"]
    with pytest.raises(ValueError, match="^words: got bytes, wanted str, or UTF-8"):
        WordEmbeddingModel.from_npz(path, np.array([b"\xff", b"b"]))


def test_from_npz_integer_and_truncated_arrays_raise(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, table=np.ones((2, 3), int))
    with raises(TypeError, f"{path}: table: got int64, wanted a floating dtype; write table.astype('float32')"):
        WordEmbeddingModel.from_npz(path, ["a", "b"])
    np.save(tmp_path / "x.npy", np.ones((50, 3), np.float32))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("table.npy", (tmp_path / "x.npy").read_bytes()[:200])
    with raises(ValueError, f"{path}: wanted a .npz file; table.npy ends within its array of (50, 3)"):
        WordEmbeddingModel.from_npz(path, ["a"] * 50)


def test_from_safetensors_float8_vectors_are_returned_as_float32(tmp_path):
    torch_files = pytest.importorskip("safetensors.torch")
    table = torch.tensor([[1.0, 0.5], [2, 0]]).to(torch.float8_e4m3fn)
    torch_files.save_file({"table": table}, tmp_path / "x.safetensors")
    model = WordEmbeddingModel.from_safetensors(tmp_path / "x.safetensors", ["a", "b"])
    assert model.vectors.dtype == torch.float8_e4m3fn and model["a"].dtype == np.float32
    assert model["a"].tolist() == [1, 0.5]


@pytest.mark.parametrize("text", ["2 2\nné 1 2\nb 3 4\n", "né 1 2\nb 3 4\n"], ids=["header", "no header"])
def test_read_word2vec_byte_order_mark_is_skipped(save, text):
    words, vectors = read_word2vec(save(text.encode("utf-8-sig"), "x.txt"))
    assert words == ["né", "b"] and vectors.tolist() == [[1, 2], [3, 4]]
    path = save(text.encode("utf-16"), "wide.txt")
    with raises(ValueError, f"{path}: got a text in UTF-16, wanted one in UTF-8; write it anew"):
        read_word2vec(path)


@pytest.fixture(scope="module")
def bert():
    pytest.importorskip("transformers")
    from tiny_models import make

    model, tokenizer = make("bert")
    return model, tokenizer, tokenizer.get_vocab()


def test_from_transformers_input_layer_averages_token_rows(bert):
    net, tokenizer, ids = bert
    table, words = net.get_input_embeddings().weight.detach(), "he she man woman good bad old young".split()
    model = WordEmbeddingModel.from_transformers(net, tokenizer, name="tiny")
    torch.testing.assert_close(torch.tensor(model["he"]), table[ids["he"]])
    torch.testing.assert_close(torch.tensor(model["nurses"]), table[[ids["nurse"], ids["##s"]]].mean(0))
    static = WordEmbeddingModel.from_tensor(table[[ids[word] for word in words]].clone(), words)
    query = Query([words[:2], words[2:4]], [words[4:6], words[6:]])
    got, expected = (answer(WEAT(), query, m)["weat"] for m in (model, static))
    assert got == pytest.approx(expected, rel=1e-5)
    assert "z" not in model and "zz" not in model and "a" in model  # "z" and "zz" consist of [UNK] only
    assert model.name == "tiny"


@pytest.mark.parametrize("layer", [0, 1, -1])
def test_from_transformers_layers_average_states_of_word(bert, layer):
    net, tokenizer, ids = bert
    templates = ["this is .{}.", "{} is {}"]  # adjacent full stops are not part of a word
    model = WordEmbeddingModel.from_transformers(net, tokenizer, layer=layer, templates=templates, batch_size=2)
    rows = model.rows("nurses")
    vectors = model.vectors[rows]
    assert model.index_query(Query([["he"], ["nurses"]], [["she"]])).reason is None  # batches of unequal lengths
    tokens = [["this", "is", ".", "nurse", "##s", "."], ["nurse", "##s", "is", "nurse", "##s"]]
    for row, words, positions in zip(vectors, tokens, ([4, 5], [1, 2, 4, 5]), strict=True):
        token_ids = torch.tensor([[2, *(ids[word] for word in words), 3]])
        with torch.no_grad():
            states = net(input_ids=token_ids, output_hidden_states=True).hidden_states[layer]
        torch.testing.assert_close(row, states[0, positions].mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("pool", "positions"), [("all", [1, 2]), ("first", [0]), ("last", [3])])
def test_from_transformers_pool_selects_positions(bert, pool, positions):
    net, tokenizer, ids = bert
    model = WordEmbeddingModel.from_transformers(net, tokenizer, layer=-1, templates=["this {}"], pool=pool)
    with torch.no_grad():
        states = net(input_ids=torch.tensor([[2, ids["this"], ids["he"], 3]])).last_hidden_state[0]
    torch.testing.assert_close(torch.tensor(model["he"]), states[positions].mean(0), rtol=1e-5, atol=1e-6)


def test_from_transformers_byte_level_tokenizer_equals_single_passes(bert):
    from tiny_models import make

    net, tokenizer = make("gpt2")  # it has no token for padding
    model = WordEmbeddingModel.from_transformers(net, tokenizer, templates=[" {}"])
    (she,) = tokenizer(" she")["input_ids"]
    torch.testing.assert_close(torch.tensor(model["she"]), net.get_input_embeddings().weight[she].detach())
    templates = ["a {}", "a b a {}"]
    model = WordEmbeddingModel.from_transformers(net, tokenizer, templates=templates, layer=-1)
    rows = model.rows("she")
    for row, template in zip(model.vectors[rows], templates, strict=True):
        token_ids = torch.tensor([tokenizer(template.format("she"))["input_ids"]])
        with torch.no_grad():
            states = net(input_ids=token_ids, output_hidden_states=True).hidden_states[-1]
        torch.testing.assert_close(row, states[0, -1], rtol=1e-5, atol=1e-6)


def test_from_transformers_invalid_arguments_raise(bert):
    net, tokenizer, _ = bert
    with raises(ValueError, "pool: got 'mean', wanted one of 'word', 'all', 'first', 'last'"):
        WordEmbeddingModel.from_transformers(net, tokenizer, pool="mean")
    message = "wanted 'input', the number of a layer, such as -1 for the last, or a list of numbers"
    with raises(TypeError, f"layer: got 'last', {message}"):
        WordEmbeddingModel.from_transformers(net, tokenizer, layer="last")
    message = "pool: got 'first' with layer='input', where that token is the same in every string"
    with raises(ValueError, message):
        WordEmbeddingModel.from_transformers(net, tokenizer, pool="first")
    with raises(ValueError, "templates: got 'it', wanted a str with {} in the place of the word"):
        WordEmbeddingModel.from_transformers(net, tokenizer, templates=["it"])
    message = "tokenizer: got a object, wanted one of transformers; write AutoTokenizer.from_pretrained(name)"
    with raises(TypeError, message):
        WordEmbeddingModel.from_transformers(net, object())
    with raises(ValueError, "layer: got 3, wanted -3 to 2 of this model"):
        WordEmbeddingModel.from_transformers(net, tokenizer, layer=3)["a"]
    with raises(ValueError, "model: got one in training mode, whose dropout changes its outputs; call model.eval()"):
        try:
            WordEmbeddingModel.from_transformers(net.train(), tokenizer, layer=0)["a"]
        finally:
            net.eval()
