"""Checks of the vectors and masks of word sets."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from ...core.arguments import checks

_takes_weights: ContextVar[bool] = ContextVar("takes_weights", default=False)


@contextmanager
def weights_as_masks() -> Iterator[None]:
    """Accept float64 weights of words as masks, as the bootstrap uses; from users they are more likely mistakes."""
    token = _takes_weights.set(True)
    try:
        yield
    finally:
        _takes_weights.reset(token)


def check_vectors(name: str, vectors: Tensor, dims: int, first: str, like: Tensor) -> None:
    checks.tensor(name, vectors)
    if not vectors.is_floating_point():
        raise TypeError(f"{name}: got {vectors.dtype}, wanted a floating dtype; write {name}.float()")
    if vectors.ndim < dims:
        expected = "(..., G, W, D)" if dims == 3 else "(..., W, D)"
        raise ValueError(f"{name}: got shape {tuple(vectors.shape)}, wanted {expected}")
    if vectors.size(-1) != like.size(-1):
        raise ValueError(f"{name}: got {vectors.shape[-1]} dimensions, wanted {like.shape[-1]} as {first} has")
    check_device(name, vectors, first, like)


def check_mask(name: str, mask: Tensor, vectors: Tensor, dims: int = 2) -> None:
    checks.tensor(name, mask)
    if mask.is_complex() or (mask.is_floating_point() and not _takes_weights.get()):
        raise TypeError(f"{name}: got {mask.dtype}, wanted torch.bool; write {name} > 0")
    shape = vectors.shape[-dims:-1]
    if mask.shape[1 - dims :] != shape:
        raise ValueError(f"{name}: got shape {tuple(mask.shape)}, wanted (..., {', '.join(map(str, shape))})")
    check_device(name, mask, name.removesuffix(".mask"), vectors)


def check_device(name: str, tensor: Tensor, first: str, like: Tensor) -> None:
    if tensor.device != like.device:
        raise ValueError(f"devices differ: {first} on {like.device}, {name} on {tensor.device}; use .to(device)")


def check_broadcast(batch_shapes: list[tuple[str, torch.Size]]) -> None:
    try:
        torch.broadcast_shapes(*(shape for _, shape in batch_shapes))
    except RuntimeError:
        got = ", ".join(f"{tuple(shape)} of {name}" for name, shape in batch_shapes)
        raise ValueError(f"leading dimensions do not broadcast: {got}") from None
