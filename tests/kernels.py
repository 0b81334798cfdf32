"""Helpers that run tests of Triton kernels without a GPU and check the GPU resources that kernels need."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def interpreted(file: str, which: str) -> subprocess.CompletedProcess:
    """Run the tests of a file with a marker in Triton's interpreter, in a new process since that one cannot compile."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-m", which, "-p", "no:cacheprovider", file]
    return subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)


def mend_interpreter() -> None:
    """Let the interpreter of Triton before 3.7, which uses arrays of one entry as integers, run with numpy 2.4."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_with_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))

    interpreter._patch_lang_tensor = patch_with_index


if INTERPRETED and find_spec("triton") and tuple(map(int, version("triton").split(".")[:2])) < (3, 7):
    mend_interpreter()


COUNTED = Path(__file__).with_name("kernel_resources.json")


def cuobjdump(*options: object) -> str:
    """Return what CUDA's or Triton's cuobjdump says; the test is skipped without one."""
    triton = find_spec("triton")
    bundled = Path(triton.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump" if triton else Path("none")
    tool = str(bundled) if bundled.exists() else shutil.which("cuobjdump")
    if tool is None:
        pytest.skip("needs cuobjdump")
    return subprocess.run([tool, *map(str, options)], capture_output=True, text=True, check=True).stdout


def hold_resources(name: str, architecture: int, kernel: Any) -> None:
    """Check that a compiled kernel needs no more resources than recorded for this Triton.

    The resources are registers and spilled bytes of a thread, and bytes of shared memory. COUNT_RESOURCES=1 records
    them.
    """
    import triton

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage = cuobjdump("-res-usage", file.name)
    registers, stack = map(int, re.search(r"REG:(\d+) STACK:(\d+)", usage).groups())
    resources = {"registers": registers, "spilled": stack, "shared": kernel.metadata.shared}
    hold(f"triton {triton.__version__}", name, architecture, resources)


def hold(compiler: str, name: str, architecture: int, resources: dict[str, int]) -> None:
    counted = json.loads(COUNTED.read_text()) if COUNTED.exists() else {}
    compiler_limits = counted.setdefault(compiler, {})
    if os.environ.get("COUNT_RESOURCES") == "1":
        compiler_limits.setdefault(name, {})[f"sm_{architecture}"] = resources
        COUNTED.write_text(json.dumps(counted, indent=1, sort_keys=True) + "\n")
    family, slack = compiler.partition(" ")[0], 1.0
    if not compiler_limits:  # another version than those counted may need a fifth more
        compiler_limits, slack = counted[max(version for version in counted if version.startswith(family))], 1.2
    limits = compiler_limits[name][f"sm_{architecture}"]
    excess = {resource: n for resource, n in resources.items() if n > slack * limits[resource] + 16 * (slack > 1)}
    assert not excess, f"{name}, sm_{architecture}: got {excess}, wanted at most {limits}"
