"""How many entries of a padded dimension count."""

import torch
from torch import Tensor

from ... import _checks


def full_or_clamped(
    name: str,
    lengths: Tensor | None,  # (...) or None: all
    like: Tensor,
    batch: tuple[int, ...],
    size: int,
) -> Tensor:
    # -> (...) int64 in [0, size], on the device of `like`
    if lengths is None:
        return torch.full(batch, size, dtype=torch.int64, device=like.device)
    _checks.shape(name, lengths, *batch)
    _checks.integral(name, lengths)
    _checks.same_device(**{"items": like, name: lengths})
    return lengths.long().clamp(0, size)


def mask(lengths: Tensor, size: int) -> Tensor:
    # lengths: (...)  ->  (..., size) bool
    return torch.arange(size, device=lengths.device) < lengths[..., None]
