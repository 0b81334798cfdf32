"""Build the native code: the *.cpp of each folder of csrc are one library, tensormetrics/_<folder>.so, and its *.cu
another, _<folder>_cuda.so. A library that cannot be built is reported and left out; its references in torch are used.

Environment variables: TENSORMETRICS_NATIVE=0 builds nothing; TENSORMETRICS_CUDA=0 leaves CUDA out, and =1 requires
it; TORCH_CUDA_ARCH_LIST="8.0 9.0+PTX" selects the GPU architectures; TENSORMETRICS_SANITIZE=1, or names of folders,
checks addresses and undefined behavior (see tests/sanitize.sh); TENSORMETRICS_TESTING=1 adds, for an install in place,
the emulated lanes of CUDA that tests need. The metadata of the package are in pyproject.toml.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import runpy
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

FOLDERS = ["lsa", "dirichlet", "nearest", "sequence", "subsets", "text"]
SANITIZE_OPTION = os.environ.get("TENSORMETRICS_SANITIZE", "")
SANITIZED = FOLDERS if SANITIZE_OPTION == "1" else [*filter(None, SANITIZE_OPTION.split(","))]
# The stable ABI of torch 2.11: one binary for every later torch, and for every Python.
ABI = ["-DTORCH_TARGET_VERSION=0x020b000000000000", "-DTORCH_STABLE_ONLY", "-std=c++17", "-O3"]
# The last two: a loop with sqrt or a choice becomes vector code, same values.
FLAGS = [*ABI, "-g0", "-fvisibility=hidden", "-Wno-psabi", "-fno-math-errno", "-fno-trapping-math"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-O1", "-g1"]
FOLDER_FLAGS = {"nearest": ["-ffp-contract=off"]}  # canonical distances are sums of rounded products
CUDA = SimpleNamespace(
    **runpy.run_path(str(Path(__file__).parent / "tensormetrics" / "_cli" / "machine" / "cuda_build.py"))
)


def find_torch() -> Path | None:
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec and spec.origin else None


def find_nvcc() -> str | None:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which("nvcc") or shutil.which("nvcc", path=os.path.join(home, "bin"))


def torch_has_cuda() -> bool:
    torch = find_torch()
    return torch is not None and (torch / "lib" / "libtorch_cuda.so").exists()


def torch_cuda_version() -> str | None:
    torch = find_torch()
    return runpy.run_path(str(torch / "version.py"))["cuda"] if torch else None


def needs_cuda() -> bool:
    wanted = os.environ.get("TENSORMETRICS_CUDA", "auto")
    if wanted == "1" and find_nvcc() is None:
        raise SystemExit("tensormetrics: TENSORMETRICS_CUDA=1, but there is no nvcc on PATH or under CUDA_HOME")
    return wanted == "1" or (wanted != "0" and torch_has_cuda() and find_nvcc() is not None)


def extension(name: str, sources: str, flags: list[str], optional: bool = True) -> Extension:
    headers = sorted(glob("csrc/*/*.h"))
    return Extension(name, sorted(glob(sources)), depends=headers, extra_compile_args=flags, optional=optional)


def find_extensions() -> list[Extension]:
    if os.environ.get("TENSORMETRICS_NATIVE") == "0":
        return []
    sanitize = SANITIZE if SANITIZED else []
    found = [
        extension(f"tensormetrics._{folder}", f"csrc/{folder}/*.cpp", FLAGS + FOLDER_FLAGS.get(folder, []) + sanitize)
        for folder in SANITIZED or FOLDERS
    ]
    if needs_cuda():
        optional = os.environ.get("TENSORMETRICS_CUDA") != "1"
        found += [
            extension(f"tensormetrics._{folder}_cuda", f"csrc/{folder}/*.cu", ABI, optional) for folder in FOLDERS
        ]
    if os.environ.get("TENSORMETRICS_TESTING") == "1":
        found.append(extension("tests._testing", "csrc/testing/*.cpp", FLAGS, optional=False))
    return [each for each in found if each.sources]


def version_of(*command: str) -> str:
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()
        return next((line for line in lines if "release" in line), lines[0])  # nvcc prints several lines
    except (OSError, subprocess.CalledProcessError, IndexError):
        return f"{command[0]}, which does not run"


def report(line: str) -> None:
    """Print a line to stderr, and to that of the installer if it hides ours."""
    print(line, file=sys.stderr, flush=True)
    if any(name.endswith("BUILD_BACKEND") for name in os.environ):
        try:
            with open(f"/proc/{os.getppid()}/fd/2", "w") as shown:
                shown.write(line + "\n")
        except OSError:
            pass  # no /proc, or a closed stderr


def digest(ext: Extension) -> str:
    """Return a hash of all that a library is made from."""
    made_from = [importlib.metadata.version("torch"), platform.platform(), ext.extra_compile_args, SANITIZED]
    made_from += [os.environ.get(name) for name in ("CC", "CXX", "TORCH_CUDA_ARCH_LIST")]
    if ext.name.endswith("_cuda"):
        made_from += [find_nvcc(), version_of(find_nvcc(), "--version")]
    hashed = hashlib.sha256(repr(made_from).encode())
    for path in (__file__, *ext.sources, *ext.depends):
        hashed.update(Path(path).read_bytes())
    return hashed.hexdigest()


def read_record() -> dict:
    path = Path("tensormetrics", "_build.json")
    return json.loads(path.read_text()) if path.exists() else {}


class BuildExt(build_ext):
    def run(self) -> None:
        if find_extensions() and find_torch() is None:
            raise SystemExit(
                "tensormetrics: its native code is compiled against the torch you have, which this isolated build does "
                "not see. Type:\n\n    pip install torch 'setuptools>=77'\n"
                "    pip install --no-build-isolation .\n\n"
                "Without native code everything works, and slower: TENSORMETRICS_NATIVE=0 pip install .\n"
            )
        self.extensions = [each for each in self.extensions if self.inplace or not each.name.startswith("tests.")]
        self.failed: dict[str, str] = {}
        self.record = read_record()
        self.digests = {each.name: digest(each) for each in self.extensions}
        stale = [each.name.rpartition("._")[2] for each in self.extensions if not self.is_current(each)]
        self.architectures: list[str] = self.record.get("architectures", [])
        if stale:
            report(f"tensormetrics: compiling {', '.join(stale)}; all six libraries take about a minute on two cores")
        start = time.perf_counter()
        super().run()
        self.seconds = time.perf_counter() - start if stale else self.record.get("seconds", 0)
        self.write_record()
        if self.failed:
            report(
                f"tensormetrics: not compiled: {', '.join(sorted(self.failed))}. Plain torch answers instead, many "
                "times slower; `python -m tensormetrics info` says why, and what to do."
            )

    def build_extensions(self) -> None:
        """Compile all libraries and all sources in parallel."""
        compile_in_turn, self.parallel = self.compiler.compile, True
        torch = find_torch()
        for each in self.extensions:
            each.include_dirs = ["csrc", str(torch / "include")]
            each.library_dirs, each.libraries = [str(torch / "lib")], ["torch_cpu"]
            each.extra_link_args = SANITIZE[:1] if SANITIZED else ["-Wl,-s"]

        def compile_one(source: str, **options) -> list[str]:
            try:
                return compile_in_turn([source], **options)
            except Exception as error:
                raise type(error)(f"the compiler failed on {source}; `pip install -v` shows what it said") from error

        def compile_together(sources: list[str], **options) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return [*chain(*pool.map(lambda source: compile_one(source, **options), sources))]

        self.compiler.compile = compile_together
        super().build_extensions()

    def is_current(self, ext: Extension) -> bool:
        """Whether the library among the sources was built from these sources, for this torch, with these flags."""
        is_recorded = self.record.get("digests", {}).get(ext.name) == self.digests[ext.name]
        return is_recorded and Path(self.get_ext_filename(ext.name)).exists()

    def build_extension(self, ext: Extension) -> None:
        if self.is_current(ext):
            kept, target = Path(self.get_ext_filename(ext.name)), Path(self.get_ext_fullpath(ext.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            if not (target.exists() and target.samefile(kept)):
                shutil.copy(kept, target)
            return
        try:
            if ext.name.endswith("_cuda"):
                self.build_cuda(ext)
            else:
                super().build_extension(ext)
        except Exception as error:  # of many types; build_ext continues if the extension is optional
            self.failed[ext.name.rpartition("._")[2]] = str(error)
            raise

    def build_cuda(self, ext: Extension) -> None:
        """Compile a library by one nvcc call. The static CUDA runtime works whatever CUDA version torch uses."""
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        own, *others = ext.include_dirs
        includes = [f"-I{own}", *(f"-isystem={folder}" for folder in others)]
        nvcc = find_nvcc()
        try:
            requested = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
            targets = CUDA.architectures(requested, CUDA.supported(nvcc))
        except ValueError as error:
            raise CompileError(str(error)) from error
        language = ["-DUSE_CUDA", "--extended-lambda", "--expt-relaxed-constexpr"]
        flags = [*ext.extra_compile_args, *language, "-Xcompiler=-fPIC", "-cudart=static", "-shared", "--threads=0"]
        links = [f"-L{folder}" for folder in ext.library_dirs] + ["-Xlinker=--no-as-needed", "-Xlinker=-s"]
        links += ["-ltorch", *(["-ltorch_cuda"] if torch_has_cuda() else [])]
        self.spawn([nvcc, *flags, *CUDA.flags(targets), *includes, *ext.sources, *links, "-o", str(target)])
        self.architectures = targets

    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")) + ".so"  # loaded by torch, not imported by Python

    def write_record(self) -> None:
        """Write the libraries, compilers and GPU architectures of this build, for `python -m tensormetrics info`."""
        compiler = getattr(self.compiler, "compiler_so_cxx", None) or self.compiler.compiler_so
        compilers = {"C++": version_of(compiler[0], "--version")}
        cuda = {}
        if needs_cuda():
            compilers["CUDA"] = version_of(find_nvcc(), "--version")
            cuda = {
                "nvcc": CUDA.release(find_nvcc()),
                "torch": torch_cuda_version(),
                "driver": CUDA.cuda_of_driver(),
            }
            for conflict in CUDA.conflicts(**cuda):
                report(f"tensormetrics: {conflict}.")
        record = {
            "torch": importlib.metadata.version("torch"),
            "compilers": compilers,
            "cuda": cuda,
            "architectures": self.architectures,
            "libraries": [each.name.rpartition("._")[2] for each in self.extensions if "tests" not in each.name],
            "failed": self.failed,
            "digests": {name: of for name, of in self.digests.items() if name.rpartition("._")[2] not in self.failed},
            "seconds": round(self.seconds, 1),
        }
        target = Path(self.get_ext_fullpath("tensormetrics._build")).with_suffix(".json")
        target.write_text(json.dumps(record, indent=2) + "\n")


class BdistWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        """Return a tag for all versions of Python: no library uses a symbol of Python."""
        return "py3", "none", super().get_tag()[2]


setup(ext_modules=find_extensions(), cmdclass={"build_ext": BuildExt, "bdist_wheel": BdistWheel})
