"""On which device a launch of Triton kernels takes place."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def on_its_device(launch: Callable) -> Callable:
    """Kernels are launched on the current device: for the call that is the one of the first argument."""

    @functools.wraps(launch)
    def guarded(first: Any, *rest: Any, **options: Any) -> Any:
        with torch.cuda.device_of(first if isinstance(first, Tensor) else first.rows):
            return launch(first, *rest, **options)

    return guarded
