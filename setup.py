"""Builds the native libraries: csrc/*/*.cpp into _C where torch and a compiler are found, *.cu into _C_cuda where
nvcc is found too (TENSORMETRICS_CUDA=0 leaves it out, =1 insists). What could not be built is said and left out: the
package then answers with its reference implementations. Everything else about the package stands in pyproject.toml."""

import importlib.util
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from itertools import chain
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# The stable ABI of torch 2.11: one binary for every later torch.
ABI = ["-DTORCH_TARGET_VERSION=0x020b000000000000", "-DTORCH_STABLE_ONLY", "-std=c++17", "-O3"]
VECTORS = ["-fno-math-errno", "-fno-trapping-math"]  # a loop with sqrt or a choice becomes vector code, same values
ARCHITECTURES = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in (75, 80, 90)] + [
    "-gencode=arch=compute_90,code=compute_90"  # PTX for later cards
]


def find_nvcc() -> str | None:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which("nvcc") or shutil.which("nvcc", path=os.path.join(home, "bin"))


def find_extensions() -> list[Extension]:
    spec = importlib.util.find_spec("torch")
    if spec is None:
        print("tensormetrics: torch is not here at build time (install with --no-build-isolation): no native code")
        return []
    torch = Path(spec.origin).parent
    common = {"include_dirs": ["csrc", str(torch / "include")], "py_limited_api": True}
    extensions = [
        Extension(
            "tensormetrics._C",
            sorted(glob("csrc/*/*.cpp")),
            depends=sorted(glob("csrc/*/*.h")),
            extra_compile_args=[*ABI, *VECTORS, "-Wno-psabi", "-fvisibility=hidden"],
            library_dirs=[str(torch / "lib")],
            libraries=["torch_cpu"],
            optional=True,
            **common,
        )
    ]
    wanted = os.environ.get("TENSORMETRICS_CUDA", "auto")
    if wanted == "1" and find_nvcc() is None:
        raise SystemExit("tensormetrics: TENSORMETRICS_CUDA=1, but there is no nvcc on PATH or under CUDA_HOME")
    if wanted != "0" and find_nvcc() is not None:
        extensions.append(
            Extension(
                "tensormetrics._C_cuda",
                sorted(glob("csrc/*/*.cu")),
                depends=sorted(glob("csrc/*/*.h")),
                library_dirs=[str(torch / "lib")],
                libraries=["torch", *(["torch_cuda"] if (torch / "lib" / "libtorch_cuda.so").exists() else [])],
                optional=wanted != "1",
                **common,
            )
        )
    return extensions


class BuildExt(build_ext):
    def build_extensions(self) -> None:
        """Both libraries and all sources side by side."""
        compile_in_turn, self.parallel = self.compiler.compile, True

        def compile_together(sources: list[str], **options) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return [*chain(*pool.map(lambda source: compile_in_turn([source], **options), sources))]

        self.compiler.compile = compile_together
        super().build_extensions()

    def build_extension(self, extension: Extension) -> None:
        if extension.name.endswith("_cuda"):
            self.build_cuda(extension)
        else:
            super().build_extension(extension)
        print(f"tensormetrics: built {extension.name}")

    def build_cuda(self, extension: Extension) -> None:
        """One nvcc call. The static CUDA runtime keeps working when torch moves to another CUDA version."""
        target = Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        own, *others = extension.include_dirs
        includes = [f"-I{own}", *(f"-isystem={folder}" for folder in others)]
        language = ["-DUSE_CUDA", "--extended-lambda", "--expt-relaxed-constexpr"]
        flags = [*ABI, *language, "-Xcompiler=-fPIC", "-cudart=static", "-shared", "--threads=0"]
        links = [f"-L{folder}" for folder in extension.library_dirs] + ["-Xlinker=--no-as-needed"]
        links += [f"-l{name}" for name in extension.libraries]
        command = [find_nvcc(), *flags, *ARCHITECTURES, *includes, *extension.sources, *links, "-o", str(target)]
        self.spawn(command)


setup(ext_modules=find_extensions(), cmdclass={"build_ext": BuildExt})
