"""`tensormetrics info --gpu`: kernels that run on this card, comparison of results with the CPU, and times."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import torch

from ..._version import __version__
from ...core.native import gpu_kernels
from .gpu_checks import SMALL, TIMED, Different, Parts, milliseconds

EQUAL, DIFFERS, NO_DEVICE = 0, 1, 3  # exit statuses
NO_GPU = "no GPU that this torch sees: nothing was checked"
PASTE = 'Please paste the lines above into an issue (form "GPU report") of this project.'


def run(device: torch.device, say: Callable[[str], Any] = print, times: bool = True) -> int:
    """Report the kernels and checks of a GPU line by line, and return the exit status."""
    if not gpu_kernels.is_gpu(device) or (device.type == "cuda" and not torch.cuda.is_available()):
        say(NO_GPU)
        return NO_DEVICE
    say(f"----- tensormetrics info --gpu\n{machine(device)}\nkernels")
    status = EQUAL
    for name, answer in gpu_kernels.answers(device).items():
        say(f"  {name:<48} {'run' if answer.runs else f'not available: {answer.reason}'}")
        status |= DIFFERS if "other values" in answer.reason else EQUAL
    say("answers beside those of the CPU")
    for name, parts in SMALL.items():
        line, is_equal = _check(parts, device)
        say(f"  {name:<48} {line}")
        status |= EQUAL if is_equal else DIFFERS
    if times:
        say("milliseconds (median)                                     kernels  plain torch")
        for line in _times(device):
            say(line)
    say(f"----- {'all answers are equal' if status == EQUAL else 'SOME ANSWERS DIFFER'}\n{PASTE}")
    return status


def machine(device: torch.device) -> str:
    """Return the card and the versions that decide what runs on it."""
    packages = ", ".join(f"{name} {version}" for name in ("torch", "triton", "numpy") if (version := _version(name)))
    versions = f"tensormetrics {__version__}, {packages}, CUDA {torch.version.cuda}, driver {driver()}"
    if device.type != "cuda":
        return f"{device}; {versions}"
    major, minor = gpu_kernels.capability_of(device)
    memory = torch.cuda.get_device_properties(device).total_memory / 2**30
    return f"{torch.cuda.get_device_name(device)}, sm_{major}{minor}, {memory:.0f} GiB; {versions}"


def driver() -> str:
    """Return the version of the NVIDIA driver that `nvidia-smi` reports."""
    if shutil.which("nvidia-smi") is None:
        return "unknown"
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.split()
    return lines[0] if lines else "unknown"


def _check(parts: Callable[[torch.device], Parts], device: torch.device) -> tuple[str, bool]:
    try:
        check, _ = parts(device)
        return f"equal {check() or ''}".rstrip(), True
    except Different as error:
        return f"differs: {error}", False
    except torch.OutOfMemoryError:
        return "not available: out of memory", True
    except Exception as error:  # one operation that fails must not hide what the others answer
        return f"differs: {type(error).__name__}: {(str(error).splitlines() or [''])[0]:.200}", False


def _times(device: torch.device) -> Iterator[str]:
    for name, (with_kernels, without_kernels) in TIMED.items():
        kernels = _time(with_kernels, device)
        with gpu_kernels.only():
            torch_time = _time(without_kernels, device)
        yield f"  {name:<48} {kernels:>14} {torch_time:>12}"


def _time(parts: Callable[[torch.device], Parts], device: torch.device) -> str:
    try:
        return f"{milliseconds(parts(device)[1]):.3f}"
    except Exception as error:
        return type(error).__name__


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
