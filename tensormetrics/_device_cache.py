"""Tables of constants that are made once for each device."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

Table = TypeVar("Table", Tensor, tuple[Tensor, Tensor])


def kept(make: Callable[..., Table]) -> Callable[..., Table]:
    """table(like, ...): what `make` gives for the device of `like` and the other arguments, kept from call to call.

    Fake tensors get a table of their own, and leave none behind: one that they saw has no values, and one that has
    values they do not meet. What is kept was not made in inference mode.
    """

    def plain(device: torch.device, *key: Any) -> Table:
        with torch.inference_mode(False):
            return make(device, *key)

    remembered = functools.cache(plain)

    @functools.wraps(make)
    def table(like: Tensor, *key: Any) -> Table:
        if isinstance(like, FakeTensor):
            return make(like.device, *key)
        found = remembered(like.device, *key)
        if isinstance(found[0], FakeTensor):  # a mode made it, of which `like` is not
            remembered.cache_clear()
        return found

    return table
