"""What a GPU machine has, and what it lacks, within a second.

    python -m benchmarks.gpu.start FOLDER

The last line, which begins with "export ", has settings for the following steps.
"""

import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

STAND_IN = "TENSORMETRICS_STAND_IN" in os.environ  # no GPU: nvcc's PTX runs on the CPU
SHOWN = "torch triton setuptools numpy pytest pytest-xdist pytest-timeout".split()
REQUIRED = "torch", "torchmetrics", "numpy", "lightning-utilities", "packaging"  # needed by all imports
OLDEST_TORCH = 2, 11
USES = {
    "kernels of Triton, without which plain torch is measured": "triton",
    "the build": "setuptools",
    "the tests": "pytest xdist pytest_timeout hypothesis scipy sklearn pandas matplotlib tabulate yaml tomli_w penman",
    "the command line, info --gpu included": "click cattrs safetensors tqdm",
    "the rivals": "faiss torch_linear_assignment pytorch_metric_learning flash_kmeans",
}


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


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
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    if shutil.which("nvcc") is None and Path(home, "bin", "nvcc").exists():
        settings["PATH"] = f"{home}/bin:{os.environ['PATH']}"
    elif shutil.which("nvcc") is None:
        lines.append("nvcc is missing: assignment and posterior run their references, their facts fail")
    for use, names in USES.items():
        if missing := [name for name in names.split() if find_spec(name) is None]:
            lines.append(f"missing for {use}: {', '.join(missing)}")
    return lines, settings


def main(folder: Path) -> None:
    versions = [f"{name} {installed(name)}" for name in SHOWN if installed(name)]
    print(*versions, f"Python {sys.version.split()[0]}", f"{os.cpu_count()} processors", sep=", ")
    if reason := refusal():
        sys.exit(reason)
    lines, settings = around()
    print(*lines, sep="\n", end="\n" if lines else "")
    if STAND_IN:
        print("no card: nvcc's PTX on the CPU answers for it, and no time means anything")
    else:
        import torch

        from benchmarks.gpu.build import ROOT, restored

        if not torch.cuda.is_available():
            sys.exit("torch sees no GPU")
        memory = " of ".join(f"{size / 2**30:.0f}" for size in torch.cuda.mem_get_info())
        print(f"{torch.cuda.get_device_name()}, {memory} GiB free, CUDA {torch.version.cuda}")
        print(restored([folder, ROOT / ".gpu"]) or "nothing of these sources was kept: the step build builds them")
    print("export", *(f"{name}={value!r}" for name, value in settings.items()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
