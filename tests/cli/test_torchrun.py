"""`torchrun ... -m tensormetrics retrieval --state FILE`, as users type it: killed, and gone on to the same values."""

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
    folder, drawn = tmp_path_factory.mktemp("torchrun"), np.random.default_rng(0)
    for name, count in (("q", 400), ("r", 120_000)):
        np.save(folder / f"{name}.npy", drawn.standard_normal((count, 64), dtype=np.float32))
        np.save(folder / f"{name}-labels.npy", drawn.integers(0, 40, count))
    return folder


def command(folder: Path) -> list[str]:
    given = ["q.npy", "q-labels.npy", "--reference", "r.npy", "--reference-labels", "r-labels.npy"]
    return [
        "-m",
        "tensormetrics",
        "retrieval",
        *(str(folder / g) if g.endswith(".npy") else g for g in given),
        *METRICS,
    ]


def workers_of(launcher: int) -> list[int]:
    """The processes that a process has started, if it is one of Linux."""
    found = Path(f"/proc/{launcher}/task").glob("*/children")
    return [int(child) for file in found for child in file.read_text().split()]


def killed(start: list[str], folder: Path, in_a_write: bool) -> bool:
    """Starts, and kills the workers when both have written a state; whether it was in the midst of a write."""
    state, before = folder / "state.pt", set(folder.glob(".*.tmp"))
    launcher = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while launcher.poll() is None:
        there = all(Path(f"{state}.rank{rank}").exists() for rank in range(2))
        if there and (not in_a_write or set(folder.glob(".*.tmp")) - before):
            for worker in workers_of(launcher.pid):
                os.kill(worker, signal.SIGKILL)
            break
        time.sleep(0.0005)
    assert launcher.wait(60) != 0, "it ended before it was killed"
    return bool(set(folder.glob(".*.tmp")) - before)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the workers are found in /proc")
@pytest.mark.parametrize("in_a_write", [False, True])
def test_a_killed_run_goes_on(files, tmp_path, in_a_write):
    torchrun = shutil.which("torchrun", path=Path(sys.executable).parent) or shutil.which("torchrun")
    if torchrun is None:
        pytest.skip("torch has brought no torchrun")
    wanted, found = tmp_path / "wanted.json", tmp_path / "found.json"
    subprocess.run([sys.executable, *command(files), "--json", str(wanted)], check=True, capture_output=True)
    kept = ["--state", str(tmp_path / "state.pt"), "--state-seconds", "0.01", "--json", str(found)]
    start = [torchrun, "--standalone", "--nproc-per-node", "2", *command(files), *kept]
    hit = killed(start, tmp_path, in_a_write)
    assert hit or not in_a_write
    assert not found.exists()
    result = subprocess.run(start, check=True, capture_output=True, text=True)
    assert json.loads(found.read_text())["metrics"] == json.loads(wanted.read_text())["metrics"], result.stderr
