"""What is built: a stripped wheel for every Python, and what is said where something cannot be built."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from tensormetrics.core.native import native

ROOT = Path(__file__).parents[1]
LIBRARIES = {f"tensormetrics/_{name}.so" for name in native.LIBRARIES}
VARIABLES = ("TENSORMETRICS_NATIVE", "TENSORMETRICS_CUDA", "TENSORMETRICS_TESTING", "PYTHONPATH")
PIP = [sys.executable, "-m", "pip"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="says what is so on Linux"),
]


@pytest.fixture
def sources(tmp_path):
    """A copy of what the repository holds."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists():
            (tmp_path / "sources" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "sources" / name)
    return tmp_path / "sources"


def run(*command: object, **environment: str) -> subprocess.CompletedProcess:
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    kept |= {"TENSORMETRICS_CUDA": "0", **environment}
    return subprocess.run([*map(str, command)], capture_output=True, text=True, env=kept, cwd="/")


def wheel_of(sources: Path, *options: str, **environment: str) -> tuple[Path | None, subprocess.CompletedProcess]:
    target = sources.parent / "wheels"
    told = run(*PIP, "wheel", "-q", "--no-deps", "-w", target, *options, sources, **environment)
    return next(target.glob("*.whl"), None), told


def test_one_wheel_serves_every_python(sources, tmp_path):
    wheel, told = wheel_of(sources, "--no-build-isolation", TENSORMETRICS_TESTING="1")
    assert wheel is not None and told.returncode == 0, told
    assert "-py3-none-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.endswith((".so", ".md"))}
        size = sum(archive.getinfo(name).file_size for name in LIBRARIES)
        archive.extractall(tmp_path / "unpacked")
    assert {name for name in held if name.startswith("tensormetrics/")} == LIBRARIES and size < 2.5e6
    for name in LIBRARIES:
        read = run("readelf", "--sections", "--dyn-syms", "-W", tmp_path / "unpacked" / name).stdout
        assert ".dynsym" in read and not any(word in read for word in (" Py", ".debug_info", ".symtab"))
    program = f"""
import ctypes, glob
ctypes.CDLL({str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")!r}, ctypes.RTLD_GLOBAL)
print(len([ctypes.CDLL(path) for path in glob.glob("FOLDER/tensormetrics/_*.so")]))
"""
    tried = []
    for python in filter(None, map(shutil.which, ("python3.10", "python3.11", "python3.12", "python3.13"))):
        if run(python, "--version").returncode == 0:
            folder = tmp_path / Path(python).name
            told = run(python, "-m", "pip", "install", "--no-deps", "--target", folder, wheel)
            assert told.returncode == 0, told
            loaded = run(python, "-c", program.replace("FOLDER", str(folder)))  # needs no torch of this Python
            assert loaded.stdout.strip() == str(len(LIBRARIES)), loaded
            tried.append(Path(python).name)
    assert tried


def test_wheel_installed_elsewhere_has_all_files_and_imports(sources, tmp_path):
    """Without native code, which other tests build."""
    wheel, process = wheel_of(sources, "--no-build-isolation", TENSORMETRICS_NATIVE="0")
    assert wheel is not None, process
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("tensormetrics/")}
    listed = {str(path.relative_to(sources)) for path in (sources / "tensormetrics").rglob("*") if path.is_file()}
    assert packed - {"tensormetrics/_build.json"} == {name for name in listed if not name.endswith(".md")}
    target = tmp_path / "installed"
    assert run(*PIP, "install", "-q", "--no-deps", "--target", target, wheel).returncode == 0
    modules = [name.removesuffix(".py").replace("/", ".") for name in sorted(listed) if name.endswith(".py")]
    program = f"""
import importlib, tensormetrics
assert tensormetrics.__file__.startswith({str(target)!r}), tensormetrics.__file__
for module in {modules!r}:
    try:
        module.endswith("__main__") or importlib.import_module(module.removesuffix(".__init__"))
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] != "triton":
            raise
print(len(tensormetrics.association.load_weat()))
"""
    imported = run(sys.executable, "-W", "ignore", "-c", program, PYTHONPATH=str(target))
    assert imported.stdout.strip() == "31", imported


def test_without_a_compiler_it_installs_and_says_one_line(sources, tmp_path):
    wheel, told = wheel_of(sources, "--no-build-isolation", CC="false", CXX="false")
    assert told.returncode == 0 and wheel is not None, told
    _, line = [line for line in told.stderr.splitlines() if line.startswith("tensormetrics: ")]
    assert line.startswith(f"tensormetrics: not compiled: {', '.join(sorted(native.LIBRARIES))}. ")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "unpacked")
    shown = run(sys.executable, "-m", "tensormetrics", "info", PYTHONPATH=str(tmp_path / "unpacked")).stdout
    assert re.search(r"lsa for CPU: could not be compiled: the compiler failed on csrc/lsa/\w+\.cpp", shown)
    assert "pip install --no-build-isolation" in shown


def test_a_build_that_sees_no_torch_stops_and_says_what_to_type(sources, tmp_path):
    wheel, told = wheel_of(sources)
    if "No matching distribution" in told.stderr or "Connection" in told.stderr:
        pytest.skip("an isolated build needs setuptools from an index")
    assert wheel is None and told.returncode != 0
    assert "pip install --no-build-isolation ." in told.stdout + told.stderr


def test_one_source_less_costs_one_operator(sources):
    build = "sh", "-c", f"cd {sources} && {sys.executable} setup.py build_ext --inplace"
    (sources / "csrc" / "nearest" / "counting_cpu.cpp").unlink()
    assert run(*build).returncode == 0
    again = run(*build)  # no source has changed
    assert again.returncode == 0 and "compiling" not in again.stderr, again
    (sources / "csrc" / "sequence" / "new.cpp").write_text("int unused_by_all = 0;\n")
    assert "compiling sequence;" in run(*build).stderr
    program = """
import warnings, torch
from tensormetrics import retrieval
from tensormetrics.core.native import native
import tensormetrics.assignment, tensormetrics.posterior, tensormetrics.structured
print([name for name in native.OPERATORS if not native.has_kernel(name, "cpu")])
with warnings.catch_warnings(record=True) as told:
    retrieval.TorchKNN().indices(torch.eye(5), 1, torch.eye(5), True)
    print(retrieval.positive_ranks(torch.eye(4), torch.zeros(4, dtype=torch.int64)).rank.tolist())
print(len(told))
"""
    told = run(sys.executable, "-c", program, PYTHONPATH=str(sources))
    assert told.stdout.splitlines() == ["['count_before']", str([[1, 2, 3]] * 4), "1"], told


def test_a_library_that_cannot_be_loaded_costs_itself_alone(tmp_path):
    shutil.copytree(ROOT / "tensormetrics", tmp_path / "tensormetrics", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tensormetrics" / "_sequence.so").write_bytes(b"nothing")
    program = """
from tensormetrics import structured, retrieval
from tensormetrics.core.native import native
print(sorted(native.UNLOADED), native.has_kernel("heaviest_chain", "cpu"), native.has_kernel("update_topk", "cpu"))
"""
    told = run(sys.executable, "-c", program, PYTHONPATH=str(tmp_path))
    assert told.stdout.strip() == "['sequence'] False True", told
