"""Command line with 1,000 queries and references larger than its memory, killed repeatedly.

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


def random_values(random, rows):
    """Draw numbers of magnitude in [1, 2)."""
    bits = random.integers(0, 2**16, (rows, D), dtype=np.uint16)
    return ((bits & np.uint16(0x83FF)) | np.uint16(0x3C00)).view(np.float16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("large"), np.random.default_rng(0)
    labels = random.integers(0, CLASSES, N)
    for index in range(FILES):
        shape = N // FILES, D
        file = np.lib.format.open_memmap(folder / f"base-{index}.npy", mode="w+", dtype=np.float16, shape=shape)
        for start in range(0, len(file), 2**18):
            part = file[start : start + 2**18]
            part[:] = random_values(random, len(part))
        file.flush()
        del part
        np.save(folder / f"labels-{index}.npy", labels[index * len(file) : (index + 1) * len(file)])
    selected = np.sort(random.choice(N // FILES, QUERIES, replace=False))
    queries = np.load(folder / "base-0.npy", mmap_mode="r")[selected] + random.standard_normal((QUERIES, D)) * 3
    np.save(folder / "q.npy", queries.astype(np.float16))
    np.save(folder / "ql.npy", labels[: N // FILES][selected])
    yield folder
    for file in folder.iterdir():
        file.unlink()


def start_process(folder, *options):
    command = [sys.executable, "-m", "tensormetrics", "retrieval", "q.npy", "ql.npy", "--reference", "base-*.npy"]
    command += ["--reference-labels", "labels-*.npy", "--json", "o.json", "--device", "cpu", *options]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)


def kill_until_finished(folder, options):
    """Return the number of kills between writes and during writes, and the peak memory of a process."""
    state, counts, peak, num_starts = folder / "state.pt", [0, 0], 0, 0
    while True:
        process, before = (
            start_process(folder, "--state", str(state), "--state-seconds", "1", *options),
            _modified_ns(state),
        )
        num_starts, kill_while_writing, ended_pid = num_starts + 1, num_starts % 2 == 0, 0
        while not ended_pid:
            peak = max(peak, _peak_memory(process.pid))
            ended_pid, status = os.waitpid(process.pid, os.WNOHANG)
            writes = bool(list(folder.glob(".*.tmp")))
            if not ended_pid and num_starts < 7 and _modified_ns(state) != before and writes == kill_while_writing:
                process.send_signal(signal.SIGKILL)
                counts[kill_while_writing] += 1
                ended_pid, status = os.waitpid(process.pid, 0)
            time.sleep(0.001)
        process.returncode = status  # os.waitpid has reaped the process
        for temp_file in folder.glob(".*.tmp"):
            temp_file.unlink()
        if status == 0:
            return counts, peak
        assert os.WTERMSIG(status) == signal.SIGKILL


def _peak_memory(process):
    """Return the peak resident memory in bytes; that of `wait4` would include the memory of the parent."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def _modified_ns(file):
    return file.stat().st_mtime_ns if file.exists() else 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads what a process takes from /proc")
@pytest.mark.parametrize("name, depth", [("mean_average_precision", []), ("precision_at_1", ["--k", "10"])])
def test_command_killed_repeatedly_resumes_with_same_result(name, depth, folder):
    options = ["--metric", name, *depth]
    (between, writing), peak = kill_until_finished(folder, options)
    expected = json.loads((folder / "o.json").read_text())["metrics"]
    assert writing and between and peak < 2e9, (writing, between, peak)
    print(f"{name}: killed {writing} times in a write and {between} between, at most {peak / 1e6:.0f} MB")
    (folder / "state.pt").unlink()
    assert start_process(folder, *options).wait() == 0
    assert json.loads((folder / "o.json").read_text())["metrics"] == expected
