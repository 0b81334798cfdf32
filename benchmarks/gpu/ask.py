"""First checks of a GPU: equality with the CPU, and times. Each fact runs in a separate process, so that a wrong
address or an endless kernel affects one line only.

    python -m benchmarks.gpu.ask NAME           the line of a fact
    python -m benchmarks.gpu.ask --all FOLDER   all lines, appended to FOLDER/summary.txt as they come, and
                                                FOLDER/gpu-expected.md, with the times next to the expected ones
    python -m benchmarks.gpu.ask --warm         the facts of Triton at once, without times: compiles its kernels

If TENSORMETRICS_STAND_IN is set, the kernels of assignment and posterior are nvcc's PTX on the CPU, Triton's
interpreter runs those of p-values if it is installed, all others are plain torch, and sizes are small.
"""

import os
import re
import select
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.gpu.fact import FACTS, Different, milliseconds
from benchmarks.gpu.facts import COMPILED  # the import also fills FACTS
from benchmarks.gpu.start import STAND_IN

LIMIT = 20 if not STAND_IN else 900  # seconds of a fact; here kernels are compiled and run by few processors
COLD_IMPORT = 150  # seconds until the first line, from a file system that was not read before
ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "benchmarks.gpu.ask"]
EXPECTED = ROOT / "benchmarks" / "results" / "gpu-expected.md"


def line(name: str) -> str:
    """Run a fact and return its line: "equal", its time and note."""
    check, call = FACTS[name]()
    note = check() or ""
    if "--warm" in sys.argv:
        call()
        return "warm"
    return f"equal    {milliseconds(call):10.3f} ms  {note}".rstrip()


def run_fact(name: str, *options: str) -> str:
    """Run a fact in a separate process and return its line; the time limit starts at the first output."""
    limit = LIMIT if not options else 120
    command = [*COMMAND, name, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            wait_for_line(process, COLD_IMPORT)
            stdout, stderr = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired as error:
            process.kill()
            return f"failed   no answer in {error.timeout:g} s"
    lines = [text for text in (stdout + stderr).splitlines() if text.strip()]
    if process.returncode == 0 and lines:
        return stdout.splitlines()[-1]
    return f"failed   {lines[-1].strip() if lines else f'status {process.returncode}'}"[:160]


def wait_for_line(process: subprocess.Popen, limit: float) -> None:
    """Wait until a process has printed something, or raise TimeoutExpired."""
    ready, _, _ = select.select([process.stdout], [], [], limit)
    if not ready:
        raise subprocess.TimeoutExpired(process.args, limit)


def filled(table: str, results: dict[str, str]) -> str:
    """Return the table of expectations with the measurement in the last cell of each row that names a fact."""

    def measured(row: re.Match) -> str:
        if row[2] not in results:
            return row[0]
        time_ = re.match(r"equal +([\d.]+) ms", results[row[2]])
        return f"{row[1]} {time_[1]} ms |" if time_ else f"{row[1]} {results[row[2]].split('  ')[0]} |"

    return re.sub(r"^(\| `([^`]+)` \|.*\|)[^|\n]*\|$", measured, table, flags=re.MULTILINE)


def all_of_them(folder: Path) -> bool:
    results = {}
    for name in FACTS:
        results[name] = run_fact(name)
        with (folder / "summary.txt").open("a") as summary:
            print(f"{name:22} {results[name]}", file=summary)
        print(f"{name:22} {results[name]}", flush=True)
        (folder / "gpu-expected.md").write_text(filled(EXPECTED.read_text(), results))
    return all(text.startswith("equal") for text in results.values())


def main() -> None:
    argument = sys.argv[1]
    if argument == "--all":
        sys.exit(not all_of_them(Path(sys.argv[2])))
    if argument == "--warm":
        with ThreadPoolExecutor(min(os.cpu_count() or 1, 12)) as pool:
            results = dict(zip(COMPILED, pool.map(lambda name: run_fact(name, "--warm"), COMPILED), strict=True))
        print(*(f"{name}: {text}" for name, text in results.items() if text != "warm"), sep="\n")
        print(f"{sum(text == 'warm' for text in results.values())} of {len(results)} facts are warm")
        return
    print("imported", flush=True)
    try:
        print(line(argument))
    except Different as error:
        print(f"differs  {error}")


if __name__ == "__main__":
    main()
