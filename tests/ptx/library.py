"""The CUDA operators as the CPU runs them: compiled by nvcc, their kernels translated from its PTX."""

import ast
import ctypes
import hashlib
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from translate import translated

from tensormetrics.assignment import _op as solver_op
from tensormetrics.posterior import _op as sampler_op

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
CSRC = ROOT / "csrc"
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
IMPL = "STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CUDA, m)"
# multiprocessors; bytes of shared memory that a block may ask for, and that a multiprocessor has
CARDS = {
    "H100": (132, 232448, 233472),
    "A100": (108, 166912, 167936),
    "RTX 4090": (128, 101376, 102400),
    "T4": (40, 65536, 65536),
    "of one multiprocessor": (1, 101376, 102400),
}


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
    torch_home = Path(torch.__file__).parent
    folders = {HERE, csrc, file.parent, *(header.parent for header in csrc.rglob("lanes*.h"))}
    flags = [*abi(), "-DUSE_CUDA", "--extended-lambda", "--expt-relaxed-constexpr", "-Xcompiler=-fPIC"]
    flags += [f"-arch=compute_{architecture}"]
    files = [HERE / "translate.py", *sorted(HERE.glob("*.h")), *sorted(csrc.rglob("*.h"))]
    parts = [source, *flags, torch.__version__, call("nvcc", "--version"), *(path.read_text() for path in files)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    folder = cache / f"{name}_{architecture}_{key}"
    library = folder / "library.so"
    flags += [f"-isystem={torch_home}/include", *(f"-I{folder}" for folder in sorted(folders))]
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    unit, kernels = folder / f"{name}.cu", folder / "kernels.cpp"
    unit.write_text(source.replace(IMPL, f"STABLE_TORCH_LIBRARY_IMPL({namespace(folder)}, CPU, m)"))
    call("nvcc", *flags, "-ptx", unit, "-o", folder / "kernels.ptx")
    kernels.write_text(translated((folder / "kernels.ptx").read_text()))
    with ThreadPoolExecutor(2) as pool:  # flags of the host's compiler: every operation is rounded, as on the card
        host = "-march=native,-ffp-contract=off,-fwrapv,-fno-strict-aliasing,-fvisibility=hidden,-w"
        of_kernels = (*flags, "-O1", f"-Xcompiler={host}", "-c", kernels, "-o", folder / "kernels.o")
        of_host = (*flags, "-c", unit, "-o", folder / "host.o")
        [*pool.map(lambda options: call("nvcc", *options), (of_kernels, of_host))]
    links = [f"-L{torch_home}/lib", "-ltorch_cpu", "-ltorch", "-lc10", "-ldl", f"-Wl,-rpath,{torch_home}/lib"]
    whole = folder / "whole.so"
    call("g++", "-shared", "-Wl,-Bsymbolic", "-o", whole, folder / "host.o", folder / "kernels.o", *links)
    whole.rename(library)
    return library


def namespace(folder: Path) -> str:
    return f"ptx_{folder.name}"


def loaded(library: Path, schemas: dict[str, str]):
    """The operators, and the stand-in for the card."""
    space = torch.library.Library(namespace(library.parent), "FRAGMENT")
    for operator, schema in schemas.items():
        if not hasattr(getattr(torch.ops, space.ns), operator):
            space.define(operator + schema)
    torch.ops.load_library(library)
    return Ptx(getattr(torch.ops, space.ns), ctypes.CDLL(str(library)), space)


class Ptx:
    def __init__(self, operators, library: ctypes.CDLL, definitions: torch.library.Library) -> None:
        self.ops, self._library, self._definitions = operators, library, definitions
        library.ptx_history.restype = ctypes.c_char_p

    def insert(self, card: str | tuple[int, int, int]) -> None:
        self._library.ptx_card(*map(ctypes.c_int64, CARDS.get(card, card)))

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
