"""Running the tests of Triton kernels where there is no GPU."""

import os
import subprocess
import sys

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def interpreted(file: str, which: str) -> subprocess.CompletedProcess:
    """The tests of a file that are marked so; the setting holds for a whole process, which can then compile nothing."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", which, "-p", "no:cacheprovider", file]
    return subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
