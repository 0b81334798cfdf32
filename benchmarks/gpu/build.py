"""Build what this card needs, the native libraries and Triton's kernels, or unpack what an earlier call has kept.

python -m benchmarks.gpu.build FOLDER, which gets built-KEY.tgz; every step unpacks it from there or from .gpu/.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import torch

from benchmarks.gpu.start import STAND_IN

ROOT = Path(__file__).resolve().parents[2]


def name(root: Path = ROOT) -> str:
    """Return the name of the archive of what is built from the sources under `root` with this torch, for this card."""
    kernels = (path for path in root.glob("tensormetrics/**/*.py") if "triton" in path.read_text())
    sources = sorted([*root.glob("csrc/*/*.*"), root / "setup.py", *kernels])
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    card = "".join(map(str, torch.cuda.get_device_capability())) if torch.cuda.is_available() else "none"
    return f"built-{digest}-{torch.__version__.replace('+', '_')}-sm{card}.tgz"


def keep(folder: Path, root: Path = ROOT) -> Path:
    built = [*root.glob("tensormetrics/*.so"), *root.glob("tensormetrics/_build.json"), *root.glob("build/triton")]
    with tarfile.open(folder / name(root), "w:gz", compresslevel=1) as archive:
        for path in built:
            archive.add(path, path.relative_to(root))
    return folder / name(root)


def restored(folders: list[Path], root: Path = ROOT) -> Path | None:
    """Unpack the archive of these sources and return its path, or None if no folder has it."""
    found = next((path for folder in folders if (path := folder / name(root)).exists()), None)
    if found:
        with tarfile.open(found) as archive:
            archive.extractall(root, filter="data")
    return found


def main(folder: Path) -> str:
    if STAND_IN:
        from benchmarks.gpu.facts import native

        return "; ".join(f"nvcc's PTX of {name} runs on the CPU" for name in ("lsa", "dirichlet") if native(name))
    if found := restored([folder, ROOT / ".gpu"]):
        return f"unpacked {found}"
    # Triton's compilers and nvcc work side by side: what Triton launches needs no library.
    columns = [part for number in (64, 128, 512) for part in ("--columns", str(number))]
    warm_up = subprocess.Popen([sys.executable, "-m", "tensormetrics", "info", "--warm-up", *columns])
    capability = ".".join(map(str, torch.cuda.get_device_capability()))
    settings = os.environ | {"TENSORMETRICS_CUDA": "1", "TORCH_CUDA_ARCH_LIST": capability}
    build = subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=ROOT, env=settings)
    if warm_up.wait() or build.returncode:
        sys.exit(f"failed: the build {build.returncode}, warm-up {warm_up.returncode}")
    return f"built for {capability}: {keep(folder)}"


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))
