"""The commands `info`, `check-gpu` and `warm-up`: installed parts, and kernels compiled before their first use."""

import os
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import click

from ..interruption import leaving_at_once
from ..option_types import BadInput, PositiveInt

NO_GPU = (
    "no GPU that this torch sees, so there is nothing to compile: on a CPU no kernel of Triton is used. For a GPU "
    "elsewhere run this there, with TRITON_CACHE_DIR set to a folder that lasts"
)


def info() -> None:
    """Print what is installed, which native code is loaded, which extras exist, and how to install missing ones."""
    with leaving_at_once():
        report = import_module("tensormetrics._cli.machine.info").report
    click.echo(report())


def check_gpu(*, device: str = "cuda", times: bool = True) -> None:
    """Run every kernel on this GPU, compare its results with the CPU's, and time it next to plain torch.

    Exit status 0: all answers are equal; 1: some differ; 3: there is no GPU.

    Args:
        device (NAME): The GPU to check.
        times: Time five operations next to plain torch.
    """
    import torch

    with leaving_at_once():
        run = import_module("tensormetrics._cli.machine.gpu_report").run
    try:
        gpu = torch.device(device)
    except RuntimeError:
        raise BadInput(f"--device: got {device!r}, wanted a GPU, such as cuda or cuda:1") from None
    if torch.cuda.is_available() and (gpu.index or 0) >= torch.cuda.device_count():
        raise BadInput(f"--device: got {device!r}, wanted one of {torch.cuda.device_count()} GPUs, counted from 0")
    raise SystemExit(run(gpu, click.echo, times))


def warm_up(
    *, device: str = "cuda", columns: tuple[PositiveInt, ...] = (128, 512), processes: PositiveInt | None = None
) -> None:
    """Compile the kernels for this GPU now, so that no first call does.

    Args:
        device (NAME): The GPU to compile for.
        columns (D): Number of columns of embeddings; may be repeated.
        processes: Number of processes that compile; default all cores.
    """
    import torch

    from ..machine.warm_up import jobs, run

    if not torch.cuda.is_available():
        raise BadInput(NO_GPU)
    if find_spec("triton") is None:
        raise BadInput("no triton here: on GPUs plain torch answers; install it with: pip install triton")
    todo = jobs(columns)
    workers = min(processes or os.cpu_count() or 1, len(todo))
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for _ in pool.map(run, todo, [device] * len(todo)):
            pass
    click.echo(f"compiled for {torch.cuda.get_device_name(device)} with rows of {', '.join(map(str, columns))} columns")
    click.echo(f"kept in {cache()}; another folder: TRITON_CACHE_DIR=FOLDER, for this command and for what comes after")


def cache() -> Path:
    """Return the folder of Triton's compiled kernels."""
    return Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")
