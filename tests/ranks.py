"""Ranks of torch.distributed: processes that are started once, and serve all tests of a run.

    import ranks

    results = ranks.run(function, *arguments, world=2)

calls `function(rank, world, *arguments)` on each rank inside a new gloo group, and returns the results in rank order.
The function is one of a module; arguments and results are pickled.
"""

import datetime
import multiprocessing
import os
import pickle
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import distributed as dist

PROCESSES: list[tuple[multiprocessing.process.BaseProcess, Connection]] = []
SECONDS = 600  # that a rank may take on busy cores


class RankError(AssertionError):
    """A rank that raised, with its traceback, or that ended or did not answer."""


def run(function: Callable[..., Any], *arguments: Any, world: int = 2, timeout: float = 120.0) -> list[Any]:
    """Run `function(rank, world, *arguments)` on each rank; `timeout` is that of collectives, in seconds.

    Raises:
        RankError: If a rank fails; the next call starts new processes.
    """
    results = survivors(function, *arguments, world=world, timeout=timeout)
    if len(results) < world:
        raise RankError(f"the processes of ranks {sorted({*range(world)} - {*results})} ended")
    return [*results.values()]


def survivors(function: Callable[..., Any], *arguments: Any, world: int, timeout: float) -> dict[int, Any]:
    """Do as `run`, but for ranks whose processes end: they are missing in the results by rank."""
    with tempfile.TemporaryDirectory() as folder:
        answers = _answers(pickle.dumps((function, world, arguments, folder, timeout)), world)
    if not all(succeeded for succeeded, _ in answers.values()) or len(answers) < world:
        stop()
    failed = [f"rank {rank}: {answer}" for rank, (succeeded, answer) in answers.items() if not succeeded]
    if failed:
        raise RankError("\n".join(failed))
    return {rank: pickle.loads(answer) for rank, (_, answer) in answers.items()}


def _answers(task: bytes, world: int) -> dict[int, tuple[bool, Any]]:
    start = multiprocessing.get_context("spawn")
    while len(PROCESSES) < world:
        ours, theirs = start.Pipe()
        process = start.Process(target=_serve, args=(len(PROCESSES), theirs), daemon=True)
        process.start()
        theirs.close()  # so that the end of the process is seen
        PROCESSES.append((process, ours))
    _send_all(task, world)
    loaded = _receive_all(world)  # imports may take longer than a rank waits for another
    if len(loaded) < world or not all(succeeded for succeeded, _ in loaded.values()):
        return loaded
    _send_all(b"go", world)
    return _receive_all(world)


def _send_all(message: bytes, world: int) -> None:
    for _, connection in PROCESSES[:world]:
        connection.send_bytes(message)


def _receive_all(world: int) -> dict[int, tuple[bool, Any]]:
    """Return what the ranks send, but for those whose processes have ended."""
    answers = {}
    for rank, (_, connection) in enumerate(PROCESSES[:world]):
        try:
            answers[rank] = connection.recv() if connection.poll(SECONDS) else (False, f"no answer in {SECONDS} s")
        except (EOFError, ConnectionResetError):
            continue
    return answers


def stop() -> None:
    """End all processes."""
    for process, connection in PROCESSES:
        connection.close()
        process.kill()
        process.join()
    PROCESSES.clear()


def _serve(rank: int, connection: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            task = connection.recv_bytes()
        except EOFError:  # the tests are over
            return
        with _settings_restored():
            try:
                function, world, arguments, folder, timeout = pickle.loads(task)
                connection.send((True, b""))
                connection.recv_bytes()
                dist.init_process_group(
                    "gloo",
                    init_method=f"file://{folder}/rendezvous",
                    rank=rank,
                    world_size=world,
                    timeout=datetime.timedelta(seconds=timeout),
                )
                answer = True, pickle.dumps(function(rank, world, *arguments))
            except BaseException:
                answer = False, traceback.format_exc()
            connection.send(answer)
            if dist.is_initialized():
                dist.destroy_process_group()  # the other ranks see that this one has left


@contextmanager
def _settings_restored() -> Iterator[None]:
    """Make warnings errors, as in tests, and undo afterwards what a function has set in the process."""
    folder, environment = os.getcwd(), dict(os.environ)
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    is_deterministic, can_warn = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(is_deterministic, warn_only=can_warn)
