"""Fixtures of all tests, and what each process that runs tests sets."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from kernels import INTERPRETED
from torch.utils._pytree import tree_leaves
from waiting import waiting_is_allowed  # noqa: F401

from tensormetrics.core.native import gpu_kernels

if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0)):  # processes of pytest-xdist share the cores
    torch.set_num_threads(max((os.cpu_count() or 1) // workers, 1))

# Background jobs of a shell ignore SIGINT, and programs that tests start and interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


APPROX: Any = sys.modules[pytest.approx.__module__]  # its name depends on pytest's version


def as_array(value: Any, convert: Callable[[Any], Any] = APPROX._as_numpy_array) -> Any:
    if isinstance(value, torch.Tensor) and not value.is_cpu:
        raise TypeError(f"pytest.approx: got a tensor on {value.device}, wanted numbers; write float(x) or x.tolist()")
    return convert(value)


APPROX._as_numpy_array = as_array  # of both sides


@pytest.fixture(params=["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def seeds() -> None:
    # Where CUDA was not used, `torch.manual_seed` keeps the seed and a formatted stack for later, at each call.
    torch.manual_seed(0) if torch.cuda.is_available() else torch.default_generator.manual_seed(0)
    np.random.seed(0)


class Logged(logging.Handler):
    """Messages that the library logs, as (logger, level, message)."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.rows: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.rows.append((record.name, record.levelno, record.getMessage()))

    @property
    def messages(self) -> list[str]:
        return [message for _, _, message in self.rows]


@pytest.fixture
def logged() -> Iterator[Logged]:
    """Return what is logged from WARNING on, or from what `logged.setLevel` says; caplog costs 1 ms in each test."""
    logger, handler = logging.getLogger("tensormetrics"), Logged()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.setLevel(logging.NOTSET)
    logger.removeHandler(handler)


def process_settings() -> dict[str, object]:
    return {
        "levels of loggers": {
            name: log.level
            for name, log in logging.root.manager.loggerDict.items()
            if name.startswith("tensormetrics") and isinstance(log, logging.Logger)
        },
        "default dtype": torch.get_default_dtype(),
        "grad mode": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "working directory": os.getcwd(),
    }


@pytest.fixture(autouse=True)
def check_process_settings_unchanged() -> Iterator[None]:
    before = process_settings()
    yield
    now = process_settings()
    new = set(now["levels of loggers"]) - set(before["levels of loggers"])
    assert now == before | {"levels of loggers": before["levels of loggers"] | dict.fromkeys(new, logging.NOTSET)}


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> Callable[[Callable], tuple]:
    """Return a runner of a function, with torch operators and with Triton kernels, with and without the direct search.

    Both ways through the kernels have to agree.
    """
    if not (device.type == "cuda" or INTERPRETED):
        pytest.skip("needs a GPU or TRITON_INTERPRET=1")
    pytest.importorskip("triton")

    def run(function: Callable) -> tuple:
        results, asked = [], set()
        for families in (set(), {*gpu_kernels.FAMILIES} - {"direct search"}, {*gpu_kernels.FAMILIES}):
            if len(results) < 2 or "direct search" in asked:
                monkeypatch.setattr(gpu_kernels, "can_use", lambda name, _: asked.add(name) or name in families)  # noqa: B023
                results.append(function())
        ways = zip(tree_leaves(results[1]), tree_leaves(results[-1]), strict=True)
        assert all(x is y or torch.equal(x, y) for x, y in ways)
        return results[0], results[-1]

    return run
