"""Builds both native libraries beside the sources, for this machine's card alone and without setuptools.

    python -m benchmarks.gpu.build [--dry]      --dry: only says with which commands

One g++ line for each .cpp and one nvcc line, all at once, with the flags of setup.py.
"""

import ast
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from benchmarks.gpu.start import STAND_IN

ROOT = Path(__file__).resolve().parents[2]
TORCH = Path(torch.__file__).parent


def literal(name: str) -> list[str]:
    """Of setup.py."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise LookupError(f"setup.py has no literal {name}")


def commands(capability: tuple[int, int], work: Path) -> tuple[list[list[str]], list[str], list[str]]:
    """The lines that make objects, the one that links these, and the one that makes the CUDA library."""
    common = [*literal("ABI"), f"-I{ROOT / 'csrc'}", "-fPIC"]
    links = [f"-L{TORCH / 'lib'}", "-ltorch_cpu", f"-Wl,-rpath,{TORCH / 'lib'}"]
    sources = sorted((ROOT / "csrc").rglob("*.cpp"))
    objects = [work / f"{source.stem}.o" for source in sources]
    flags = [*common, *literal("VECTORS"), "-Wno-psabi", "-w", "-fvisibility=hidden", f"-isystem{TORCH / 'include'}"]
    compile_ = [["g++", *flags, "-c", str(a), "-o", str(b)] for a, b in zip(sources, objects, strict=True)]
    link = ["g++", "-shared", *map(str, objects), *links, "-o", str(ROOT / "tensormetrics" / "_C.abi3.so")]
    architecture = "".join(map(str, capability))
    cuda = ["nvcc", *literal("ABI"), "-DUSE_CUDA", "--extended-lambda", "--expt-relaxed-constexpr", "-Xcompiler=-fPIC"]
    cuda += ["-cudart=static", "-shared", "--threads=0", f"-arch=sm_{architecture}", f"-I{ROOT / 'csrc'}"]
    cuda += [f"-isystem={TORCH / 'include'}", *map(str, sorted((ROOT / "csrc").rglob("*.cu"))), f"-L{TORCH / 'lib'}"]
    cuda += ["-Xlinker=--no-as-needed", "-ltorch"]
    cuda += ["-ltorch_cuda"] if (TORCH / "lib" / "libtorch_cuda.so").exists() else []
    return compile_, link, [*cuda, "-o", str(ROOT / "tensormetrics" / "_C_cuda.abi3.so")]


def main() -> None:
    if STAND_IN:
        from benchmarks.gpu.facts import native

        print(*(f"nvcc's PTX of {name} runs on the CPU" for name in ("lsa", "dirichlet") if native(name)), sep="; ")
        return
    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else (9, 0)
    work = ROOT / "build" / "direct"
    work.mkdir(parents=True, exist_ok=True)
    compile_, link, cuda = commands(capability, work)
    if "--dry" in sys.argv:
        print(*(" ".join(line) for line in (*compile_, link, cuda)), sep="\n")
        return
    failed = []

    def call(line: list[str]) -> None:
        if shutil.which(line[0]) is None:
            failed.append(f"{line[0]} is missing")
        elif (done := subprocess.run(line, capture_output=True, text=True)).returncode:
            print(" ".join(line), done.stderr[-4000:], sep="\n")
            failed.append(f"{line[0]} of {Path(line[-1]).name} failed")

    with ThreadPoolExecutor() as pool:
        on_card = pool.submit(call, cuda)
        [*pool.map(call, compile_)]
        if not failed:
            call(link)
        on_card.result()
    print("; ".join(dict.fromkeys(failed)) or f"built for sm_{capability[0]}{capability[1]}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
