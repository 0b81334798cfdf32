import gzip
import importlib.util
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from raising import raises

from tensormetrics.association import WordEmbeddingModel
from tensormetrics.association.embeddings.formats.word2vec import read_word2vec

WORDS = ["the", "New York", "naïve"]
VECTORS = np.array([[0.5, -1.25, 3e-4], [1, 2, 3], [-0.0, 1e10, 7]], np.float32)
NO_NUMBERS = "wanted the numbers of words and dimensions; write no_header=True for a file without that line"


def text(header=True):
    rows = [f"{word} {' '.join(map(str, vector))}" for word, vector in zip(WORDS, VECTORS.tolist(), strict=True)]
    return "\n".join([*(["3 3"] if header else []), *rows, ""]).encode()


def binary(newline=b"\n"):
    rows = (word.encode() + b" " + row.tobytes() + newline for word, row in zip(WORDS, VECTORS, strict=True))
    return b"3 3\n" + b"".join(rows)


@pytest.fixture
def write(tmp_path):
    def write(content, name="vectors.txt"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.gz"])
def test_read_word2vec_text_equals_array(write, name):
    words, vectors = read_word2vec(write(text(), name))
    assert words == WORDS and vectors.dtype == np.float32 and np.array_equal(vectors, VECTORS)
    assert read_word2vec(write(text().replace(b"\n", b"\r\n")))[0] == WORDS


@pytest.mark.parametrize("name", ["vectors.bin", "vectors.bin.gz"])
@pytest.mark.parametrize("newline", [b"\n", b""])
def test_read_word2vec_binary_equals_array(write, name, newline, monkeypatch):
    words, vectors = read_word2vec(write(binary().replace(b"New York", b"NewYork"), name))
    assert words == ["the", "NewYork", "naïve"] and np.array_equal(vectors, VECTORS)
    monkeypatch.setattr("tensormetrics.association.embeddings.formats.word2vec.CHUNK", 5)  # rows longer than a chunk
    words, vectors = read_word2vec(write(binary(newline).replace(b"New York", b"NewYork"), name), binary=True)
    assert words == ["the", "NewYork", "naïve"] and np.array_equal(vectors, VECTORS)


@pytest.mark.parametrize("no_header", [True, None])
@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz"])
def test_read_word2vec_without_header_reads_glove(write, name, no_header):
    path = write(text(header=False).replace(b"New York", b"York"), name)
    words, vectors = read_word2vec(path, no_header=no_header)
    assert words == ["the", "York", "naïve"] and np.array_equal(vectors, VECTORS)
    assert WordEmbeddingModel.from_word2vec(path)["York"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("byte", [b"\x01", b"\x0b", b"\x1c", b"\x85"])
def test_read_word2vec_text_with_control_bytes_is_text(write, byte):
    words, vectors = read_word2vec(write(b"2 2\na" + byte + b"b 1 2\nc 3 4\n"), encoding="latin-1")
    assert words == [f"a{byte.decode('latin-1')}b", "c"] and vectors.tolist() == [[1, 2], [3, 4]]


def test_read_word2vec_binary_without_control_bytes_is_binary(write):
    bits = np.array([0x40495065, 0x41C3A9C3, 0x42E2E2F3], "<u4")  # no byte below 32, and no text
    words, vectors = read_word2vec(write(b"1 3\nw0 " + bits.tobytes()))
    assert words == ["w0"] and vectors.tobytes() == bits.tobytes()


def test_read_word2vec_invalid_gzip_file_raises(write, tmp_path):
    path = tmp_path / "vectors.txt.gz"
    path.write_bytes(text())
    message = f"{path}: wanted a whole gzip file; "
    with raises(ValueError, message + "Not a gzipped file (b'3 ')"):
        read_word2vec(path)
    path.write_bytes(gzip.compress(text())[:-12])
    with raises(ValueError, message + "Compressed file ended before the end-of-stream marker was reached"):
        read_word2vec(path)


@pytest.mark.parametrize("content", [text(), binary().replace(b"New York", b"York")], ids=["text", "binary"])
def test_read_word2vec_limit_and_only_select_rows(write, content):
    path = write(content)
    assert read_word2vec(path, limit=1)[0] == ["the"]
    words, vectors = read_word2vec(path, only={"naïve", "absent"})
    assert words == ["naïve"] and np.array_equal(vectors, VECTORS[2:])
    assert read_word2vec(path, only=[])[1].shape == (0, 3)


def test_read_word2vec_repeated_word_warns_and_uses_first_row(write):
    path = write(b"3 1\na 1\nb 2\na 3\n")
    with pytest.warns(UserWarning, match=r"vectors\.txt: 1 rows repeat a word and are left out: 'a'$"):
        words, vectors = read_word2vec(path)
    assert words == ["a", "b"] and vectors.tolist() == [[1], [2]]


def test_read_word2vec_encoding_and_errors_decode_words(write):
    path = write("1 1\nnaïve 1\n".encode("latin-1"))
    assert read_word2vec(path, encoding="latin-1")[0] == ["naïve"]
    assert read_word2vec(path, errors="ignore")[0] == ["nave"]


@pytest.mark.parametrize(
    ("content", "message"),
    {
        b"0 3\n": f"line 1: got '0 3', {NO_NUMBERS}",
        b"1_0 2\na 1 2\n": f"line 1: got '1_0 2', {NO_NUMBERS}",
        b"2 2\na 1 2\nb 3\n": "line 3: got 2 fields, wanted a word and 2 numbers",
        b"2 1\na \0\0\0\0b \0\0": "row 2: got 4 bytes and the end, wanted a word, a space and 4 bytes",
        b"1 1\na \0\0\0": "row 1: got 5 bytes and the end, wanted a word, a space and 4 bytes; write binary=False for "
        "a text file",
        b"1 1\n\xff 1\n": "line 2: got the word b'\\xff', wanted utf-8 ('utf-8' codec can't decode byte 0xff in "
        "position 0: invalid start byte)",
        b"1 1\na b\n": "line 2: wanted 1 numbers after the word (could not convert string to float: b'b'); write "
        "binary=True for a binary file",
        b"a_b 2 1_0\n": "line 1: wanted 2 numbers after the word (got b'1_0')",
    }.items(),
)
def test_read_word2vec_malformed_files_raise(write, content, message):
    path = write(content)
    with raises(ValueError, f"{path}, {message}"):
        read_word2vec(path)


@pytest.mark.parametrize("content", [b"3 1\na 1\n", b"3 1\na \0\0\0\0"])
def test_read_word2vec_too_few_rows_raise(write, content):
    path = write(content)
    with raises(ValueError, f"{path}: got 1 rows, wanted 3"):
        read_word2vec(path)


def test_read_word2vec_options_that_do_not_fit_the_file_raise(write):
    path = write(b"the 0.5 1\n")
    with raises(ValueError, f"{path}, line 1: got 'the 0.5 1', {NO_NUMBERS}"):
        read_word2vec(path, no_header=False)
    with raises(ValueError, "limit: got 0, wanted an integer >= 1"):
        read_word2vec(path, limit=0)
    with raises(TypeError, "only: got the str 'the', wanted a collection of words"):
        read_word2vec(path, only="the")
    path = write(b"")
    with raises(ValueError, f"{path}: got 0 rows, wanted at least 1"):
        read_word2vec(path, no_header=True)
    message = "no_header: got True for a binary file, where only the header tells the number of dimensions"
    with raises(ValueError, message):
        read_word2vec(path, binary=True, no_header=True)


def test_from_word2vec_model_has_name_of_file(write):
    model = WordEmbeddingModel.from_word2vec(write(text(), "tiny.txt.gz"), only=["the"])
    assert repr(model) == "<WordEmbeddingModel named 'tiny' with 1 word embeddings of 3 dims>"
    assert model["the"].tolist() == VECTORS[0].tolist()


def test_from_word2vec_reads_published_file():
    wefe = importlib.util.find_spec("wefe")
    if wefe is None:
        pytest.skip("wefe is not installed")
    (path,) = Path(wefe.origin).parent.rglob("weat_w2v*.txt")
    model = WordEmbeddingModel.from_word2vec(path, name="weat_w2v")
    assert repr(model) == "<WordEmbeddingModel named 'weat_w2v' with 347 word embeddings of 300 dims>"
    np.testing.assert_array_equal(model["aster"][:2], np.float32([-0.22167969, 0.52734375]))


@pytest.mark.parametrize("head", ["2 3\nhe 1 2 3\n", ""])
def test_read_word2vec_endless_line_raises_with_bounded_memory(tmp_path, head):
    """The gzipped file of 120 KB has one line of 120 MB; memory does not grow with it."""
    path = tmp_path / "bomb.txt.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(head.encode())
        for _ in range(120):
            file.write(b"1" * 2**20)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"bomb.txt.gz, line \d: got more than \d+ bytes, wanted a word and"):
            read_word2vec(path, binary=False, no_header=not head)
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()


def test_read_word2vec_endless_binary_word_raises(tmp_path):
    path = tmp_path / "bomb.bin.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"2 2\n" + b"a" * 2**23)
    with pytest.raises(ValueError, match="bomb.bin.gz, row 1: got a word of more than 1048576 bytes"):
        read_word2vec(path, binary=True)


def test_read_word2vec_numbers_are_rounded_as_by_numpy(write):
    """NumPy rounds via float64: the first lies just below the midpoint of two float32, its float64 on the midpoint."""
    literals = "1.00000017881393432617187499", "0.1", "-1e-46", "1e39", "+.5", "5.", "-0", "1e-400", "nan", "-Infinity"
    with np.errstate(over="ignore"):
        expected = np.array([float(literal) for literal in literals]).astype(np.float32)
    _, vectors = read_word2vec(write(f"1 {len(literals)}\nword {' '.join(literals)}\n".encode()))
    assert expected[0] == 1 + 2**-22 and vectors.tobytes() == expected.tobytes()


@pytest.mark.parametrize("width", [1, 7, 300])
def test_read_word2vec_numbers_of_all_lengths_equal_numpy(write, width):
    """Numbers have up to 20 digits before and after an optional point, with optional signs and exponents."""
    random = np.random.default_rng(width)
    digits = ["".join(map(str, random.integers(0, 10, n).tolist())) for n in range(21)]
    unsigned = [
        f"{digits[i] or 0}{point}{digits[k]}" for i in range(21) for k in range(21) for point in ("." if k else "",)
    ]
    literals = [
        sign + unsigned_literal + exponent
        for unsigned_literal in unsigned
        for sign in ("", "-", "+")
        for exponent in ("", "e-7", "E+9")
    ]
    rows = [literals[i : i + width] for i in range(0, len(literals) - width + 1, width)]
    text = "".join(f"{'two ' * (i % 2)}{i} {'  '.join(row)}\n" for i, row in enumerate(rows)).rstrip()
    expected = np.array(rows, np.float64).astype(np.float32)
    assert read_word2vec(write(f"{len(rows)} {width}\n{text}".encode()))[1].tobytes() == expected.tobytes()


@pytest.mark.parametrize("chunk", [1, 7, 64, 2**22])
def test_read_word2vec_chunk_size_changes_nothing(write, monkeypatch, chunk):
    monkeypatch.setattr("tensormetrics.association.embeddings.formats.word2vec.TEXT_CHUNK", chunk)
    monkeypatch.setattr("tensormetrics.association.embeddings.formats.word2vec.CHUNK", 2**9)
    words = [f"word  {n}" * (1 + n % 3) for n in range(200)]
    rows = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    lines = (f"{word}\t{' '.join(map(str, row.tolist()))} \r" for word, row in zip(words, rows, strict=True))
    actual, vectors = read_word2vec(write("\n".join(["200 3", *lines]).encode()))
    assert actual == words and np.array_equal(vectors, rows)


@pytest.mark.parametrize("line", ["b 1", "b 1 2 x", "", "b 1 2 3_0", "b 1 2 nan(3)", "b 1 2 0x3", "1 2 3"])
def test_read_word2vec_invalid_line_is_named_in_error(write, line):
    path = write(f"5 3\na 1 2 3\na2 1 2 3\n{line}\nc 1 2 3\nd 1 2 3\n".encode())
    with pytest.raises(ValueError, match="vectors.txt, line 4: .*wanted"):
        read_word2vec(path)
    assert read_word2vec(path, limit=2)[0] == ["a", "a2"]  # lines after the limit are not checked
