"""Run the benchmarks of this folder one after another, each in a separate process.

    python -m benchmarks [--quick] [--only NAME ...] [--device cuda] [--output FOLDER]
    python -m benchmarks --readme
    python -m benchmarks --gallery

Every file asserts that values are equal before it times them. Its table becomes a section of the machine's file in
`results`, and `--readme` copies some rows of it into the README; `--gallery` draws the pictures there. A benchmark
without its rival is skipped; the status is 1 if one failed.
"""

import argparse
import ast
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from . import _gallery, _report
from ._common import machine, refusal

FOLDER = Path(__file__).resolve().parent


def declared(file: Path) -> dict[str, tuple[str, ...]]:
    """Return the values of NEEDS and DEVICES in a file, which is parsed, since its imports may be missing."""
    settings = {"NEEDS": (), "DEVICES": ("cpu",)}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in settings:
            settings[ast.unparse(node.targets[0])] = ast.literal_eval(node.value)
    return settings


def obstacle(file: Path, quick: bool, device: str) -> str:
    """Return the reason why a benchmark is skipped, empty if it can run."""
    needs, devices = declared(file).values()
    missing = [name for name in needs if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else refusal(devices, device, quick)


def run(file: Path, table: Path, quick: bool, device: str) -> str:
    """Run a benchmark and return its error, empty if the table was written."""
    command = [sys.executable, "-u", str(file), *["--quick"] * quick, "--device", device, "--output", str(table)]
    # The tensormetrics of this checkout, not an installed one.
    path = os.pathsep.join(filter(None, (str(FOLDER.parent), os.environ.get("PYTHONPATH"))))
    status = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}).returncode
    if status:
        return f"exit status {status}"
    return "" if table.exists() else "it wrote no table"


def outcome(file: Path, output: Path | None, quick: bool, device: str) -> tuple[str, str]:
    """Return "passed", "skipped" or "failed", and the reason or the path of the table."""
    reason = obstacle(file, quick, device)
    if reason:
        return "skipped", reason
    report = output and output / f"{machine(device)}.md"
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch) / f"{file.stem}.md"
        reason = "interrupted"
        try:
            reason = run(file, table, quick, device)
        finally:
            if report and table.exists():
                keep(table, report, device, is_complete=not reason)
    return ("failed", reason) if reason else ("passed", str(report or "table not kept"))


def keep(table: Path, report: Path, device: str, is_complete: bool) -> None:
    """Write the table to the report; the table of a failed run never replaces an older one."""
    report.parent.mkdir(parents=True, exist_ok=True)
    before = report.read_text() if report.exists() else ""
    if is_complete or f"\n## {table.stem}: " not in before:
        report.write_text(_report.with_section(before, machine(device), table.stem, table.read_text()))


def main(arguments: list[str] | None = None, folder: Path = FOLDER) -> int:
    files = {file.stem: file for file in sorted(folder.glob("[!_]*.py"))}
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small cases; tables are kept where --output is given")
    parser.add_argument("--only", nargs="+", choices=files, metavar="NAME", help=f"of {', '.join(files)}")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--output", type=Path, help="folder of the tables; default: benchmarks/results")
    parser.add_argument("--readme", action="store_true", help="measure nothing; bring the README's table up to date")
    parser.add_argument("--gallery", action="store_true", help="measure nothing; draw the pictures of the gallery")
    options = parser.parse_args(arguments)
    if reason := refusal(("cpu", "cuda"), options.device, options.quick):
        parser.error(reason)
    if options.readme:
        _report.write_readme(folder.parent / "README.md", folder / "results")
        return 0
    if options.gallery:
        _gallery.write(options.output or folder / "results")
        return 0
    output = options.output or (None if options.quick else folder / "results")
    rows = []
    for name in options.only or files:
        start = time.monotonic()
        status, note = outcome(files[name], output, options.quick, options.device)
        rows.append((status, f"{status:8}{name:24}{time.monotonic() - start:6.0f} s  {note}"))
    count = Counter(status for status, _ in rows)
    total = ", ".join(f"{count[status]} {status}" for status in ("passed", "failed", "skipped"))
    print("", *(row for _, row in rows), total, sep="\n")
    return int(count["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
