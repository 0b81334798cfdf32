"""Several ranks answer what one answers, bit for bit: every row of cases.py, with uneven shards and an idle rank."""

import warnings
from pathlib import Path

import pytest
import torch
from cases import METRICS
from test_conformance import assert_same

SHARDS = {2: [41, 19], 3: [0, 50, 10]}  # rows per rank; the rank with 0 rows is never updated at all


def run_rank(rank: int, world: int, folder: str) -> None:
    warnings.simplefilter("error")
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    try:
        results = {}
        for name, case in METRICS.items():
            inputs = case.inputs(torch.Generator().manual_seed(0), sum(SHARDS[world]))
            metric = case.make()
            shard = [t.split(SHARDS[world])[rank] for t in inputs]
            if len(shard[0]):
                metric.update(*(t[:5] for t in shard))
                metric.update(*(t[5:] for t in shard))
            first = metric.compute()
            metric.update(*(t[:0] for t in shard))  # after an exchange every rank goes on with its own rows
            results[name] = first, metric.compute()
        torch.save(results, Path(folder) / f"{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("world", SHARDS)
def test_ranks_equal_one(world, tmp_path):
    torch.multiprocessing.spawn(run_rank, args=(world, str(tmp_path)), nprocs=world)
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(world)]
    for name, case in METRICS.items():
        alone = case.make()
        alone.update(*case.inputs(torch.Generator().manual_seed(0), sum(SHARDS[world])))
        for results in ranks:
            for value in results[name]:
                assert_same(value, alone.compute(), where=name)
