"""Running the tests of Triton kernels where there is no GPU, and what of a GPU they take."""

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
    """The tests of a file that are marked so; the setting holds for a whole process, which can then compile nothing."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", which, "-p", "no:cacheprovider", file]
    return subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)


def mend_interpreter() -> None:
    """Have Triton before 3.7, whose interpreter takes arrays of one entry for numbers, run with numpy 2.4."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def with_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))

    interpreter._patch_lang_tensor = with_index


if INTERPRETED and find_spec("triton") and tuple(map(int, version("triton").split(".")[:2])) < (3, 7):
    mend_interpreter()


COUNTED = Path(__file__).with_name("kernel_resources.json")


def hold_resources(name: str, architecture: int, kernel: Any) -> None:
    """Registers of a thread, bytes that it spills and bytes of shared memory of a compiled kernel are no more than was
    counted with this Triton. COUNT_RESOURCES=1 counts them."""
    import triton

    beside = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    tool = str(beside) if beside.exists() else shutil.which("cuobjdump")
    if tool is None:
        pytest.skip("needs cuobjdump")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack = map(int, re.search(r"REG:(\d+) STACK:(\d+)", said).groups())
    found = {"registers": registers, "spilled": stack, "shared": kernel.metadata.shared}
    hold(f"triton {triton.__version__}", name, architecture, found)


def hold(compiler: str, name: str, architecture: int, found: dict[str, int]) -> None:
    counted = json.loads(COUNTED.read_text()) if COUNTED.exists() else {}
    of_compiler = counted.setdefault(compiler, {})
    if os.environ.get("COUNT_RESOURCES") == "1":
        of_compiler.setdefault(name, {})[f"sm_{architecture}"] = found
        COUNTED.write_text(json.dumps(counted, indent=1, sort_keys=True) + "\n")
    elif not of_compiler:
        pytest.skip(f"nothing was counted with {compiler}")
    most = of_compiler[name][f"sm_{architecture}"]
    assert all(found[what] <= most[what] for what in most), f"{name}: {found}, counted {most}"
