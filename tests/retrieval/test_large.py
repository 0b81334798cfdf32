"""Limits of memory for thousands of rows."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed as dist

from tensormetrics.retrieval import AccuracyCalculator

CHILD = """
import torch
from pathlib import Path
from tensormetrics.retrieval import AccuracyCalculator

names = ("mean_average_precision", "mean_reciprocal_rank", "precision_at_1", "r_precision")
labels = torch.arange(10_000) % 100
x = torch.nn.functional.normalize(torch.randn(100, 128)[labels] + 2.5 * torch.randn(10_000, 128))
assert all(0 < value < 1 for value in AccuracyCalculator(names).get_accuracy(x, labels).values())
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(int(peak.split()[1]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of a process from /proc")
def test_get_accuracy_of_10_000_rows_stays_below_400_mb():
    result = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert int(result.stdout) <= 400


WORLD, ROWS, D, BUDGET = 4, 8_000, 2_048, 2**24
TOTAL_BYTES = 4 * ROWS * D


def memory_bytes(field):
    """Return the current (VmRSS) or peak (VmHWM) memory of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) << 10


def run_rank(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    peaks = {}
    for name, k in (("mean_average_precision", None), ("precision_at_1", 10)):
        for count in (200, ROWS):  # the first run loads libraries that the second one uses
            generator = torch.Generator().manual_seed(rank)
            metric = AccuracyCalculator((name,), k=k, memory_budget=BUDGET)
            gc.collect()
            dist.barrier()
            before = memory_bytes("VmRSS")
            local_rows = torch.randn(count // WORLD, D, generator=generator)
            metric.update(local_rows, torch.arange(len(local_rows)) * WORLD % (count // 20) + rank)
            del local_rows
            Path("/proc/self/clear_refs").write_text("5")  # reset VmHWM
            metric.compute()
            peaks[name] = memory_bytes("VmHWM") - before
            metric.reset()
    torch.save(peaks, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads the memory of a process from /proc")
def test_rank_memory_stays_below_two_shards_and_budget(tmp_path):
    torch.multiprocessing.spawn(run_rank, args=(str(tmp_path),), nprocs=WORLD)
    for rank in range(WORLD):
        for name, peak in torch.load(tmp_path / f"{rank}.pt").items():
            assert peak < 1.05 * (2 / WORLD * TOTAL_BYTES + BUDGET), (name, peak)
