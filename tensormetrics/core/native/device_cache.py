"""Tables of constants that are made once for each device."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

Table = TypeVar("Table", Tensor, tuple[Tensor, Tensor])


def cached_per_device(make: Callable[..., Table]) -> Callable[..., Table]:
    """Cache the tensors that `make(device, ...)` returns, by device and arguments: table(like, ...).

    Fake tensors get a new table, which is not cached: their table has no values, and real values must not meet them.
    Cached tensors are not made in inference mode.
    """

    def make_outside_inference(device: torch.device, *key: Any) -> Table:
        with torch.inference_mode(False):
            return make(device, *key)

    cached = functools.lru_cache(256)(make_outside_inference)

    @functools.wraps(make)
    def table(like: Tensor, *key: Any) -> Table:
        if isinstance(like, FakeTensor):
            return make(like.device, *key)
        result = cached(like.device, *key)
        if isinstance(result if isinstance(result, Tensor) else result[0], FakeTensor):  # a mode that `like` is not of
            cached.cache_clear()
        return result

    return table
