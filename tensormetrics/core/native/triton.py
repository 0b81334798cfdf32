"""The device of launches of Triton kernels."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def on_its_device(launch: Callable) -> Callable:
    """Make the device of the first argument the current one, on which Triton launches kernels."""

    @functools.wraps(launch)
    def guarded(first: Any, *rest: Any, **options: Any) -> Any:
        with torch.cuda.device_of(first if isinstance(first, Tensor) else first.rows):
            return launch(first, *rest, **options)

    return guarded
