"""Files into tensors, and ten ways for a file to be wrong, each one clear line."""

import json

import numpy as np
import pytest
import torch

from tensormetrics._cli.inputs import BadInput, read_labels, read_tensor

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_every_format_gives_the_same_rows(tmp_path):
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


def test_npy_is_mapped_and_not_read(tmp_path):
    np.lib.format.open_memmap(tmp_path / "large.npy", "w+", np.float32, (10**7, 1000)).flush()  # 40 GB, all of it holes
    assert read_tensor(f"{tmp_path}/large.npy").shape == (10**7, 1000)


def test_labels_are_numbers_or_words(tmp_path):
    (tmp_path / "numbers.txt").write_text("3\n-1\n3\n")
    (tmp_path / "words.txt").write_text("cat\nant\ncat\n")
    torch.save(torch.tensor([[3], [-1], [3]]), tmp_path / "labels.pt")
    for name in ("numbers.txt", "labels.pt"):
        labels, classes = read_labels(f"{tmp_path}/{name}")
        assert labels.tolist() == [3, -1, 3] and labels.dtype == torch.int64 and classes is None
    labels, classes = read_labels(f"{tmp_path}/words.txt")
    assert labels.tolist() == [1, 0, 1] and classes == ["ant", "cat"]


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.npy", lambda path: None, ": there is no such file"),
        ("a.npy", lambda path: path.touch(), ": the file is empty"),
        ("a.npy", lambda path: path.write_bytes(b"\x93NUMPY"), ": cannot be read as .npy: EOF: "
         "reading magic string, expected 8 bytes got 6"),
        ("a.npy", lambda path: np.save(path, np.array([{}])), ": it holds Python objects, which are not unpickled; "
         "save a plain array of numbers"),
        ("a.pt", lambda path: torch.save([np.random.default_rng()], path), ": it holds Python objects, which are not "
         "unpickled; save a plain array of numbers"),
        ("a.pt", lambda path: torch.save([1], path), ": got a list, wanted an array"),
        ("a.npy", lambda path: np.save(path, np.array(["a"])), ": got an array of <U1, wanted numbers"),
        ("a.npy", lambda path: np.save(path, ROWS[:0]), ": got an array of shape (0, 2), wanted at least one row"),
        ("a.npz", lambda path: np.savez(path, x=ROWS, y=ROWS), ": got no name for a file of x, y; write {}:x"),
        ("a.npz:z", lambda path: np.savez(path.with_name("a.npz"), x=ROWS), ": got the name 'z' for a file of x; "
         "write {}:x"),
        ("a.npy:x", lambda path: np.save(path.with_name("a.npy"), ROWS), ":x: a .npy file holds one array; leave out "
         "':x'"),
        ("a.csv", lambda path: path.write_text("1,2\n3\n"), ", line 2: got 1 columns, wanted 2 as above"),
        ("a.csv", lambda path: path.write_text("1,2\n3,x\n"), ", line 2: got 'x', wanted a number"),
        ("a.jsonl", lambda path: path.write_text("[1, 2]\n[1, 2\n"), ", line 2: this is no JSON: Expecting ',' "
         "delimiter: line 2 column 1 (char 6)"),
        ("a.jsonl", lambda path: path.write_text("[1, 2]\n[1]\n"), ", line 2: got 1 numbers, wanted 2 as above"),
        ("a.jsonl", lambda path: path.write_text('{"x": 1}\n'), ', line 1: wanted a list of numbers, got {{"x": 1}}'),
        ("a.doc", lambda path: path.write_text("1"), ": got a file of type '.doc', wanted one of .npy, .npz, .pt, "
         ".pth, .safetensors, .csv, .jsonl"),
    ],
)  # fmt: skip
def test_bad_files(tmp_path, name, write, message):
    write(tmp_path / name)
    file = f"{tmp_path}/{name.partition(':')[0]}"
    with pytest.raises(BadInput) as error:
        read_tensor(f"{tmp_path}/{name}")
    assert error.value.message == file + message.format(file)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("l.txt", "1\n2,3\n", ", line 2: got 2 columns, wanted one label"),
        ("l.txt", "\n\n", ": got no label, wanted one per line"),
        ("l.jsonl", "1\n1.5\n", ", line 2: wanted an integer or a word, got 1.5"),
    ],
)
def test_bad_labels(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput) as error:
        read_labels(f"{tmp_path}/{name}")
    assert error.value.message == f"{tmp_path}/{name}{message}"


def test_labels_are_no_fractions(tmp_path):
    np.save(tmp_path / "l.npy", ROWS)
    with pytest.raises(BadInput, match="got torch.float32, wanted integer labels"):
        read_labels(f"{tmp_path}/l.npy")
