"""The CUDA operators as the CPU runs them: compiled by nvcc, their kernels translated from its PTX."""

import ast
import contextlib
import ctypes
import hashlib
import platform
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from translate import translated

from tensormetrics.assignment import _op as solver_op
from tensormetrics.posterior.sampling import operators as sampler_op

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
CSRC, TORCH = ROOT / "csrc", Path(torch.__file__).parent
FILES = {"lsa": "lsa_cuda.cu", "dirichlet": "dirichlet_cuda.cu"}
SCHEMAS = {
    "lsa": {"lsa": solver_op.SCHEMA},
    "dirichlet": {
        "dirichlet_sums": sampler_op.SUMS,
        "log_gamma": "(Tensor(a!) out, Tensor alpha, Tensor keys, int start) -> ()",
        "item_sums": "(Tensor(a!) out, Tensor cells, Tensor key, int start) -> ()",
        "uniforms": "(Tensor(a!) out, Tensor key, int draw) -> ()",
    },
}
LANGUAGE = ["-DUSE_CUDA", "--extended-lambda", "--expt-relaxed-constexpr"]
RESOURCES = re.compile(
    r"Compiling entry function '(\w+)'.*\n.*\n +(\d+) bytes stack frame.*\n.*Used (\d+) registers(.*)"
)  # as nvcc -Xptxas=-v says them
IMPL = "STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CUDA, m)"
# multiprocessors; bytes of shared memory that a block may ask for, and that a multiprocessor has
CARDS = {
    "H100": (132, 232448, 233472),
    "A100": (108, 166912, 167936),
    "RTX 4090": (128, 101376, 102400),
    "T4": (40, 65536, 65536),
    "of one multiprocessor": (1, 101376, 102400),
}


def cubin(name: str, architecture: int, file: Path) -> str:
    """Compile a .cu file for a card, and return what ptxas says of it."""
    (source,) = CSRC.rglob(FILES[name])
    command = ["nvcc", *abi(), *LANGUAGE, f"-arch=sm_{architecture}", f"-isystem={TORCH}/include", f"-I{CSRC}"]
    done = subprocess.run([*command, "-Xptxas=-v", "-cubin", source, "-o", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr


def resources(name: str, architecture: int, folder: Path) -> dict[str, dict[str, int]]:
    """Of each kernel as ptxas compiles it: registers of a thread, bytes that it spills, bytes that a block shares."""
    found = {}
    for symbol, stack, registers, rest in RESOURCES.findall(cubin(name, architecture, folder / "kernels.cubin")):
        shared = re.search(r"(\d+) bytes smem", rest)
        kernel = call("c++filt", symbol).removeprefix("void ").rpartition("(")[0]
        found[kernel] = {"registers": int(registers), "spilled": int(stack), "shared": int(shared[1]) if shared else 0}
    return found


def missing() -> str:
    """Why nothing can be compiled here; empty where it can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "lanes take turns on x86-64 Linux"
    return next((f"{tool} is missing" for tool in ("nvcc", "g++") if shutil.which(tool) is None), "")


def built(name: str, cache: Path, architecture: int = 90, csrc: Path = CSRC) -> Path:
    """The library of a .cu file, whose operators are those of `torch.ops.<namespace>` on the CPU."""
    (file,) = csrc.rglob(FILES[name])
    source = file.read_text()
    assert source.count(IMPL) == 1, f"{file}: it registers other operators, or by another line"
    flags = [*abi(), *LANGUAGE, "-Xcompiler=-fPIC"]
    flags += [f"-arch=compute_{architecture}"]
    rooms = file.parent, csrc / "common", csrc / "testing"
    files = [HERE / "translate.py", *(path for room in (HERE, *rooms) for path in sorted(room.glob("*.h")))]
    parts = [source, *flags, torch.__version__, call("nvcc", "--version"), *(path.read_text() for path in files)]
    folder = cache / f"{name}_{architecture}_{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"
    if not folder.exists():
        folders = {HERE, csrc, file.parent, *(header.parent for header in csrc.rglob("lanes*.h"))}
        flags += [f"-isystem={TORCH}/include", *(f"-I{path}" for path in sorted(folders))]
        work = Path(tempfile.mkdtemp(dir=cache))
        compile_(work, source.replace(IMPL, f"STABLE_TORCH_LIBRARY_IMPL({namespace(folder)}, CPU, m)"), flags)
        with contextlib.suppress(OSError):  # another process was first
            work.rename(folder)
        shutil.rmtree(work, ignore_errors=True)
    return folder / "library.so"


def compile_(folder: Path, source: str, flags: list[str]) -> None:
    unit, ptx, kernels = folder / "unit.cu", folder / "kernels.ptx", folder / "kernels.cpp"
    unit.write_text(source)
    call("nvcc", *flags, "-ptx", unit, "-o", ptx)
    kernels.write_text(translated(ptx.read_text()))
    # Every operation of a kernel is rounded, as on the card.
    host = "-march=native,-ffp-contract=off,-fwrapv,-fno-strict-aliasing,-fvisibility=hidden,-w"
    jobs = (
        (*flags, "-O1", f"-Xcompiler={host}", "-c", kernels, "-o", folder / "kernels.o"),
        (*flags, "-c", unit, "-o", folder / "host.o"),
    )
    with ThreadPoolExecutor(2) as pool:
        [*pool.map(lambda options: call("nvcc", *options), jobs)]
    links = [f"-L{TORCH}/lib", "-ltorch_cpu", "-ltorch", "-lc10", "-ldl", f"-Wl,-rpath,{TORCH}/lib"]
    objects = folder / "host.o", folder / "kernels.o"
    call("g++", "-shared", "-Wl,-Bsymbolic", *objects, *links, "-o", folder / "library.so")


def namespace(folder: Path) -> str:
    return f"ptx_{folder.name}"


def loaded(library: Path, schemas: dict[str, str]):
    """The operators, and the stand-in for the card."""
    space = torch.library.Library(namespace(library.parent), "FRAGMENT")
    for operator, schema in schemas.items():
        if not hasattr(getattr(torch.ops, space.ns), operator):
            space.define(operator + schema)
    torch.ops.load_library(library)
    return Ptx(getattr(torch.ops, space.ns), library, space)


class Ptx:
    def __init__(self, operators, library: Path, definitions: torch.library.Library) -> None:
        self.ops, self._library, self._definitions = operators, ctypes.CDLL(str(library)), definitions
        self._library.ptx_history.restype, self._library.ptx_instructions.restype = ctypes.c_char_p, ctypes.c_int64
        self.text = library.with_name("kernels.ptx").read_text()

    def insert(self, card: str | tuple[int, int, int]) -> None:
        self._library.ptx_card(*map(ctypes.c_int64, CARDS.get(card, card)))

    def instructions(self) -> int:
        """Return how many instructions the warps have issued since the last call."""
        return self._library.ptx_instructions()

    def history(self) -> list[list[str]]:
        """Since the last call: "launch", kernel, blocks, threads, bytes; "allow", kernel, bytes."""
        return [line.split() for line in self._library.ptx_history().decode().splitlines()]


def abi() -> list[str]:
    """As setup.py compiles."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "ABI":
            return ast.literal_eval(node.value)
    raise LookupError("setup.py has no literal ABI")


def call(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command[0]}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
