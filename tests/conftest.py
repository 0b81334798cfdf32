import logging
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait spinning are many times slower on busy cores

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from cases import DOMAINS  # noqa: E402
from kernels import INTERPRETED  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from waiting import waiting_is_allowed  # noqa: E402, F401

from tensormetrics.core.native import gpu_kernels, native  # noqa: E402

if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0)):  # processes of pytest-xdist share the cores
    torch.set_num_threads(max((os.cpu_count() or 1) // workers, 1))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--domain", choices=DOMAINS, help="Run the tests of one domain, its rows of the tables, and lists."
    )


FIRST_TIER = "not slow and not full and not emulated"
TIERS = """\
This was the first tier: every property of every public name once. `pytest -m full` adds products of dtypes, devices,
shapes and ranks, peers and trainers; `pytest -m emulated` runs GPU kernels on the CPU; `pytest -m slow` simulations,
other compilers, the wheel and sanitizers."""
FOLDERS = {"peers": "full", "integrations": "full", "ptx": "emulated"}  # folder of tests -> the tier of all its tests


def pytest_configure(config: pytest.Config) -> None:
    if not any(native.has_kernel(name, "cpu") for name in native.OPERATORS):
        raise pytest.UsageError(
            "tensormetrics: its native code is not built; write pip install --no-build-isolation -e '.[test]'"
        )
    if config.get_verbosity() < 0 and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config))
    if config.option.markexpr == "full":
        config.option.markexpr = "not slow and not emulated"  # the first tier too
    elif config.option.markexpr == "emulated":
        config.option.markexpr = "emulated and not slow"
    elif config.option.markexpr == FIRST_TIER and any("::" in argument for argument in config.args):
        config.option.markexpr = ""  # whoever names a test wants to run it


class Progress:
    """Lines of a quiet run at each tenth of the tests, in place of a letter for each test."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.finished, self.tenths = config, 0, 0

    def pytest_runtest_logfinish(self) -> None:
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        self.finished += 1
        tenths = 10 * self.finished // max(reporter._session.testscollected, 1)
        if tenths > self.tenths:
            self.tenths = tenths
            reporter.write_line(f"{10 * tenths} % of {reporter._session.testscollected:,} tests")


def mark_products(items: list[pytest.Item]) -> None:
    """Mark products of parameters as `full`, but for a diagonal in which each value of each parameter occurs."""
    functions: dict[tuple[Path, object], list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            functions.setdefault((item.path, item.function), []).append(item)
    for products in functions.values():
        # One list of ids for each parametrize, in order: the axes of the product.
        axes = [list(dict.fromkeys(ids)) for ids in zip(*(item.callspec._idlist for item in products), strict=True)]
        longest = max(range(len(axes)), key=lambda axis: len(axes[axis]))
        for item in products:
            indices = [values.index(value) for values, value in zip(axes, item.callspec._idlist, strict=True)]
            if any(index != indices[longest] % len(values) for values, index in zip(axes, indices, strict=True)):
                item.add_marker("full")


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort tests into tiers, and deselect tests of other domains than that of `--domain` but rows of shared tables."""
    mark_products(items)
    for item in items:
        if tier := FOLDERS.get(item.path.parent.name):
            item.add_marker(tier)
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


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> tuple[str, str, str] | None:
    """Show a letter in quiet mode only for a test that fails."""
    if config.get_verbosity() >= 0 or report.failed:
        return None
    return ("skipped" if report.skipped else "passed" if report.when == "call" else ""), "", ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    """Say below a failure what it is about, and how to run it again."""
    report = yield
    if report.failed:
        row = item.callspec.id if hasattr(item, "callspec") else "none"
        report.sections.append(("property", f"{item.originalname}, row: {row}\npytest -n 0 '{item.nodeid}'"))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the missing packages and devices because of which tests were skipped, and what the other tiers hold."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])]
    named = [re.search(r"import '([\w.]+)'|needs? (.+)", reason) for reason in reasons]
    missing = Counter((match[1] or match[2]) if match else "other reasons" for match in named)
    if missing:
        summary = ", ".join(f"{name} {count:,}" for name, count in missing.most_common())
        terminalreporter.write_line(f"skipped for want of: {summary}")
    if config.option.markexpr == FIRST_TIER:
        terminalreporter.write_line(TIERS)


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
