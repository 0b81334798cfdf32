"""Reading of tensors, labels and tables from files, and the messages for invalid files."""

import numpy as np
import pytest
import torch
from test_malformed import pt

from tensormetrics._cli.inputs.arrays import read_tensor
from tensormetrics._cli.inputs.labels import read_labels

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_read_tensor_selects_one_of_several_arrays(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    tensor = torch.from_numpy(ROWS)
    np.savez(tmp_path / "a.npz", x=ROWS, y=ROWS + 1)
    torch.save({"x": tensor, "y": tensor + 1}, tmp_path / "a.pt")
    safetensors.save_file({"x": tensor, "y": tensor + 1}, tmp_path / "a.safetensors")
    for dtype in (">f4", "<f8", ">i2"):
        np.save(tmp_path / f"{dtype[1:]}.npy", ROWS.astype(dtype))
    for name in ("f4.npy", "f8.npy", "i2.npy", "a.npz:x", "a.pt:x", "a.safetensors:x"):
        assert torch.equal(read_tensor(f"{tmp_path}/{name}").float(), tensor), name


def test_read_tensor_maps_npy_files(tmp_path):
    np.lib.format.open_memmap(tmp_path / "large.npy", "w+", np.float32, (10**7, 1000)).flush()  # a sparse file of 40 GB
    assert read_tensor(f"{tmp_path}/large.npy").shape == (10**7, 1000)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("l.txt", b"3\n-1\n3\n", [3, -1, 3]),
        ("l.csv", b"label\n3\n-1\n", [3, -1]),
        ("l.csv", b"3.0\n-1.0\n", [3, -1]),
        ("l.txt", b"\xef\xbb\xbf3\r\n\r\n+1\r\n", [3, 1]),
        ("l.jsonl", b"3\n\n-1\n", [3, -1]),
        ("l.txt", b"cat\nant\ncat\n", ["cat", "ant", "cat"]),
        ("l.csv", b"label\r\n cat\r\ncat \r\n", ["label", "cat", "cat"]),
        ("l.txt", b"Nice, France\n\xc2\xb2\n", ["Nice, France", "\u00b2"]),
        ("l.pt", pt(torch.tensor([[3], [-1], [3]])), [3, -1, 3]),
    ],
)
def test_read_labels_of_numbers_or_words(tmp_path, name, content, expected):
    (tmp_path / name).write_bytes(content)
    labels, classes = read_labels(f"{tmp_path}/{name}")
    assert ([classes[i] for i in labels] if classes else labels.tolist()) == expected and labels.dtype == torch.int64
    assert classes == (sorted({*expected}) if isinstance(expected[0], str) else None)


ENCODINGS = ("utf-8", "utf-8-sig", "utf-16")  # the last two as Excel's "CSV UTF-8" and "Unicode text"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_readers_accept_encodings_of_spreadsheets(tmp_path, encoding):
    def write(name, text):
        (tmp_path / name).write_bytes(text.replace("\n", "\r\n").encode(encoding))
        return f"{tmp_path}/{name}"

    assert read_labels(write("l.csv", "caf\u00e9\nth\u00e9\ncaf\u00e9\n")).names == ["caf\u00e9", "th\u00e9"]
    assert read_tensor(write("x.csv", "\u00e9,b\n1,2\n3,4\n")).tolist() == [[1, 2], [3, 4]]
    assert read_tensor(write("x.jsonl", "[1, 2]\n[3, 4]\n")).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "content",
    [
        b"1,2\n3,4\n",
        b"\n1,2\n\n3,4\n\n",
        b"\xef\xbb\xbf1,2\r\n3,4\r\n",
        b'"1","2"\n3,4\n',
        b"a,b\n1,2\n3,4\n",
        b",a,b\n0,1,2\n1,3,4\n",
        b"truth,a,b\na,1,2\nb,3,4\n",
    ],
)
def test_read_tensor_of_csv_leaves_out_names(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    assert read_tensor(f"{tmp_path}/a.csv").tolist() == [[1, 2], [3, 4]]
