import logging
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait spinning are many times slower on busy cores

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from cases import DOMAINS  # noqa: E402
from kernels import INTERPRETED  # noqa: E402
from waiting import waiting_is_allowed  # noqa: E402, F401

from tensormetrics.core.native import gpu_kernels  # noqa: E402

if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0)):  # processes of pytest-xdist share the cores
    torch.set_num_threads(max((os.cpu_count() or 1) // workers, 1))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--domain", choices=DOMAINS, help="Run the tests of one domain, its rows of the tables, and lists."
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests of other domains than that of `--domain`: their folders, and their rows of shared tables."""
    domain = config.getoption("--domain")
    if domain is None:
        return
    is_row = re.compile(rf"\[(.*-)?{domain}[.-]")
    selected = [
        item
        for item in items
        if f"/tests/{domain}/" in item.path.as_posix() or is_row.search(item.nodeid) or item.get_closest_marker("lists")
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in {*selected}])
    items[:] = selected


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print one line with the missing packages and devices because of which tests were skipped."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])]
    named = [re.search(r"import '([\w.]+)'|needs? (.+)", reason) for reason in reasons]
    missing = Counter((match[1] or match[2]) if match else "other reasons" for match in named)
    if missing:
        summary = ", ".join(f"{name} {count}" for name, count in missing.most_common())
        terminalreporter.write_line(f"skipped for want of: {summary}")


# Background jobs of a shell ignore SIGINT, and programs that tests start and interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def seeds() -> None:
    torch.manual_seed(0)
    np.random.seed(0)


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
    """Return a runner of a function, once with torch operators and once with Triton kernels."""
    if not (device.type == "cuda" or INTERPRETED):
        pytest.skip("needs a GPU or TRITON_INTERPRET=1")
    pytest.importorskip("triton")

    def run(function: Callable) -> tuple:
        monkeypatch.setattr(gpu_kernels, "can_use", lambda name, device: False)
        torch_result = function()
        monkeypatch.setattr(gpu_kernels, "can_use", lambda name, device: True)
        return torch_result, function()

    return run
