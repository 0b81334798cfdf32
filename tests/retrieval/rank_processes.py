"""Processes of a group of three ranks, then of one of five, started once for all tests of results of several ranks."""

import gc
import importlib
import warnings
from pathlib import Path

import torch
from torch import distributed as dist

from tensormetrics.retrieval.search import ring_pass

# By number of ranks: those of a smaller group, and the modules whose `results_of` every rank calls.
GROUPS = {
    3: ([1, 2], ("test_sharded", "test_spread", "test_streams_on_ranks")),
    5: ([0, 1, 2, 3], ("test_many_ranks",)),
}


def rows_besides(own, width):
    """Count the rows of all tensors of this width in the process, besides a number of rows of its own."""
    tensors = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor) and o.shape[1:] == (width,)]
    return sum({t.untyped_storage().data_ptr(): len(t) for t in tensors}.values()) - own


def run_rank(rank, folder):
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "memory_budget: got")  # the tests need many blocks of few rows
    torch.set_num_threads(1)
    ring_pass.FEWEST, results = 8, {}
    for size, (members, modules) in GROUPS.items():
        if rank < size:
            dist.init_process_group("gloo", init_method=f"file://{folder}/{size}", rank=rank, world_size=size)
            group = dist.new_group(members)
            results |= {name: importlib.import_module(name).results_of(rank, group) for name in modules}
            dist.destroy_process_group()
    torch.save(results, Path(folder) / f"{rank}.pt")
