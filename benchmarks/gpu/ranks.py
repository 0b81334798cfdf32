"""Every metric on several ranks against one process: NCCL with one rank, gloo with two that share the card."""

import sys
import warnings
from functools import partial
from typing import Any

import torch
from torch import distributed

from benchmarks.gpu.facts import DEVICE, ROOT, STAND_IN, Different

sys.path.insert(0, str(ROOT / "tests"))
import ranks  # noqa: E402
from cases import METRICS  # noqa: E402
from test_conformance import is_same, on  # noqa: E402
from torch.utils._pytree import tree_map_only  # noqa: E402

SHARDS = {1: [60], 2: [41, 19]}  # items of each rank


def results(rank: int, world: int, backend: str, names: list[str]) -> dict[str, Any]:
    """Return what each metric computes, on the CPU, or the text of its error."""
    warnings.simplefilter("ignore")
    if backend == "nccl":  # instead of gloo, which tests/ranks.py has started
        distributed.destroy_process_group()
        distributed.init_process_group(backend, store=distributed.HashStore(), rank=rank, world_size=world)
    answers = {}
    for name in names:
        inputs = METRICS[name].inputs(torch.Generator().manual_seed(0), 60)
        metric = METRICS[name].make().to(DEVICE)
        try:
            metric.update(*on(DEVICE, tuple(x.split(SHARDS[world])[rank] for x in inputs)))
            answers[name] = tree_map_only(torch.Tensor, lambda x: x.cpu(), metric.compute())
        except Exception as error:
            answers[name] = f"{type(error).__name__}: {error}"
    return answers


def line(backend: str, world: int, domain: str) -> str:
    names = [name for name in METRICS if name.startswith(f"{domain}.")]
    expected = results(0, 1, "none", names)
    for rank, answers in enumerate(ranks.run(results, backend, names, world=world)):
        wrong = [name for name in names if isinstance(answers[name], str) or not is_same(answers[name], expected[name])]
        if wrong:
            raise Different(
                "; ".join(f"{name} on rank {rank}: {answers[name]}, not {expected[name]}" for name in wrong)
            )
    return f"equal    {len(names)} metrics on each rank"


CASES = {
    f"{backend} {world}, {domain}": partial(line, backend, world, domain)
    for backend, world in {"nccl": 1, "gloo": 2}.items()
    for domain in dict.fromkeys(name.partition(".")[0] for name in METRICS)
    if not (STAND_IN and backend == "nccl")
}
