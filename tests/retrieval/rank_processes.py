"""Processes of one group of three ranks, started once for all tests that compare results of several ranks."""

import importlib
import warnings
from pathlib import Path

import torch
from torch import distributed as dist

from tensormetrics.retrieval.search.ring import ring_pass

MODULES = ("test_kmeans", "test_retrieval_not_finite", "test_sharded", "test_spread", "test_streams_on_ranks")


def run_rank(rank, folder):
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "memory_budget: got")  # the tests need many blocks of few rows
    torch.set_num_threads(1)
    ring_pass.FEWEST = 8
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=3)
    try:
        pair = dist.new_group([1, 2])
        results = {name: importlib.import_module(name).results_of(rank, pair) for name in MODULES}
        torch.save(results, Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()
