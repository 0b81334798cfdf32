"""References of AccuracyCalculator in blocks: the metrics that support them, and the file of partial counts."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

from ..._version import __version__
from ...core.metric.distributed import Group, all_gather_status, check_same_options, described, options_of
from ..inputs import Stream, as_tensor, budget, is_rank_local
from ..sources.source import ArrayRows, EmbeddingSource
from ..sources.state import State
from .methods import MetricMethods
from .metric_names import CLUSTERING, rank_score


class Partial(NamedTuple):
    """File for the partial counts of a call, and the processes that share the call."""

    path: str | os.PathLike | None
    seconds: float
    group: Group


def as_stream(
    names: Sequence[str], args: Mapping[str, Any], calculator: MetricMethods, device: torch.device, partial: Partial
) -> Any:
    # args: the arguments of `get_accuracy` by name
    """Return the references as a `Stream` if they are read in blocks, else as they are."""
    reference = args["reference"]
    if isinstance(reference, np.memmap) and _outgrows_memory(names, reference, args["gains"], calculator, device):
        reference = ArrayRows(reference)
    if isinstance(reference, EmbeddingSource):
        check_blocks(names, calculator)
        state = _state_of(names, {**args, "reference": reference}, calculator, device, partial)
        return Stream(reference, state, partial.group)
    if partial.path is not None or partial.group is not None:
        name = "checkpoint" if partial.path is not None else "group"
        raise ValueError(f"{name}: got one without references in blocks, wanted reference=open_embeddings(...)")
    return reference


def check_blocks(names: Sequence[str], calculator: MetricMethods) -> None:
    """Raise a ValueError for metrics and options that need all references in memory."""
    unsupported = tuple(n for n in names if not (calculator._is_built_in(n) and (rank_score(n) or n in CLUSTERING)))
    if unsupported:
        raise ValueError(
            f"reference: {', '.join(unsupported)} cannot be scored in blocks; write exclude={unsupported!r}, or give a "
            "tensor or a memory-mapped array"
        )
    if calculator.search.counted is None:
        raise ValueError("knn_func: got a search of all references at once with references in blocks; leave it out")
    if calculator.scorer.keep == "neighbors":
        raise ValueError("keep: got 'neighbors' with references in blocks, wanted 'scores' or 'all'")
    if calculator.label_levels:
        raise ValueError("label_levels: got True with references in blocks, wanted one level of labels at a time")


def _outgrows_memory(
    names: Sequence[str], reference: np.memmap, gains: Any, calculator: MetricMethods, device: torch.device
) -> bool:
    """Return whether integer rows have to be scored in blocks, and can be.

    A search makes a floating-point copy of them, which may exceed the memory budget.
    """
    if reference.ndim != 2 or reference.dtype.kind not in "biu" or device.type != "cpu":
        return False
    copy_bytes = reference.size * (4 if reference.dtype.itemsize <= 2 else 8)
    ignores_by_group = calculator.ignore is None or isinstance(calculator.ignore, tuple)
    if copy_bytes <= budget(calculator.memory_budget, device) or not ignores_by_group or not is_rank_local(gains):
        return False
    try:
        check_blocks(names, calculator)
    except ValueError:
        return False
    return True


def _state_of(
    names: Sequence[str], args: Mapping[str, Any], calculator: MetricMethods, device: torch.device, partial: Partial
) -> State | None:
    """Return the file for partial counts of this call; a group has one for each process, with equal options."""
    path, seconds, group = partial
    if path is None and group is None:
        return None
    # The memory determines how queries are split; by default it depends on the device.
    memory = budget(calculator.memory_budget, device)
    call_options = {"metrics": ", ".join(names), "checkpoint": repr(path and os.fspath(path))}
    description = options_of(calculator) | call_options | {"version": __version__}
    description |= {name: _identity(name, value) for name, value in args.items()}
    if group is not None:
        memories, ranks = zip(*all_gather_status((memory, description), group), strict=True)
        check_same_options(ranks)
        memory, rank, world = min(memories), dist.get_rank(group), dist.get_world_size(group)
        path, description["process"] = path and f"{os.fspath(path)}.rank{rank}", f"{rank} of {world}"
    del description["checkpoint"]
    return State(path, description | {"memory_budget": repr(memory)}, seconds) if path else None


def _identity(name: str, value: Any) -> str:
    if isinstance(value, EmbeddingSource):
        return value.fingerprint()
    if value is None or callable(value) or isinstance(value, bool | int | float | str | torch.device):
        return described(value)
    if isinstance(value, tuple):
        return ", ".join(_identity(name, item) for item in value)
    values: Tensor = as_tensor(name, value, torch.device("cpu")).contiguous()
    digest = hashlib.blake2b(values.view(-1).view(torch.uint8).numpy().data, digest_size=16).hexdigest()
    return f"{tuple(values.shape)} {values.dtype} with content {digest}"
