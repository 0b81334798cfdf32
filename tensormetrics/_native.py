"""The namespace of the native operators, and the libraries that hold their kernels for CPU and CUDA.

A domain defines its operators here, each with a fake kernel and with a reference in torch, which answers on devices for
which nothing was built.
"""

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

LIBRARY = torch.library.Library("tensormetrics", "DEF")

for _name in ["_C", "_C_cuda"] if torch.version.cuda else ["_C"]:
    for _path in Path(__file__).parent.glob(f"{_name}.*"):
        torch.ops.load_library(_path)


@functools.cache
def say_once(device: str, answering: str) -> None:
    warnings.warn(
        f"tensormetrics was built without native code for {device}: the slow reference {answering} answers. "
        "Install a C++ compiler (and nvcc for CUDA) and reinstall with --no-build-isolation.",
        RuntimeWarning,
        stacklevel=3,
    )


def derivative_wanted(x: Tensor) -> bool:
    """Whether someone asks for derivatives by `x`, backward or forward: operators give none, plain torch must."""
    # Tangents may stand at any level of torch.func, so that forward mode anywhere around is taken for a wish.
    return x.requires_grad and torch.is_grad_enabled() or forward_ad._current_level >= 0


def batch_first(operator: str, run: Callable[..., Any]) -> None:
    """torch.vmap over `operator` runs `run` once, on arguments whose batch dimension is the first, of full size."""

    def batched(info: Any, in_dims: tuple, *arguments: Any) -> tuple[Any, Any]:
        moved = (
            value if not isinstance(value, Tensor)
            else value.expand(info.batch_size, *value.shape) if dim is None
            else value.movedim(dim, 0)
            for value, dim in zip(arguments, in_dims, strict=True)
        )  # fmt: skip
        result = run(*moved)
        return result, 0 if isinstance(result, Tensor) else (0,) * len(result)

    torch.library.register_vmap(operator, batched, lib=LIBRARY)
