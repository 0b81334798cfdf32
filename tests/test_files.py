"""Atomic writes: a file is written completely or not at all."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest

from tensormetrics.core.text.files import open_atomic
from tensormetrics.posterior import Study


def write(path, content=b"new"):
    with open_atomic(path) as file:
        file.write(content)


def test_new_file_has_default_mode(tmp_path):
    write(tmp_path / "a")
    (tmp_path / "b").touch()
    assert (tmp_path / "a").read_bytes() == b"new" and sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_write_through_link_preserves_mode(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_bytes(b"old and longer")
    (folder / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("folder/file")
    (tmp_path / "dangling").symlink_to("folder/other")
    write(tmp_path / "link")
    write(tmp_path / "dangling", b"other")
    assert (tmp_path / "link").is_symlink() and (folder / "file").read_bytes() == b"new"
    assert stat.S_IMODE((folder / "file").stat().st_mode) == 0o640 and (folder / "other").read_bytes() == b"other"
    assert sorted(os.listdir(folder)) == ["file", "other"]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_failed_write_leaves_old_file(tmp_path, error):
    (tmp_path / "a").write_bytes(b"old")
    for name in ("a", "b"):
        with pytest.raises(type(error)), open_atomic(tmp_path / name) as file:
            file.write(b"half")
            raise error
    assert (tmp_path / "a").read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_reader_sees_old_file_until_write_ends(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with open_atomic(tmp_path / "a") as file:
        file.write(b"new")
        file.flush()
        assert (tmp_path / "a").read_bytes() == b"old"
    assert (tmp_path / "a").read_bytes() == b"new"


def test_pipe_is_written_directly(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    contents = []
    reader = threading.Thread(target=lambda: contents.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write(tmp_path / "pipe")
    reader.join(10)
    assert contents == [b"new"] and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


STREAM = """
from tensormetrics.core.text.files import open_atomic
print("before")
with open_atomic("/dev/stdout") as file:
    file.write(b"new\\n")
print("after")
"""


@pytest.mark.parametrize("append", [False, True])
def test_standard_output_is_written_at_current_position(tmp_path, append):
    with open(tmp_path / "out", "ab" if append else "wb") as out:
        subprocess.run([sys.executable, "-c", STREAM], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "before\nnew\nafter\n" and os.listdir(tmp_path) == ["out"]
    piped = subprocess.run([sys.executable, "-c", STREAM], capture_output=True, text=True, check=True)
    assert piped.stdout == "before\nnew\nafter\n"


@pytest.mark.parametrize("error_code, expected", [(errno.EBUSY, b"new"), (errno.EXDEV, b"old")])
def test_mounted_file_is_overwritten_if_replace_fails(tmp_path, monkeypatch, error_code, expected):
    def raise_error(*_):
        raise OSError(error_code, os.strerror(error_code))

    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr("tensormetrics.core.text.files.os.replace", raise_error)
    with nullcontext() if expected == b"new" else pytest.raises(OSError, match=os.strerror(error_code)):
        write(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == expected and os.listdir(tmp_path) == ["a"]


def test_unwritable_path_is_named_in_error(tmp_path):
    for path, kind in ((tmp_path / "no" / "a", FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(kind) as error:
            write(path)
        assert error.value.filename in (str(path), path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_write_respects_file_permissions(tmp_path):
    (tmp_path / "kept").write_bytes(b"old")
    (tmp_path / "kept").chmod(0o444)
    with pytest.raises(PermissionError):
        write(tmp_path / "kept")
    (tmp_path / "open").write_bytes(b"old")
    tmp_path.chmod(0o555)
    write(tmp_path / "open")
    tmp_path.chmod(0o755)
    assert (tmp_path / "kept").read_bytes() == b"old" and (tmp_path / "open").read_bytes() == b"new"


@pytest.mark.filterwarnings("ignore::tensormetrics.posterior.sampling.errors.ConfigWarning")
def test_study_save_on_full_disk_leaves_old_file(tmp_path):
    study = Study(0, 1000)
    study.add_experiment("a", [[9, 1], [2, 8]])
    study.save(tmp_path / "s.json")
    good = (tmp_path / "s.json").read_bytes()
    study.add_experiment("b", [[9 + i, 1] for i in range(2)], prevalence_prior=[1] * 2)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            study.save(tmp_path / "s.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert (tmp_path / "s.json").read_bytes() == good and os.listdir(tmp_path) == ["s.json"]
