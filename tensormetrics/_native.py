"""The namespace of the native operators, and the libraries that hold their kernels for CPU and CUDA.

A domain defines its operators here, each with a fake kernel and with a reference in torch, which answers on devices for
which nothing was built.
"""

import functools
import warnings
from pathlib import Path

import torch

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
