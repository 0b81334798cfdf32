"""Report of a GPU machine within its first second, with fallbacks for missing tools.

It prints lines for the summary. The last one, which begins with "export ", has settings for the following steps.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

STAND_IN = "TENSORMETRICS_STAND_IN" in os.environ  # no GPU: nvcc's PTX runs on the CPU
SHOWN = "torch triton setuptools numpy pytest pytest-xdist pytest-timeout".split()
REQUIRED = "torch", "torchmetrics", "numpy", "lightning-utilities", "packaging"  # needed by all imports
OLDEST_TORCH = 2, 11
USES = {
    "the tests": "pytest hypothesis scipy sklearn pandas matplotlib",
    "tests of tables and files": "tabulate yaml tomli_w penman",
    "the command line": "click cattrs safetensors tqdm",
    "the benchmarks": "torch_linear_assignment pytorch_metric_learning",
}


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def version_line(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return next((line for line in lines if "release" in line), lines[0] if lines else "")


def refusal() -> str:
    """Return a sentence about missing requirements, or an empty text."""
    missing = [package for package in REQUIRED if find_spec(package.replace("-", "_")) is None]
    if missing:
        return f"missing: {', '.join(missing)}; write pip install {' '.join(missing)}, or put their wheels into .gpu/"
    torch = tuple(int(part) for part in installed("torch").split(".")[:2])
    if torch < OLDEST_TORCH:
        return f"torch: got {installed('torch')}, wanted 2.11 or later"
    return ""


def around() -> tuple[list[str], dict[str, str]]:
    """Return a line for each missing tool, and settings that replace it."""
    lines, settings = [], {}
    old = installed("setuptools").split(".")[0]
    if not old or int(old) < 77:
        lines.append(f"setuptools {old or 'is missing'}, wanted 77: built by direct lines of g++ and nvcc all the same")
    if (
        shutil.which("nvcc") is None
        and (Path(home := os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin/nvcc").exists()
    ):
        settings["PATH"] = f"{home}/bin:{os.environ['PATH']}"
        lines.append(f"nvcc is not on PATH, but in {home}/bin")
    elif shutil.which("nvcc") is None:
        lines.append("nvcc is missing: assignment and posterior run their references, their facts are left out")
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not compiler or not header.exists():
        what = "a C compiler" if not compiler else f"{header}"
        lines.append(f"{what} is missing: Triton cannot launch, retrieval is timed in plain torch")
    if not shutil.which("g++"):
        lines.append("g++ is missing: the CPU's kernels are their references, and slow")
    if find_spec("triton") is None and not STAND_IN:
        lines.append("triton is missing: retrieval is timed in plain torch")
    for name, instead in {
        "xdist": "tests run one after the other",
        "pytest_timeout": "tests have no time limit",
    }.items():
        if find_spec(name) is None:
            lines.append(f"{name} is missing: {instead}")
    for use, names in USES.items():
        if missing := [name for name in names.split() if find_spec(name) is None]:
            lines.append(f"missing for {use}: {', '.join(missing)}")
    return lines, settings


def main() -> None:
    print(*(f"{name} {installed(name)}" for name in SHOWN if installed(name)), sep=", ")
    tools = version_line(["nvcc", "--version"]), version_line(["gcc", "--version"]), f"Python {sys.version.split()[0]}"
    print(*filter(None, tools), f"{os.cpu_count()} processors", sep="; ")
    if reason := refusal():
        sys.exit(reason)
    lines, settings = around()
    print(*lines, sep="\n" if lines else "")
    import torch

    if torch.cuda.is_available():
        free, total = (size / 2**30 for size in torch.cuda.mem_get_info())
        name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
        print(
            f"{name}, sm_{capability[0]}{capability[1]}, {free:.0f} of {total:.0f} GiB free, CUDA {torch.version.cuda}"
        )
    elif STAND_IN:
        print("no card: nvcc's PTX on the CPU answers for it, and no time means anything")
    else:
        sys.exit("torch sees no GPU")
    print("export", *(f"{name}={value!r}" for name, value in settings.items()))


if __name__ == "__main__":
    main()
