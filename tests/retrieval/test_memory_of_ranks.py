"""Peak memory of a rank during compute: its own rows, one block of similar size, and the memory budget."""

import gc
from pathlib import Path

import pytest
import torch
from torch import distributed as dist

from tensormetrics.retrieval import AccuracyCalculator

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
