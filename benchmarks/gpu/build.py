"""Build the native libraries next to the sources, for this machine's card alone and without setuptools.

    python -m benchmarks.gpu.build [--dry]      --dry: only print the commands

A g++ line for each folder of csrc and an nvcc line for its CUDA sources, all at once, with the flags of setup.py.
"""

import ast
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.start import STAND_IN

ROOT = Path(__file__).resolve().parents[2]
TORCH = Path(torch.__file__).parent


def settings() -> dict[str, Any]:
    """Return ABI, ROOMS, FLAGS and OF_ROOM of setup.py, which is parsed, since its imports may be missing."""
    values: dict[str, Any] = {}
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id in ("ABI", "ROOMS", "FLAGS", "OF_ROOM"):
            values[node.targets[0].id] = eval(ast.unparse(node.value), dict(values))
    return values


def commands(capability: tuple[int, int]) -> list[list[str]]:
    """Return a g++ command for each folder of csrc that users get, and an nvcc command for each with CUDA sources."""
    config, lines = settings(), []
    architecture = "".join(map(str, capability))
    for library in config["ROOMS"]:
        folder, target = ROOT / "csrc" / library, ROOT / "tensormetrics" / f"_{library}"
        flags = [*config["FLAGS"], *config["OF_ROOM"].get(library, []), "-w", "-fPIC", "-shared", f"-I{ROOT / 'csrc'}"]
        links = [f"-L{TORCH / 'lib'}", "-ltorch_cpu", f"-Wl,-rpath,{TORCH / 'lib'}"]
        sources = map(str, sorted(folder.glob("*.cpp")))
        lines.append(["g++", *flags, f"-isystem{TORCH / 'include'}", *sources, *links, "-o", f"{target}.so"])
        if sources := sorted(folder.glob("*.cu")):
            line = ["nvcc", *config["ABI"], "-DUSE_CUDA", "--extended-lambda", "--expt-relaxed-constexpr"]
            line += ["-Xcompiler=-fPIC", "-cudart=static", "-shared", f"-arch=sm_{architecture}", f"-I{ROOT / 'csrc'}"]
            line += [f"-isystem={TORCH / 'include'}", *map(str, sources), f"-L{TORCH / 'lib'}"]
            line += ["-Xlinker=--no-as-needed", "-ltorch"]
            line += ["-ltorch_cuda"] if (TORCH / "lib" / "libtorch_cuda.so").exists() else []
            lines.append([*line, "-o", f"{target}_cuda.so"])
    return lines


def main() -> None:
    if STAND_IN:
        from benchmarks.gpu.facts import native

        print(*(f"nvcc's PTX of {name} runs on the CPU" for name in ("lsa", "dirichlet") if native(name)), sep="; ")
        return
    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else (9, 0)
    lines = commands(capability)
    if "--dry" in sys.argv:
        print(*(" ".join(line) for line in lines), sep="\n")
        return
    failed = []

    def call(line: list[str]) -> None:
        if shutil.which(line[0]) is None:
            failed.append(f"{line[0]} is missing")
        elif (done := subprocess.run(line, capture_output=True, text=True)).returncode:
            print(" ".join(line), done.stderr[-4000:], sep="\n")
            failed.append(f"{line[0]} of {Path(line[-1]).name} failed")

    with ThreadPoolExecutor() as pool:
        [*pool.map(call, sorted(lines, key=lambda line: line[0] != "nvcc"))]  # the slowest first
    print("; ".join(dict.fromkeys(failed)) or f"built for sm_{capability[0]}{capability[1]}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
