"""`torchrun ... -m tensormetrics retrieval --checkpoint FILE`: a killed run resumes to the same scores."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

METRICS = ["--metric", "mean_average_precision", "--metric", "precision_at_1", "--device", "cpu"]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder, generator = tmp_path_factory.mktemp("torchrun"), np.random.default_rng(0)
    for name, count in (("q", 400), ("r", 120_000)):
        np.save(folder / f"{name}.npy", generator.standard_normal((count, 64), dtype=np.float32))
        np.save(folder / f"{name}-labels.npy", generator.integers(0, 40, count))
    return folder


def command(folder: Path) -> list[str]:
    words = "-m tensormetrics retrieval q.npy q-labels.npy --reference r.npy --reference-labels r-labels.npy".split()
    return [*(str(folder / word) if word.endswith(".npy") else word for word in words), *METRICS]


def workers_of(launcher: int) -> list[int]:
    """Return the children of a process on Linux."""
    actual = Path(f"/proc/{launcher}/task").glob("*/children")
    return [int(child) for file in actual for child in file.read_text().split()]


def kill_workers(start: list[str], folder: Path, in_a_write: bool) -> bool:
    """Run a command and kill its workers when both have written a state. Return whether a write was interrupted."""
    state, before = folder / "state.pt", set(folder.glob(".*.tmp"))
    launcher = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while launcher.poll() is None:
        have_state = all(Path(f"{state}.rank{rank}").exists() for rank in range(2))
        if have_state and (not in_a_write or set(folder.glob(".*.tmp")) - before):
            for worker in workers_of(launcher.pid):
                os.kill(worker, signal.SIGKILL)
            break
        time.sleep(0.0005)
    assert launcher.wait(60) != 0, "it ended before it was killed"
    return bool(set(folder.glob(".*.tmp")) - before)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the workers are found in /proc")
@pytest.mark.parametrize("in_a_write", [False, True])
def test_killed_run_resumes_to_equal_scores(files, tmp_path, in_a_write):
    torchrun = shutil.which("torchrun", path=Path(sys.executable).parent) or shutil.which("torchrun")
    if torchrun is None:
        pytest.skip("torch has brought no torchrun")
    expected, actual = tmp_path / "wanted.json", tmp_path / "found.json"
    subprocess.run([sys.executable, *command(files), "--json", str(expected)], check=True, capture_output=True)
    options = ["--checkpoint", str(tmp_path / "state.pt"), "--checkpoint-seconds", "0.01", "--json", str(actual)]
    start = [torchrun, "--standalone", "--nproc-per-node", "2", *command(files), *options]
    hit = kill_workers(start, tmp_path, in_a_write)
    assert hit or not in_a_write
    assert not actual.exists()
    result = subprocess.run(start, check=True, capture_output=True, text=True)
    assert json.loads(actual.read_text())["metrics"] == json.loads(expected.read_text())["metrics"], result.stderr
