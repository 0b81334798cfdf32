"""Command line and tables of the benchmarks. Benchmarks are run as files, so that each imports this module as
`_common`.

    python benchmarks/NAME.py [--quick] [--device cuda] [--output PATH]

A benchmark declares its requirements in two literals, NEEDS (modules) and DEVICES, which `python -m benchmarks` reads.
"""

import argparse
import datetime
import os
import platform
import re
import sys
import traceback
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import torch


def arguments(doc: str, devices: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few small cases within a minute, on a CPU too")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--output", type=Path, metavar="PATH", help="file for the table; default: it is only printed")
    options = parser.parse_args()
    if reason := refusal(devices, options.device, options.quick):
        parser.error(reason)
    return options


def refusal(devices: tuple[str, ...], device: str, quick: bool) -> str:
    """Return the reason why a benchmark for `devices` does not run, empty if it does."""
    if device == "cuda" and not torch.cuda.is_available():
        return "--device cuda: torch sees no GPU here"
    runs = device in devices or (quick and device == "cpu")
    return "" if runs else f"it measures on {' and '.join(devices)}, not on {device}"


class Table:
    """Table whose rows are printed, and written to `--output`, as soon as they are measured."""

    def __init__(
        self,
        options: argparse.Namespace,
        title: str,
        columns: Iterable[str],
        notes: str = "",
        packages: tuple[str, ...] = (),
    ) -> None:
        columns = list(columns)
        self._output, self._errors = options.output, []
        self._lines = [f"# {title}", "", conditions(options, packages), *notes.splitlines(), ""]
        print(*self._lines, sep="\n")
        self._row(columns)
        self._row(["---"] * len(columns))

    def add(self, rows: Iterable[Iterable[str]]) -> None:
        """Add rows; an error ends these rows, but not those of later calls."""
        try:
            for row in rows:
                self._row(row)
        except Exception as error:
            traceback.print_exc()
            missing = f"Rows are missing: {type(error).__name__}: {str(error).strip()}".splitlines()[0]
            self._errors = list(dict.fromkeys([*self._errors, missing]))
            self._write()

    def finish(self) -> None:
        """Print the errors and exit, with status 1 if rows are missing."""
        print(*self._errors, sep="\n")
        sys.exit(len(self._errors) > 0)

    def _row(self, cells: Iterable[str]) -> None:
        self._lines.append(f"| {' | '.join(cells)} |")
        print(self._lines[-1], flush=True)
        self._write()

    def _write(self) -> None:
        if self._output:
            end = ["", *self._errors] if self._errors else []
            self._output.write_text("\n".join([*self._lines, *end, ""]))


def conditions(options: argparse.Namespace, packages: tuple[str, ...]) -> str:
    """Describe the conditions of a measurement: machine, versions, date, load average, threads."""
    versions = {"Python": platform.python_version(), "torch": torch.__version__}
    versions |= {name: version(name) for name in packages}
    parts = [str(datetime.date.today()), machine(options.device), *(" ".join(item) for item in versions.items())]
    threads = torch.get_num_threads()
    parts += [f"{threads} thread{'s' * (threads > 1)}", f"load average {os.getloadavg()[0]:.1f} at the start"]
    return ", ".join(parts) + "." + " A quick run, whose times mean little." * options.quick


def machine(device: str = "cpu") -> str:
    """Return the name of the machine for a table: 2-core-x86-avx512 for a CPU, nvidia-h200 for a GPU."""
    if device.startswith("cuda"):
        return re.sub(r"\W+", "-", torch.cuda.get_device_name(device).lower())
    vectors = re.search("AVX(512|2)", torch.backends.cpu.get_cpu_capability())
    parts = (f"{os.cpu_count()}-core", platform.machine().replace("x86_64", "x86"), vectors and vectors[0].lower())
    return "-".join(filter(None, parts))
