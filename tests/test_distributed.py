"""Several ranks return bit by bit what one process returns, for all rows of tests/cases/ and uneven or empty shards."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import METRICS
from fake_device import DEVICE, Device, Elsewhere
from test_conformance import N, assert_same, on
from torch import Tensor
from torch import distributed as dist
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from tensormetrics.core.metric import distributed

SHARDS = {2: [41, 19], 3: [0, 50, 10]}  # rows per rank; a rank with 0 rows is never updated


NO_BACKEND = "No backend type associated with device type cpu"  # message of NCCL


def fake_nccl() -> None:
    """Let collectives of this process accept only tensors of the fake device, as NCCL accepts only GPU tensors."""

    def refuse_cpu_tensors(send: Callable) -> Callable:
        def guarded(*arguments: Any, **options: Any) -> Any:
            tensors = [x for x in tree_leaves((arguments, options)) if isinstance(x, Tensor)]
            if not all(isinstance(x, Elsewhere) for x in tensors):
                raise RuntimeError(NO_BACKEND)
            arguments, options = tree_map_only(Elsewhere, lambda x: x.value, (arguments, options))
            with _disable_current_modes():
                return send(*arguments, **options)

        return guarded

    for name in ("all_gather", "all_to_all_single", "broadcast", "all_reduce", "isend", "irecv"):
        setattr(dist, name, refuse_cpu_tensors(getattr(dist, name)))
    dist.P2POp = lambda send, tensor, *rank, **group: (send, tensor, *rank, group)
    dist.batch_isend_irecv = lambda transfers: [send(x, *rank, **group) for send, x, *rank, group in transfers]
    dist.distributed_c10d._get_object_coll_device = lambda group: DEVICE
    distributed.movable = lambda group=None: {DEVICE.type}


def run_rank_on_device(rank: int, folder: str, is_moved: bool) -> None:
    """Run `run_rank` with inputs on the fake device, and metrics too if `is_moved`. Rank 1 has no data."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    fake_nccl()
    results = {}
    with warnings.catch_warnings(), Device():
        warnings.simplefilter("ignore")
        for name, case in METRICS.items():
            metric, inputs = case.make(), case.inputs(torch.Generator().manual_seed(0), N)
            if is_moved:
                metric.to(DEVICE)
            if rank == 0:
                try:
                    metric.update(*on(DEVICE, inputs))
                except (RuntimeError, ValueError):  # states that are sums stay on the device of the metric
                    metric.reset()
                    metric.update(*inputs)
            try:
                results[name] = tree_map(lambda x: x.cpu(), metric.compute())
            except Exception as error:
                results[name] = f"{type(error).__name__}: {error}"
    torch.save(results, Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("is_moved", [False, True], ids=["metrics of the host", "metrics moved"])
def test_backend_without_cpu_tensors_equals_single_process(is_moved, tmp_path):
    torch.multiprocessing.spawn(run_rank_on_device, args=(str(tmp_path), is_moved), nprocs=2)
    for rank in range(2):
        results = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
        failed = {name: result for name, result in results.items() if isinstance(result, str)}
        assert failed == {}
        for name, case in METRICS.items():
            single = case.make()
            single.update(*case.inputs(torch.Generator().manual_seed(0), N))
            assert_same(results[name], single.compute(), 1e-12, where=f"{name}, rank {rank}")


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
            metric.update(*(t[:0] for t in shard))  # after a synchronization each rank keeps only its local rows
            results[name] = first, metric.compute()
        torch.save(results, Path(folder) / f"{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("world", SHARDS)
def test_several_ranks_equal_single_process(world, tmp_path):
    torch.multiprocessing.spawn(run_rank, args=(world, str(tmp_path)), nprocs=world)
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(world)]
    for name, case in METRICS.items():
        single = case.make()
        single.update(*case.inputs(torch.Generator().manual_seed(0), sum(SHARDS[world])))
        for results in ranks:
            for value in results[name]:
                assert_same(value, single.compute(), where=name)
