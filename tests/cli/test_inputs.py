"""Reading of tensors, labels and tables from files, and the messages for invalid files."""

import json

import numpy as np
import pytest
import torch

from tensormetrics._cli.inputs import BadInput, read_labels, read_table, read_tensor
from tensormetrics.retrieval import Qrels, Run, evaluate_run

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_read_tensor_of_every_format_gives_equal_rows(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    tensor = torch.from_numpy(ROWS)
    np.save(tmp_path / "a.npy", ROWS)
    np.savez(tmp_path / "a.npz", x=ROWS, y=ROWS + 1)
    torch.save({"x": tensor, "y": tensor + 1}, tmp_path / "a.pt")
    safetensors.save_file({"x": tensor, "y": tensor + 1}, tmp_path / "a.safetensors")
    np.savetxt(tmp_path / "a.csv", ROWS, delimiter=",", header="first,second", comments="")
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS.tolist()))
    for name in ("a.npy", "a.npz:x", "a.pt:x", "a.safetensors:x", "a.csv", "a.jsonl"):
        assert torch.equal(read_tensor(f"{tmp_path}/{name}").float(), tensor), name


def test_read_tensor_maps_npy_files(tmp_path):
    np.lib.format.open_memmap(tmp_path / "large.npy", "w+", np.float32, (10**7, 1000)).flush()  # a sparse file of 40 GB
    assert read_tensor(f"{tmp_path}/large.npy").shape == (10**7, 1000)


def test_read_labels_of_numbers_or_words(tmp_path):
    (tmp_path / "numbers.txt").write_text("3\n-1\n3\n")
    (tmp_path / "words.txt").write_text("cat\nant\ncat\n")
    torch.save(torch.tensor([[3], [-1], [3]]), tmp_path / "labels.pt")
    for name in ("numbers.txt", "labels.pt"):
        labels, classes = read_labels(f"{tmp_path}/{name}")
        assert labels.tolist() == [3, -1, 3] and labels.dtype == torch.int64 and classes is None
    labels, classes = read_labels(f"{tmp_path}/words.txt")
    assert labels.tolist() == [1, 0, 1] and classes == ["ant", "cat"]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("l.csv", b"label\n3\n-1\n", [3, -1]),
        ("l.csv", b"3.0\n-1.0\n", [3, -1]),
        ("l.txt", b"\xef\xbb\xbf3\r\n\r\n+1\r\n", [3, 1]),
        ("l.jsonl", b"3\n\n-1\n", [3, -1]),
        ("l.csv", b"label\r\n cat\r\ncat \r\n", ["label", "cat", "cat"]),
        ("l.txt", b"Nice, France\n\xc2\xb2\n", ["Nice, France", "\u00b2"]),
    ],
)
def test_read_labels_of_spreadsheets(tmp_path, name, content, expected):
    (tmp_path / name).write_bytes(content)
    labels, classes = read_labels(f"{tmp_path}/{name}")
    assert ([classes[i] for i in labels] if classes else labels.tolist()) == expected


ENCODINGS = ("utf-8", "utf-8-sig", "utf-16")  # the last two as Excel's "CSV UTF-8" and "Unicode text"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_readers_accept_encodings_of_spreadsheets(tmp_path, encoding):
    def write(name, text):
        (tmp_path / name).write_bytes(text.replace("\n", "\r\n").encode(encoding))
        return f"{tmp_path}/{name}"

    assert read_labels(write("l.csv", "caf\u00e9\nth\u00e9\ncaf\u00e9\n")).names == ["caf\u00e9", "th\u00e9"]
    assert read_tensor(write("x.csv", "\u00e9,b\n1,2\n3,4\n")).tolist() == [[1, 2], [3, 4]]
    assert read_tensor(write("x.jsonl", "[1, 2]\n[3, 4]\n")).tolist() == [[1, 2], [3, 4]]
    write("run.txt", "q\u00e91 Q0 d 1 2 t\n")
    write("qrels.txt", "q\u00e91 0 d 1\n")
    result = evaluate_run(Run.read(tmp_path / "run.txt"), Qrels.read(tmp_path / "qrels.txt"), ["map"])
    assert result.summary() == {"map": 1.0} and result.queries == ["q\u00e91"]


@pytest.mark.parametrize(
    ("content", "columns", "rows"),
    [
        (b"1,2\n3,4\n", None, None),
        (b"\n1,2\n\n3,4\n\n", None, None),
        (b"\xef\xbb\xbf1,2\r\n3,4\r\n", None, None),
        (b'"1","2"\n3,4\n', None, None),
        (b"a,b\n1,2\n3,4\n", ["a", "b"], None),
        (b",a,b\n0,1,2\n1,3,4\n", ["a", "b"], ["0", "1"]),
        (b"truth,a,b\na,1,2\nb,3,4\n", ["a", "b"], ["a", "b"]),
    ],
)
def test_read_table_with_and_without_names(tmp_path, content, columns, rows):
    (tmp_path / "a.csv").write_bytes(content)
    table = read_table(tmp_path / "a.csv")
    assert (table.columns, table.rows, table.values.tolist()) == (columns, rows, [[1, 2], [3, 4]])


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of torch 2.11
@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.npy", lambda path: None, ": there is no such file"),
        ("a.npy", lambda path: path.touch(), ": the file is empty"),
        ("a.npy", lambda path: path.write_bytes(b"\x93NUMPY"), ": wanted a .npy file; EOF: "
         "reading magic string, expected 8 bytes got 6"),
        ("a.npy", lambda path: np.save(path, np.array([{}])), ": wanted a .npy file; got "
         "Python objects, which are not unpickled"),
        ("a.pt", lambda path: torch.save([np.random.default_rng()], path), ": wanted a "
         "file of torch.save; got Python objects, which are not unpickled"),
        ("a.pt", lambda path: torch.save(torch.eye(2).to_sparse(), path), ": got a torch.sparse_coo tensor, wanted a "
         "dense one of real numbers"),
        ("a.pt", lambda path: torch.save(torch.eye(2) * 1j, path), ": got a cpu torch.complex64 tensor, wanted a dense "
         "one of real numbers"),
        ("a.pt", lambda path: torch.save({}, path), ": it holds no array"),
        ("a.pt", lambda path: torch.save([1], path), ": got a list, wanted an array"),
        ("a.npy", lambda path: np.save(path, np.array(["a"])), ": got an array of <U1, wanted numbers"),
        ("a.npy", lambda path: np.save(path, ROWS[:0]), ": got an array of shape (0, 2), wanted at least one row"),
        ("a.npz", lambda path: np.savez(path, x=ROWS, y=ROWS), ": got no name for a file of x, y; write {}:x"),
        ("a.npz:z", lambda path: np.savez(path.with_name("a.npz"), x=ROWS), ": got the name 'z' for a file of x; "
         "write {}:x"),
        ("a.npy:x", lambda path: np.save(path.with_name("a.npy"), ROWS), ":x: a .npy file holds one array; leave out "
         "':x'"),
        ("a.csv", lambda path: path.write_text("1,2\n3\n"), ", line 2: got 1 columns, wanted 2 as above"),
        ("a.csv", lambda path: path.write_text("1,2\n3,x\n"), ", line 2: got 'x', wanted a finite number"),
        ("a.csv", lambda path: path.write_text("id,a\nx,1\ny,1,2\n"), ", line 3: got 3 columns, wanted 2 as above"),
        ("a.csv", lambda path: path.write_text("id,a\nx,1\n3,2\n"), ", line 3: got '3', wanted a name as above"),
        ("a.csv", lambda path: path.write_bytes("1,2".encode("utf-16")[:-1]), ": got a file marked as UTF-16 that is "
         "not whole, or is none"),
        ("a.jsonl", lambda path: path.write_text("[1, 2]\n[1, 2\n"), ", line 2: this is no JSON: Expecting ',' "
         "delimiter at character 6"),
        ("a.jsonl", lambda path: path.write_text("[1, NaN]\n"), ", line 1: this is no JSON: got NaN, wanted a finite "
         "number"),
        ("a.jsonl", lambda path: path.write_text(f"[1{400 * '0'}]\n"), ", line 1: int too large to convert to float"),
        ("a.jsonl", lambda path: path.write_text("[1, 2]\n[1]\n"), ", line 2: got 1 numbers, wanted 2 as above"),
        ("a.jsonl", lambda path: path.write_text('{"x": 1}\n'), ', line 1: wanted a list of numbers, got {{"x": 1}}'),
        ("a.doc", lambda path: path.write_text("1"), ": got a file of type '.doc', wanted one of .npy, .npz, .pt, "
         ".pth, .safetensors, .csv, .jsonl"),
    ],
)  # fmt: skip
def test_read_tensor_bad_file_raises(tmp_path, name, write, message):
    write(tmp_path / name)
    file = f"{tmp_path}/{name.partition(':')[0]}"
    with pytest.raises(BadInput) as error:
        read_tensor(f"{tmp_path}/{name}")
    assert error.value.message == file + message.format(file)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("l.csv", "1\n2,3\n", ", line 2: got 2 columns, wanted one label"),
        ("l.txt", "1\n2.5\n", ", line 2: got '2.5', wanted an integer of at most 64 bits or a word"),
        ("l.txt", "1\nnan\n", ", line 2: got 'nan', wanted an integer of at most 64 bits or a word"),
        ("l.csv", "cat;3\ndog;4\n", ", line 1: got 2 columns, wanted one label"),
        ("l.csv", 'cat\n""\ndog\n', ", line 2: got an empty cell, wanted a label"),
        ("l.csv", f"1\n{2**63}\n", f", line 2: got '{2**63}', wanted an integer of at most 64 bits or a word"),
        ("l.txt", "\n\n", ": got no label, wanted one per line"),
        ("l.jsonl", "1\n1.5\n", ", line 2: got 1.5, wanted an integer of at most 64 bits"),
        ("l.jsonl", '"a"\n1\n', ", line 2: got 1, wanted a word"),
        ("l.jsonl", "null\n", ", line 1: got null, wanted an integer of at most 64 bits or a word"),
    ],
)
def test_read_labels_bad_file_raises(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput) as error:
        read_labels(f"{tmp_path}/{name}")
    assert error.value.message == f"{tmp_path}/{name}{message}"


def test_read_labels_of_fractions_raises(tmp_path):
    np.save(tmp_path / "l.npy", ROWS)
    with pytest.raises(BadInput, match="got torch.float32, wanted integer labels"):
        read_labels(f"{tmp_path}/l.npy")


def test_read_tensor_converts_byte_order(tmp_path):
    rows = np.arange(6.0).reshape(3, 2)
    for dtype in (">f4", "<f8", ">i2"):
        np.save(tmp_path / "x.npy", rows.astype(dtype))
        assert read_tensor(str(tmp_path / "x.npy")).tolist() == rows.tolist()
