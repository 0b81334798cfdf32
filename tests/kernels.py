"""Running the tests of Triton kernels where there is no GPU."""

import os
import subprocess
import sys

import pytest

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def interpreted(file: str, which: str) -> subprocess.CompletedProcess:
    """The tests of a file that are marked so; the setting holds for a whole process, which can then compile nothing."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", which, "-p", "no:cacheprovider", file]
    result = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    if "only 0-dimensional arrays can be converted" in result.stdout:
        pytest.skip("this Triton's interpreter does not run with this numpy")
    return result
