"""Exchange between the ranks of a job: options, tensors, and errors.

Between two exchanges of data there is always one of outcomes. So a rank that fails only has to report it, wherever it
is: the others receive the report in their next exchange, and the group remains usable.
"""

import functools
import hashlib
import inspect
import math
import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, cast, get_origin

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

Group = dist.ProcessGroup | None
TensorMeta = tuple[tuple[int, ...], torch.dtype, str]  # shape, dtype, type of the device
# Options that may differ between ranks: device, memory, progress and communication.
RANK_LOCAL_OPTIONS = (
    "device",
    "progress",
    "memory_budget",
    "process_group",
    "dist_sync_fn",
    "distributed_available_fn",
)
RANK_LOCAL_OPTIONS += ("compute_on_cpu", "compute_with_cache", "dist_sync_on_step", "sync_on_compute")
_HEAD, _SHORT = 8, 2048  # bytes of the length of a payload, and of a payload that one collective sends
_SMALL, MAX_DIRECT_RANKS = 2**19, 8  # bytes and ranks for which one all-to-all replaces rounds of sends
_LARGE = 2**24  # bytes: ranks first agree that larger buffers were allocated
_SAMPLE_SIZE = 2**16  # values of a tensor that is an option
_PATIENCE = 0.5  # seconds in which other ranks must respond


class LostRankError(RuntimeError):
    """Lost connection between the ranks of a group; their states are unchanged and work in a new group."""


def all_gather_status(outcome: Any, group: Group = None) -> list[Any]:
    """Return the outcomes of all ranks in rank order.

    If one is an exception, all ranks raise: the others a RuntimeError that names the rank."""
    failed, payload = isinstance(outcome, BaseException), b""
    if not failed:
        try:
            payload = pickle.dumps((False, outcome))
        except Exception as error:  # the others wait for a payload that cannot be sent
            failed, outcome = True, error
    if failed:
        # An exception may not survive pickling; its text does.
        payload = pickle.dumps((True, f"{type(outcome).__name__}: {outcome}"))
    with translate_collective_errors(group):
        outcomes = [pickle.loads(received) for received in _gather_payloads(payload, group)]
    if failed:
        raise _mark_as_shared(outcome)
    for rank, (failed, value) in enumerate(outcomes):
        if failed:
            raise _mark_as_shared(RuntimeError(f"rank {rank} failed with {value}"))
    return [value for _, value in outcomes]


def _gather_payloads(payload: bytes, group: Group) -> list[bytes]:
    """Gather one message of every rank. Short messages need one collective instead of two."""
    device = dist.distributed_c10d._get_object_coll_device(group)

    def gather_bytes(size: int) -> Tensor:
        local = torch.zeros(size, dtype=torch.uint8, device="cpu")
        local[:_HEAD] = torch.tensor([len(payload)], device="cpu").view(torch.uint8)
        beginning = payload[: size - _HEAD]
        local[_HEAD : _HEAD + len(beginning)] = torch.frombuffer(bytearray(beginning), dtype=torch.uint8)
        gathered_bytes = local.to(device).new_empty(dist.get_world_size(group), size)
        _gather_equal(gathered_bytes, local.to(device), group)
        return gathered_bytes.cpu()

    gathered_bytes = gather_bytes(_SHORT)
    lengths = gathered_bytes[:, :_HEAD].contiguous().view(torch.int64)[:, 0].tolist()
    if max(lengths) > _SHORT - _HEAD:
        gathered_bytes = gather_bytes(max(lengths) + _HEAD)
    return [bytes(row[_HEAD : _HEAD + length].numpy()) for row, length in zip(gathered_bytes, lengths, strict=True)]


@contextmanager
def raise_on_all_ranks(group: Group = None) -> Iterator[None]:
    """Raise an exception of one rank in this context, or in an exchange within it, on all ranks."""
    try:
        yield
    except BaseException as error:
        if not getattr(error, "all_ranks_know", False):
            all_gather_status(error, group)
        raise
    all_gather_status(None, group)


@contextmanager
def translate_collective_errors(group: Group = None) -> Iterator[None]:
    """Raise a LostRankError that names the ranks that do not answer if a collective in this context fails."""
    try:
        yield
    except RuntimeError as error:
        unresponsive = _unresponsive_ranks(group)
        who = f"no answer from rank {', '.join(map(str, unresponsive))}" if unresponsive else "all ranks are there"
        raise _mark_as_shared(LostRankError(f"an exchange between ranks failed, {who}: {error}")) from error


def movable(group: Group = None) -> set[str]:
    """Return the types of the devices whose tensors the backends of a group can send."""
    return {device.type for device in cast(Any, group or dist.group.WORLD)._device_types}


def travel_device(types: Iterable[str], group: Group = None) -> torch.device | None:
    """Return the device over which tensors on devices of these types travel; None: each from where it is.

    NCCL sends no tensors of the host, and two backends of one group cannot send to each other.
    """
    if len({*types}) == 1 and movable(group).issuperset(types):
        return None
    return torch.device(dist.distributed_c10d._get_object_coll_device(group))


def gather(tensor: Tensor, group: Group = None) -> list[Tensor]:
    """Gather the tensors of all ranks in rank order. First dimensions may differ; without rows shape (0,) will do."""
    if tensor.ndim == 0:
        return list(all_gather_cat(tensor[None], group))
    kinds = all_gather_status(tensor_meta(tensor), group)
    return list(all_gather_cat(tensor, group, kinds).split([_length(kind) for kind in kinds]))


def all_gather_cat(tensor: Tensor, group: Group = None, kinds: list[TensorMeta] | None = None) -> Tensor:
    """Gather and concatenate the tensors of all ranks; `kinds`: shapes and dtypes of all ranks, if known.

    Less than 16 MB go without an outcome before them, which would double the time of small states: an interrupt between
    the kinds and the rows leaves the other ranks waiting, and the group of processes must be ended.
    """
    kinds = kinds or all_gather_status(tensor_meta(tensor), group)
    (_, *tail), dtype, _ = common_kind(kinds)
    sizes, result, device = [_length(kind) for kind in kinds], tensor, tensor.device
    travel = travel_device([kind[2] for kind in kinds], group)
    try:
        tensor = tensor.detach() if travel is None else tensor.detach().to(travel)
        result = torch.empty(sum(sizes), *tail, dtype=dtype, device=tensor.device)
    except Exception as error:
        all_gather_status(error, group)
    if result.nbytes > _LARGE:
        all_gather_status(None, group)
    parts, rank = result.split(sizes), dist.get_rank(group)
    with translate_collective_errors(group):
        if len(set(sizes)) == 1 and result.numel():
            by_rank = result.view(len(parts), *parts[0].shape)
            _gather_equal(by_rank, tensor.contiguous().view(parts[0].shape), group)
        elif result.numel():
            parts[rank].copy_(tensor.view_as(parts[rank]))
            for source, part in enumerate(parts):
                if len(part):
                    from_rank(part, source, group)
    return result.to(device)


def _gather_equal(output: Tensor, tensor: Tensor, group: Group) -> None:
    # output: (W, ...)  tensor: (...), of one shape on all ranks
    if tensor.device.type == "cpu" and output.nbytes <= _SMALL and len(output) <= MAX_DIRECT_RANKS:
        # An all-gather would take W - 1 rounds, each of which wakes threads of all ranks.
        sent = tensor.expand_as(output).contiguous()
        dist.all_to_all_single(output, sent, group=group)
    else:
        dist.all_gather(list(output), tensor, group=group)


def from_rank(tensor: Tensor, source: int, group: Group = None) -> None:
    """Fill a contiguous tensor of one or more dimensions and any dtype with that of the rank `source`."""
    travel = travel_device([tensor.device.type], group)
    sent = tensor if travel is None else tensor.to(travel)
    with translate_collective_errors(group):
        dist.broadcast(sent.view(torch.uint8), global_rank(source, group), group=group)
    if travel is not None:
        tensor.copy_(sent)


def all_reduce(tensor: Tensor, operation: Any, group: Group = None) -> Tensor:
    """Reduce the tensors of all ranks in place by a sum, a minimum, ..."""
    travel = travel_device(all_gather_status(tensor.device.type, group), group)
    sent = tensor if travel is None else tensor.to(travel)
    with translate_collective_errors(group):
        dist.all_reduce(sent, operation, group=group)
    return tensor if travel is None else tensor.copy_(sent)


def global_rank(rank: int, group: Group = None) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)


def _length(kind: TensorMeta) -> int:
    return kind[0][0]


def tensor_meta(tensor: Tensor) -> TensorMeta:
    return tuple(tensor.shape), tensor.dtype, tensor.device.type


def common_kind(kinds: list[TensorMeta]) -> TensorMeta:
    """Return the kind of the largest tensor; ValueError if others with rows differ in more than their number."""
    shape, dtype, device = max(kinds, key=lambda kind: math.prod(kind[0]))
    if any(math.prod(other) and (other[1:], other_dtype) != (shape[1:], dtype) for other, other_dtype, _ in kinds):
        raise ValueError(f"ranks hold states of different kinds: {kinds}; feed every rank rows of one shape and dtype")
    return shape, dtype, device


def constructor_options(metric: Any) -> dict[str, Any]:
    """Return the arguments of the constructor, defaults included, by name."""
    args, kwargs = metric._arguments
    signature = inspect.signature(type(metric).__init__)
    bound = signature.bind(metric, *args, **kwargs)
    bound.apply_defaults()
    self, *names = bound.arguments
    packed = next((n for n, p in signature.parameters.items() if p.kind is p.VAR_KEYWORD), "")
    return {name: bound.arguments[name] for name in names if name != packed} | bound.arguments.get(packed, {})


def options_of(metric: Any) -> dict[str, str]:
    """Describe the arguments of the constructor by texts that are equal on ranks with equal arguments."""
    descriptions = {
        name: described(value) for name, value in constructor_options(metric).items() if name not in RANK_LOCAL_OPTIONS
    }
    return {"the metric": f"{type(metric).__module__}.{type(metric).__qualname__}"} | descriptions


def check_same_options(ranks: Sequence[dict[str, str]]) -> None:
    """Raise a ValueError with the name and the values of an option in which ranks differ."""
    for name in dict.fromkeys(name for options in ranks for name in options):
        holders: dict[str, list[str]] = {}
        for rank, options in enumerate(ranks):
            holders.setdefault(options.get(name, "nothing"), []).append(str(rank))
        if len(holders) > 1:
            got = ", ".join(f"{value} on rank {' and '.join(where)}" for value, where in holders.items())
            raise ValueError(f"{name}: got {got}; wanted the same on all ranks")


def _mark_as_shared(error: BaseException) -> BaseException:
    error.__dict__["all_ranks_know"] = True
    return error


def _unresponsive_ranks(group: Group) -> list[int]:
    """Return the ranks of the group that do not report within a moment that they stopped waiting."""
    store = dist.distributed_c10d._get_default_store()
    world = cast(dist.ProcessGroup, group or dist.group.WORLD)
    members, key = dist.get_process_group_ranks(world), f"tensormetrics/{world.group_name}"
    unresponsive, deadline = members, time.monotonic() + _PATIENCE
    try:
        store.set(f"{key}/{dist.get_rank()}", "here")
        while unresponsive and time.monotonic() < deadline:
            unresponsive = [rank for rank in unresponsive if not store.check([f"{key}/{rank}"])]
            time.sleep(_PATIENCE / 20)
    except RuntimeError:  # the store went with the process that held it
        return []
    return [members.index(rank) for rank in unresponsive]


def described(value: Any, depth: int = 4) -> str:
    """Describe functions by qualified name, tensors by shape and content, other objects by class and options."""
    if not depth:
        return type(value).__qualname__
    if value is None or isinstance(value, str | int | float | complex | Enum | torch.dtype | torch.device):
        return repr(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        value = torch.from_numpy(value)
    if isinstance(value, Tensor):
        sample = value.detach().flatten()[:: value.numel() // _SAMPLE_SIZE + 1].cpu()
        digest = hashlib.blake2b(repr(sample.tolist()).encode(), digest_size=8).hexdigest()
        return f"a tensor {tuple(value.shape)} of {value.dtype} with content {digest}"
    inner = depth - 1
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {described(item, inner)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(described(item, inner) for item in value) + "]"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(described(item, inner) for item in value)) + "}"
    if get_origin(value) is not None:  # list[str], which has the name of list
        return repr(value)
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    kind = type(value)
    if isinstance(value, functools.partial):
        return f"{described(value.func)} of {described([*value.args], inner)} {described(value.keywords, inner)}"
    parameters = inspect.signature(kind.__init__).parameters if "__init__" in dir(kind) else ()
    options = ", ".join(
        f"{name}={described(getattr(value, name), inner)}"
        for name in parameters
        if name not in RANK_LOCAL_OPTIONS and name in getattr(value, "__dict__", ())
    )
    return f"{kind.__qualname__}({options})"
