"""What AccuracyCalculator does with references in blocks: which metrics it can, and what its partial counts are of."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

from ..._distributed import Group, all_gather_status, check_same_options, described, options_of
from ..._version import __version__
from ..inputs import Stream, as_tensor, budget, is_rank_local
from ..relevance import Ignore
from ..sources.source import ArrayRows, RowSource
from ..sources.state import State
from .metric_names import CLUSTERING, rank_score
from .scoring import QueryScorer
from .search import Search


class Scoring(Protocol):
    """What is read of an AccuracyCalculator."""

    search: Search
    scorer: QueryScorer
    label_levels: bool
    ignore: Ignore | None
    memory_budget: int | None
    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def _is_own(self, name: str) -> bool: ...


class Partial(NamedTuple):
    """Where partial counts of a call are written, and the processes that share it."""

    path: str | os.PathLike | None
    seconds: float
    group: Group


def in_blocks(
    names: Sequence[str], given: Mapping[str, Any], calculator: Scoring, device: torch.device, partial: Partial
) -> Any:
    # given: by name, the arguments of `get_accuracy`
    """Return the references as a `Stream` if they are read in blocks, else as they are."""
    reference = given["reference"]
    if isinstance(reference, np.memmap) and _outgrows_memory(names, reference, given["gains"], calculator, device):
        reference = ArrayRows(reference)
    if isinstance(reference, RowSource):
        check_blocks(names, calculator)
        state = _state_of(names, {**given, "reference": reference}, calculator, device, partial)
        return Stream(reference, state, partial.group)
    if partial.path is not None or partial.group is not None:
        name = "state" if partial.path is not None else "group"
        raise ValueError(f"{name}: got one without references in blocks, wanted reference=open_rows(...)")
    return reference


def check_blocks(names: Sequence[str], calculator: Scoring) -> None:
    """Raise a ValueError for what needs all references in memory."""
    unable = tuple(n for n in names if not (calculator._is_own(n) and (rank_score(n) or n in CLUSTERING)))
    if unable:
        raise ValueError(
            f"reference: {', '.join(unable)} cannot be scored in blocks; write exclude={unable!r}, or give a tensor or "
            "a memory-mapped array"
        )
    if calculator.search.counted is None:
        raise ValueError("knn_func: got a search of all references at once with references in blocks; leave it out")
    if calculator.scorer.keep == "neighbours":
        raise ValueError("keep: got 'neighbours' with references in blocks, wanted 'scores' or 'all'")
    if calculator.label_levels:
        raise ValueError("label_levels: got True with references in blocks, wanted one level of labels at a time")


def _outgrows_memory(
    names: Sequence[str], reference: np.memmap, gains: Any, calculator: Scoring, device: torch.device
) -> bool:
    """Return whether the floating copy of integer rows that a search makes is above the memory budget, and the scores
    can do with blocks."""
    if reference.ndim != 2 or reference.dtype.kind not in "biu" or device.type != "cpu":
        return False
    copied = reference.size * (4 if reference.dtype.itemsize <= 2 else 8)
    by_groups = calculator.ignore is None or isinstance(calculator.ignore, tuple)
    if copied <= budget(calculator.memory_budget, device) or not by_groups or not is_rank_local(gains):
        return False
    try:
        check_blocks(names, calculator)
    except ValueError:
        return False
    return True


def _state_of(
    names: Sequence[str], given: Mapping[str, Any], calculator: Scoring, device: torch.device, partial: Partial
) -> State | None:
    """Return a file for partial counts of this call and no other; of a group one for each process, which must agree."""
    path, seconds, group = partial
    if path is None and group is None:
        return None
    # By the memory queries are cut into parts, and where none is told the device decides.
    memory = budget(calculator.memory_budget, device)
    own = {"metrics": ", ".join(names), "state": repr(path and os.fspath(path))}
    said = options_of(calculator) | own | {"version": __version__}
    said |= {name: _identity(name, value) for name, value in given.items()}
    if group is not None:
        memories, ranks = zip(*all_gather_status((memory, said), group), strict=True)
        check_same_options(ranks)
        memory, rank, world = min(memories), dist.get_rank(group), dist.get_world_size(group)
        path, said["process"] = path and f"{os.fspath(path)}.rank{rank}", f"{rank} of {world}"
    del said["state"]
    return State(path, said | {"memory_budget": repr(memory)}, seconds) if path else None


def _identity(name: str, value: Any) -> str:
    if isinstance(value, RowSource):
        return value.fingerprint()
    if value is None or callable(value) or isinstance(value, bool | int | float | str | torch.device):
        return described(value)
    if isinstance(value, tuple):
        return ", ".join(_identity(name, each) for each in value)
    values: Tensor = as_tensor(name, value, torch.device("cpu")).contiguous()
    digest = hashlib.blake2b(values.view(-1).view(torch.uint8).numpy().data, digest_size=16).hexdigest()
    return f"{tuple(values.shape)} {values.dtype} with content {digest}"
