"""What a rank takes while it computes: its own rows, about as many of the others, and the memory budget."""

import gc
from pathlib import Path

import pytest
import torch
from torch import distributed as dist

from tensormetrics.retrieval import AccuracyCalculator

WORLD, ROWS, D, BUDGET = 4, 8_000, 2_048, 2**24
WHOLE = 4 * ROWS * D


def taken(what):
    """Bytes of memory: VmRSS now, VmHWM at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) << 10


def run_rank(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    found = {}
    for name, k in (("mean_average_precision", None), ("precision_at_1", 10)):
        for count in (200, ROWS):  # the first loads what the second uses
            generator = torch.Generator().manual_seed(rank)
            metric = AccuracyCalculator((name,), k=k, memory_budget=BUDGET)
            gc.collect()
            dist.barrier()
            before = taken("VmRSS")
            own = torch.randn(count // WORLD, D, generator=generator)
            metric.update(own, torch.arange(len(own)) * WORLD % (count // 20) + rank)
            del own
            Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
            metric.compute()
            found[name] = taken("VmHWM") - before
            metric.reset()
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads what a process takes from /proc")
def test_a_rank_takes_its_share_and_the_budget(tmp_path):
    torch.multiprocessing.spawn(run_rank, args=(str(tmp_path),), nprocs=WORLD)
    for rank in range(WORLD):
        for name, peak in torch.load(tmp_path / f"{rank}.pt").items():
            assert peak < 1.05 * (2 / WORLD * WHOLE + BUDGET), (name, peak)
