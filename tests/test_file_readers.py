"""Properties that all file readers have in common, tested for each row of `cases/readers.py`."""

import gzip
import importlib.util
import io
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from cases.readers import READERS, Reader
from test_layers import FILES, PACKAGE, imported_modules

from tensormetrics import association, posterior, retrieval, uncertainty
from tensormetrics.core.text.files import Npz, check_regular, is_empty, open_stream, parsing, read_bytes

ROOT = Path(__file__).parent.parent
OPENING = {  # functions of core/text/files.py that open a file of the caller
    *("open_stream", "read_bytes", "read_text", "map_array", "map_numbers", "read_numbers", "Npz", "load_tensors"),
    *("open_safetensors", "map_arrow"),
}
every_reader = pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())


def content_of(reader: Reader) -> bytes:
    if reader.needs and not importlib.util.find_spec(reader.needs):
        pytest.skip(f"needs {reader.needs}")
    return reader.content()


def write_fifo(path: Path, content: bytes) -> threading.Thread:
    """Create a named pipe, and write the content to the process that opens it."""

    def write() -> None:
        try:
            with open(path, "wb") as file:
                file.write(content)
        except BrokenPipeError:
            pass

    os.mkfifo(path)
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


def test_every_module_that_opens_files_has_a_row():
    covered = {module for reader in READERS.values() for module in reader.modules}
    for path in FILES:
        imports = imported_modules((PACKAGE / path).read_text(), path)
        used = {name for name in OPENING if f"tensormetrics.core.text.files.{name}" in imports}
        module = ".".join(path.with_suffix("").parts)
        assert not used or module in covered, (
            f"{path}: add a row to tests/cases/readers.py for the reader that uses {used}"
        )


@every_reader
def test_reader_of_valid_file_equals_reference(reader, tmp_path):
    content = content_of(reader)
    path = tmp_path / f"file{reader.suffix}"
    path.write_bytes(content)
    result = reader.read(path)
    assert reader.reference_read is None or reader.reference_read(content) == result
    if "state" not in reader.modules[0]:  # loading a missing state starts a new one
        with pytest.raises((*reader.errors, OSError)) as error:
            reader.read(tmp_path / f"none{reader.suffix}")
        assert "none" in str(error.value) or getattr(error.value, "filename", None)


@every_reader
def test_streaming_readers_read_pipes_and_gzip(reader, tmp_path):
    """Readers that read sequentially accept pipes and gzip files; the other readers raise."""
    content = content_of(reader)
    uncompressed, pipe = tmp_path / f"file{reader.suffix}", tmp_path / f"pipe{reader.suffix}"
    uncompressed.write_bytes(content)
    writer = write_fifo(pipe, content)
    if reader.is_streamable:
        packed = tmp_path / f"packed{reader.suffix}.gz"
        packed.write_bytes(gzip.compress(content))
        assert reader.read(pipe) == reader.read(packed) == reader.read(uncompressed)
        writer.join(timeout=10)
    elif "datasets" not in reader.modules[0]:  # readers of data sets read files of a folder
        with pytest.raises(reader.errors, match=r"got a pipe, wanted a file|\.pt is no checkpoint"):
            reader.read(pipe)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
@every_reader
def test_readers_of_other_encodings_read_the_same_or_name_the_file(reader, encoding, tmp_path):
    content, path = content_of(reader), tmp_path / f"file{reader.suffix}"
    text = content.decode("utf-8", "replace")
    if "\ufffd" in text or (text.isascii() and encoding == "latin-1"):
        pytest.skip("no text, or the bytes of UTF-8")
    path.write_bytes(content)
    expected = reader.read(path)
    path.write_text(text, encoding, newline="")
    try:
        assert reader.read(path) == expected
    except reader.errors as error:
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        assert any(name in message for name in (path.name, *reader.error_names)) and "\n" not in message


@pytest.mark.parametrize(
    "num_mutations", [pytest.param(36, marks=pytest.mark.full), pytest.param(720, marks=pytest.mark.slow)]
)
def test_readers_of_damaged_files_raise_documented_errors(num_mutations):
    """Damaged files give the documented error or the result of another reader."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        [sys.executable, "-m", "tests.fuzz_readers", str(num_mutations)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert (process.returncode, process.stdout, process.stderr[-2000:]) == (0, "0 faults\n", "")


def test_parsing_error_names_file_and_format():
    for fault, reason in (
        (ValueError("line 3 is odd\nand more"), "line 3 is odd"),
        (KeyError("x"), "it is damaged"),
        (RecursionError("maximum"), "it is nested too deeply"),
        (MemoryError(), "it is damaged, or declares more than memory holds"),
        (ValueError("Object arrays cannot be loaded"), "got Python objects, which are not unpickled"),
        (OSError(22, "Invalid argument"), "[Errno 22] Invalid argument"),
    ):
        with (
            pytest.raises(ValueError, match=r"^x\.npy: wanted a \.npy file; ") as error,
            parsing("x.npy", "a .npy file"),
        ):
            raise fault
        assert str(error.value) == f"x.npy: wanted a .npy file; {reason}"
    for fault in (FileNotFoundError(2, "No such file", "x"), ImportError("no pyarrow"), KeyboardInterrupt()):
        with pytest.raises(type(fault)), parsing("x.npy", "a .npy file"):
            raise fault
    with pytest.raises(TypeError, match=r"^x: line 3$"), parsing("x", "a file", TypeError):
        raise ValueError("x: line 3")  # the message already names the file


def test_read_bytes_ignores_reported_size_of_zero(tmp_path):
    virtual_file = Path("/proc/self/status")
    if not virtual_file.exists():
        pytest.skip("needs /proc")
    assert virtual_file.stat().st_size == 0 and read_bytes(virtual_file).startswith(b"Name:")
    assert not is_empty(virtual_file)
    (tmp_path / "empty").touch()
    assert is_empty(tmp_path / "empty") and read_bytes(tmp_path / "empty") == b""


def test_endless_device_raises_value_error():
    for read in (read_bytes, retrieval.Run.read, posterior.load_csv, uncertainty.read_scores):
        with pytest.raises(ValueError, match=r"^/dev/zero: got a device, wanted a file or a pipe"):
            read("/dev/zero")
    with pytest.raises(ValueError, match=r"^/dev/zero: got a device, wanted a file: a \.npy file is not read from"):
        retrieval.open_embeddings("/dev/zero.npy") if Path("/dev/zero.npy").exists() else check_regular(
            "/dev/zero", "a .npy file"
        )


def test_gzip_file_is_read_in_chunks(tmp_path):
    path = tmp_path / "zeros.gz"
    with gzip.open(path, "wb") as file:
        file.write(bytes(3_000_000))
    assert len(read_bytes(path, 100)) < 2**21
    with open_stream(path) as stream:
        assert stream.read(10) == bytes(10)


def test_from_npz_decompresses_only_needed_arrays(tmp_path, monkeypatch):
    """All headers are read, but only the data of the selected arrays."""
    path = tmp_path / "x.npz"
    np.savez_compressed(path, vectors=np.ones((3, 2)), words=np.array(["a", "b", "c"]), other=np.zeros((1000, 1000)))
    read = []
    monkeypatch.setattr(
        np.lib.npyio.NpzFile,
        "__getitem__",
        lambda file, name, of=np.lib.npyio.NpzFile.__getitem__: (read.append(name), of(file, name))[1],
    )
    assert association.WordEmbeddingModel.from_npz(path, vectors="vectors")["b"].tolist() == [1, 1]
    assert sorted(read) == ["vectors", "words"]
    assert {name: header.shape for name, header in Npz(path).headers.items()}["other"] == (1000, 1000)


def truncated_npz(path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**42, 4)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vectors.npy", header.getvalue())


def packed_rows(path):
    with gzip.open(path, "wb") as file:
        np.save(file, np.ones((2, 2)))


Model = association.WordEmbeddingModel
PACKED = r"rows\.npy\.gz: got a packed file, wanted .* as it is; write gunzip"
BAD_FILES = [  # name, what writes it, what reads it, and the error
    ("x.npz", truncated_npz, lambda path: Model.from_npz(path, ["a"]),
     r"a \.npz file; vectors\.npy ends within its array of \(4398046511104, 4\)"),
    ("m.csv", lambda path: path.write_text(",".join(["1"] * 70_000)), posterior.load_csv,  # a field limit's length
     "got 1 rows of 70000 columns"),
    ("rows.npy.gz", packed_rows, lambda path: retrieval.TorchKNN().load(path), PACKED),
    ("rows.npy.gz", packed_rows, Model.from_fasttext, PACKED),
    ("rows.npy.gz", packed_rows, Npz, PACKED),
    ("blank.txt", lambda path: path.write_text("\n\n"), lambda path: Model.from_word2vec(path, no_header=True),
     r"blank\.txt"),
    ("x.pt", lambda path: torch.save({"rows": torch.ones(2, 2)}, path), lambda path: retrieval.TorchKNN().load(path),
     r"x\.pt: this is no file of TorchKNN\.save"),
    ("glove.txt", lambda path: path.write_text("he 0.5 0.25\n" + "a 1 2 3 4\nb 1 2 3 4\nc 1 2 3 4\n"),
     Model.from_word2vec, r"glove\.txt, line 1: got 2 numbers, wanted 4 as in the lines below"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "write", "read", "message"), BAD_FILES)
def test_bad_file_raises_with_its_name(name, write, read, message, tmp_path):
    write(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / name)


def run_trec(folder, *arguments, **options):
    command = [sys.executable, "-m", "tensormetrics", "trec", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, env=environment, **options)


@pytest.mark.full
def test_trec_reads_qrels_once_for_two_runs(tmp_path):
    for name in ("run.txt", "other.txt"):
        (tmp_path / name).write_text("q1 Q0 d1 1 2.5 x\nq2 Q0 d1 1 2.5 x\n")
    writer = write_fifo(tmp_path / "qrels.txt", b"q1 0 d1 1\nq2 0 d1 1\n")
    process = run_trec(tmp_path, "run.txt", "qrels.txt", "--compare", "other.txt")
    writer.join(timeout=10)
    assert process.returncode == 0, process.stderr
