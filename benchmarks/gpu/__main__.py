"""Cases of a step, one after the other in a process that is replaced where a case ends it or takes too long.

    python -m benchmarks.gpu STEP [REGEX]

STEP is a module of this folder whose CASES are functions by name that return a text: facts, profile, rivals, updates or
ranks. Names and texts are printed as they come. REGEX selects names.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from importlib import import_module

from benchmarks.gpu.start import STAND_IN

FIRST, CASE = 150.0, 40.0 if not STAND_IN else 900.0  # seconds: of imports from a cold file system, of a case
BROKEN = 75  # exit status of a process whose CUDA context no longer works, after its answer


def answers(module: str, regex: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each case of a module that the expression selects."""
    done, names = 0, [module]
    while done < len(names):
        command = [sys.executable, "-m", "benchmarks.gpu", "--answer", module, regex, str(done)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asked:
            if first := read(asked, FIRST):
                names = json.loads(first)
                while done < len(names) and (text := read(asked, CASE)):
                    yield names[done], json.loads(text)
                    done += 1
            status = asked.wait()
        if status != BROKEN and done < len(names):
            reason = f"no answer in {CASE:g} s" if status == -signal.SIGKILL else f"status {status}"
            yield names[done], f"failed   {reason}"
            done += 1


def read(process: subprocess.Popen, limit: float) -> str:
    """Return the next line of a process, which is killed after `limit` seconds; empty if it has ended."""
    timer = threading.Timer(limit, process.kill)
    timer.start()
    line = process.stdout.readline()
    timer.cancel()
    return line


def answer(module: str, regex: str, done: int) -> None:
    """Write the selected names and the texts of all but the first `done` cases, as JSON."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages print is no answer
    cases = {name: case for name, case in import_module(module).CASES.items() if re.search(regex, name)}
    print(json.dumps([*cases]), file=output, flush=True)
    for case in [*cases.values()][done:]:
        try:
            text = case()
        except Exception as error:
            traceback.print_exc()
            word = "differs " if type(error).__name__ == "Different" else f"failed   {type(error).__name__}:"
            text = f"{word} {error}".splitlines()[0][:160]
        print(json.dumps(text), file=output, flush=True)
        if is_broken():
            os._exit(BROKEN)


def is_broken() -> bool:
    """Return whether each later call on the GPU fails, as after an invalid address; free what is cached if not."""
    cuda = sys.modules["torch"].cuda if "torch" in sys.modules else None
    try:
        if cuda and cuda.is_initialized():
            cuda.synchronize()
            cuda.empty_cache()
    except RuntimeError:
        return True
    return False


def main(step: str, regex: str = "") -> int:
    count = failed = 0
    for name, text in answers(f"benchmarks.gpu.{step}", regex):
        print(f"{name:42} {text}", flush=True)
        count += 1
        failed += text.startswith(("differs", "failed"))
    print(f"{count} cases, {failed} failed")
    return int(failed > 0 or count == 0)


if __name__ == "__main__":
    if sys.argv[1] == "--answer":
        answer(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        sys.exit(main(*sys.argv[1:]))
