"""Tiers of tests, and what pytest prints. Fixtures, which need torch, are in `shared_fixtures.py`."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait spinning are many times slower on busy cores

TESTS = Path(__file__).parent
PACKAGE = Path((find_spec("tensormetrics") or pytest.exit("tensormetrics is not installed")).origin or "").parent


def pytest_addoption(parser: pytest.Parser) -> None:
    domains = sorted(folder.name for folder in TESTS.iterdir() if (PACKAGE / folder.name / "__init__.py").exists())
    parser.addoption(
        "--domain", choices=domains, help="Run the tests of one domain, its rows of the tables, and lists."
    )


FIRST_TIER = "not slow and not full and not emulated"
TIERS = """\
This was the first tier: every property of every public name once. `pytest -m full` adds products of dtypes, devices,
shapes and ranks, peers and trainers; `pytest -m emulated` runs GPU kernels on the CPU; `pytest -m slow` simulations,
other compilers, the wheel and sanitizers."""
FOLDERS = {"peers": "full", "integrations": "full", "ptx": "emulated"}  # folder of tests -> the tier of all its tests


def pytest_configure(config: pytest.Config) -> None:
    if not any(PACKAGE.glob("*.so")):
        raise pytest.UsageError(
            "tensormetrics: its native code is not built; write pip install --no-build-isolation -e '.[test]'"
        )
    if getattr(config.option, "dist", "no") == "no" or hasattr(
        config, "workerinput"
    ):  # runs tests, not only processes that do
        config.pluginmanager.import_plugin("shared_fixtures")
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
