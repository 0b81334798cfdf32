"""Runs the benchmarks of this folder, each in a process of its own, one after another.

    python -m benchmarks [--quick] [--only NAME ...] [--device cuda] [--output FOLDER]
    python -m benchmarks --readme

Every file asserts that values are equal before it times them. Its table becomes a section of the machine's file in
`results`, and `--readme` copies some rows of it into the README. What a file needs and how it is called stands in
BENCHMARKS below: a new file gets a row. A benchmark without its rival is skipped; the status is 1 if one failed.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch
from tqdm import tqdm

from . import _report
from ._common import machine

FOLDER = Path(__file__).resolve().parent


class Benchmark(NamedTuple):
    """How a file is called."""

    needs: tuple[str, ...] = ()  # modules without which it cannot run
    write: tuple[str, ...] | None = ("--write",)  # stands before the table's path; None: the table is what it prints
    quick: tuple[str, ...] | None = None  # arguments of a run within a minute; None: there is no such run
    devices: tuple[str, ...] = ("cpu",)  # of more than one, it takes --device


BENCHMARKS = {
    "assignment": Benchmark(("scipy",), quick=("--quick",), devices=("cpu", "cuda")),
    "association": Benchmark(("wefe", "gensim", "sklearn", "pandas")),
    "association_functions": Benchmark(("scipy",), write=()),
    "plain_torch": Benchmark(quick=("--quick",), devices=("cpu", "cuda")),
    "posterior": Benchmark(("prob_conf_mat",), write=()),
    "posterior_study": Benchmark(("prob_conf_mat",), write=()),
    "retrieval": Benchmark(("faiss", "pytorch_metric_learning"), quick=("scores",)),
    "retrieval_backends": Benchmark(
        ("faiss", "pytorch_metric_learning"),
        write=None,
        quick=("--rows", "2000", "--dims", "64", "--k", "10", "--repeats", "3"),
    ),
    "retrieval_clustering": Benchmark(("sklearn",), write=("--output",), devices=("cpu", "cuda")),
    "retrieval_gpu": Benchmark(write=("--output",), quick=("--tiny",), devices=("cuda",)),
    "structured": Benchmark(("metametric", "jaxtyping", "scorch"), write=(), quick=()),
    "structured_latent": Benchmark(
        ("metametric", "smatchpp", "mip"), write=("--output",), quick=("--variables", "5", "--rounds", "1")
    ),
    "structured_objects": Benchmark(("metametric", "jaxtyping"), write=(), quick=()),
}


def obstacle(benchmark: Benchmark, quick: bool, device: str) -> str:
    """Why it is skipped; empty where it can run."""
    missing = [name for name in benchmark.needs if importlib.util.find_spec(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if device not in benchmark.devices:
        return f"it does not run on {device}"
    return "it has no quick run" if quick and benchmark.quick is None else ""


def run(file: Path, benchmark: Benchmark, table: Path, quick: bool, device: str) -> str:
    """Prints what the file prints, and returns what went wrong; empty where the table is written."""
    command = [sys.executable, "-u", str(file), *(benchmark.quick if quick else ())]
    command += ["--device", device] if len(benchmark.devices) > 1 else []
    command += [*benchmark.write, str(table)] if benchmark.write is not None else []
    # The tensormetrics beside the benchmarks, not one that is installed elsewhere.
    path = os.pathsep.join(filter(None, (str(FOLDER.parent), os.environ.get("PYTHONPATH"))))
    printed = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}) as process:
        for line in process.stdout:
            tqdm.write(line, end="")
            printed.append(line)
    if process.returncode:
        return f"exit status {process.returncode}"
    if benchmark.write is None:
        table.write_text(f"# {table.stem}\n\n" + "".join(printed))
    return "" if table.exists() else "it wrote no table"


def outcome(file: Path, benchmark: Benchmark, output: Path | None, quick: bool, device: str) -> tuple[str, str]:
    """passed, skipped or failed, and the reason or where the table is."""
    reason = obstacle(benchmark, quick, device)
    if reason:
        return "skipped", reason
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch) / f"{file.stem}.md"
        reason = run(file, benchmark, table, quick, device)
        if reason:
            return "failed", reason  # and the last table stays as it is
        if output is None:
            return "passed", "table not kept"
        output.mkdir(parents=True, exist_ok=True)
        report = output / f"{machine(device)}.md"
        before = report.read_text() if report.exists() else ""
        report.write_text(_report.with_section(before, machine(device), file.stem, table.read_text()))
        return "passed", str(report)


def main(
    arguments: list[str] | None = None, benchmarks: dict[str, Benchmark] = BENCHMARKS, folder: Path = FOLDER
) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small cases; tables are kept where --output is given")
    parser.add_argument("--only", nargs="+", choices=benchmarks, metavar="NAME", help=f"of {', '.join(benchmarks)}")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--output", type=Path, help="folder of the tables; default: benchmarks/results")
    parser.add_argument("--readme", action="store_true", help="measure nothing; bring the README's table up to date")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no GPU here; leave it out to run on the CPU")
    if options.readme:
        _report.write_readme(folder.parent / "README.md", folder / "results" / _report.MACHINE)
        return 0
    output = options.output or (None if options.quick else folder / "results")
    rows = []
    with tqdm(options.only or benchmarks, unit="benchmark", disable=None) as bar:  # a bar on a terminal only
        for name in bar:
            bar.set_description(name)
            start = time.monotonic()
            status, note = outcome(folder / f"{name}.py", benchmarks[name], output, options.quick, options.device)
            rows.append((status, f"{status:8}{name:24}{time.monotonic() - start:6.0f} s  {note}"))
    count = Counter(status for status, _ in rows)
    total = ", ".join(f"{count[status]} {status}" for status in ("passed", "failed", "skipped"))
    print("", *(row for _, row in rows), total, sep="\n")
    return int(count["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
