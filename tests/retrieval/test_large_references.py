"""1,000 queries against references far larger than what the process takes, killed again and again.

TENSORMETRICS_LARGE_GB=20 pytest -m slow tests/retrieval/test_large_references.py
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

GIGABYTES = float(os.environ.get("TENSORMETRICS_LARGE_GB", "0.4"))
D, QUERIES, FILES = 256, 1000, 4
N = int(GIGABYTES * 1e9) // (2 * D * FILES) * FILES
CLASSES = max(N // 40, 1)


def values(random, rows):
    """Numbers in +-[1, 2)."""
    bits = random.integers(0, 2**16, (rows, D), dtype=np.uint16)
    return ((bits & np.uint16(0x83FF)) | np.uint16(0x3C00)).view(np.float16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("large"), np.random.default_rng(0)
    labels = random.integers(0, CLASSES, N)
    for number in range(FILES):
        shape = N // FILES, D
        file = np.lib.format.open_memmap(folder / f"base-{number}.npy", mode="w+", dtype=np.float16, shape=shape)
        for start in range(0, len(file), 2**18):
            part = file[start : start + 2**18]
            part[:] = values(random, len(part))
        file.flush()
        del part
        np.save(folder / f"labels-{number}.npy", labels[number * len(file) : (number + 1) * len(file)])
    some = np.sort(random.choice(N // FILES, QUERIES, replace=False))
    near = np.load(folder / "base-0.npy", mmap_mode="r")[some] + random.standard_normal((QUERIES, D)) * 3
    np.save(folder / "q.npy", near.astype(np.float16))
    np.save(folder / "ql.npy", labels[: N // FILES][some])
    yield folder
    for file in folder.iterdir():
        file.unlink()


def started(folder, *options):
    command = [sys.executable, "-m", "tensormetrics", "retrieval", "q.npy", "ql.npy", "--reference", "base-*.npy"]
    command += ["--reference-labels", "labels-*.npy", "--json", "o.json", "--device", "cpu", *options]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)


def killed_and_finished(folder, options):
    """How often it was killed while it wrote, and between two writes; the largest memory of a process."""
    state, counts, most, turns = folder / "state.pt", [0, 0], 0, 0
    while True:
        process, before = started(folder, "--state", str(state), "--state-seconds", "1", *options), _of(state)
        turns, while_writing, ended = turns + 1, turns % 2 == 0, 0
        while not ended:
            most = max(most, _peak(process.pid))
            ended, status = os.waitpid(process.pid, os.WNOHANG)
            writes = bool(list(folder.glob(".*.tmp")))
            if not ended and turns < 7 and _of(state) != before and writes == while_writing:
                process.send_signal(signal.SIGKILL)
                counts[while_writing] += 1
                ended, status = os.waitpid(process.pid, 0)
            time.sleep(0.001)
        process.returncode = status  # it has been waited for
        for litter in folder.glob(".*.tmp"):
            litter.unlink()
        if status == 0:
            return counts, most
        assert os.WTERMSIG(status) == signal.SIGKILL


def _peak(process):
    """The largest resident memory so far, in bytes; what `wait4` tells begins with that of the parent."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def _of(file):
    return file.stat().st_mtime_ns if file.exists() else 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads what a process takes from /proc")
@pytest.mark.parametrize("name, depth", [("mean_average_precision", []), ("precision_at_1", ["--k", "10"])])
def test_what_is_killed_goes_on(name, depth, folder):
    options = ["--metric", name, *depth]
    (between, writing), most = killed_and_finished(folder, options)
    found = json.loads((folder / "o.json").read_text())["metrics"]
    assert writing and between and most < 2e9, (writing, between, most)
    print(f"{name}: killed {writing} times in a write and {between} between, at most {most / 1e6:.0f} MB")
    (folder / "state.pt").unlink()
    assert started(folder, *options).wait() == 0
    assert json.loads((folder / "o.json").read_text())["metrics"] == found
