"""Several ranks return bit by bit what one process returns, for all rows of tests/cases/ and uneven or empty shards."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import ranks
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


def fake_nccl(patch: pytest.MonkeyPatch) -> None:
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
        patch.setattr(dist, name, refuse_cpu_tensors(getattr(dist, name)))
    patch.setattr(dist, "P2POp", lambda send, tensor, *rank, **group: (send, tensor, *rank, group))
    patch.setattr(
        dist,
        "batch_isend_irecv",
        lambda transfers: [send(x, *rank, **group) for send, x, *rank, group in transfers],
    )
    patch.setattr(dist.distributed_c10d, "_get_object_coll_device", lambda group: DEVICE)
    patch.setattr(distributed, "movable", lambda group=None: {DEVICE.type})


def results_on_device(rank: int, world: int, is_moved: bool) -> dict[str, Any]:
    """Compute with inputs on the fake device, and metrics too if `is_moved`. Rank 1 has no data."""
    results = {}
    with pytest.MonkeyPatch.context() as patch, Device():
        fake_nccl(patch)
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
    return results


@pytest.mark.full
@pytest.mark.parametrize("is_moved", [False, True], ids=["metrics of the host", "metrics moved"])
def test_backend_without_cpu_tensors_equals_single_process(is_moved):
    for rank, results in enumerate(ranks.run(results_on_device, is_moved)):
        failed = {name: result for name, result in results.items() if isinstance(result, str)}
        assert failed == {}
        for name, case in METRICS.items():
            single = case.make()
            single.update(*case.inputs(torch.Generator().manual_seed(0), N))
            assert_same(results[name], single.compute(), 1e-12, where=f"{name}, rank {rank}")


def results_of_shard(rank: int, world: int) -> dict[str, Any]:
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
    return results


@pytest.mark.full
@pytest.mark.parametrize("world", SHARDS)
def test_several_ranks_equal_single_process(world):
    answers = ranks.run(results_of_shard, world=world)
    for name, case in METRICS.items():
        single = case.make()
        single.update(*case.inputs(torch.Generator().manual_seed(0), sum(SHARDS[world])))
        for rank, results in enumerate(answers):
            for value in results[name]:
                assert_same(value, single.compute(), where=f"{name}, rank {rank} of {world}")
