"""The command `info`: installed parts, a check of a GPU, and kernels compiled before their first use."""

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


def info(
    *,
    gpu: bool = False,
    warm_up: bool = False,
    device: str = "cuda",
    times: bool = True,
    columns: tuple[PositiveInt, ...] = (128, 512),
    processes: PositiveInt | None = None,
) -> int:
    """Print what is installed, which native code is loaded, which extras exist, and how to install missing ones.

    Exit status with --gpu: 0: all answers are equal; 1: some differ; 3: there is no GPU.

    \b
    tensormetrics info --gpu
    tensormetrics info --warm-up --columns 768

    Args:
        gpu: Run every kernel on this GPU instead, compare its results with the CPU's, and time it next to plain torch.
        warm_up: Compile the kernels for this GPU now, so that no first call does.
        device (NAME): With --gpu or --warm-up: the GPU.
        times: With --gpu: time five operations next to plain torch.
        columns (D): With --warm-up: number of columns of embeddings; may be repeated.
        processes: With --warm-up: number of processes that compile; default all cores.
    """
    if not (gpu or warm_up):
        with leaving_at_once():
            report = import_module("tensormetrics._cli.machine.info").report
        click.echo(report())
    if warm_up:
        _compile(device, columns, processes)
    return _check(device, times) if gpu else 0


def _check(device: str, times: bool) -> int:
    import torch

    with leaving_at_once():
        run = import_module("tensormetrics._cli.machine.gpu_report").run
    try:
        gpu = torch.device(device)
    except RuntimeError:
        raise BadInput(f"--device: got {device!r}, wanted a GPU, such as cuda or cuda:1") from None
    if torch.cuda.is_available() and (gpu.index or 0) >= torch.cuda.device_count():
        raise BadInput(f"--device: got {device!r}, wanted one of {torch.cuda.device_count()} GPUs, counted from 0")
    return int(run(gpu, click.echo, times))


def _compile(device: str, columns: tuple[int, ...], processes: int | None) -> None:
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
    cache = os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache"
    click.echo(f"kept in {cache}; another folder: TRITON_CACHE_DIR=FOLDER, for this command and for what comes after")
