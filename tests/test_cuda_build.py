"""Builds of the CUDA libraries: architectures, versions of nvcc, and warnings about conflicting versions."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tensormetrics._cli.machine import info
from tensormetrics._cli.machine.cuda_build import code_for, conflicts, flags
from tensormetrics.core.native import gpu_kernels, native

ROOT = Path(__file__).parents[1]
LISTED = {  # release of nvcc -> output of nvcc --list-gpu-code from sm_70 on
    "12.6": (70, 72, 75, 80, 86, 87, 89, 90, "90a"),
    "12.8": (70, 72, 75, 80, 86, 87, 89, 90, "90a", 100, "100a", 101, "101a", 120, "120a"),
    "13.0": (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121),
}
NVCC = """#!/bin/sh
case "$1" in
--version) echo "Cuda compilation tools, release RELEASE, VRELEASE.1" ;;
--list-gpu-code) printf 'sm_%s\\n' LISTED ;;
*) echo "$*" >>FOLDER/arguments; while [ "$1" != -o ]; do shift; done; touch "$2" ;;
esac
"""


def write_nvcc(folder: Path, version: str) -> Path:
    """Write a fake nvcc that prints its version and records the arguments of its calls."""
    targets = " ".join(map(str, LISTED[version]))
    nvcc = folder / "nvcc"
    nvcc.write_text(NVCC.replace("RELEASE", version).replace("LISTED", targets).replace("FOLDER", str(folder)))
    nvcc.chmod(0o755)
    return nvcc


def write_driver(folder: Path, version: int) -> None:
    source = folder / "driver.c"
    source.write_text(f"int cuDriverGetVersion(int *version) {{ *version = {version}; return 0; }}")
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", folder / "libcuda.so.1"], check=True)


def build(folder: Path, **environment: str) -> tuple[dict, list[list[str]], subprocess.CompletedProcess]:
    """Run setup.py with the compilers of a folder, and return its record, the calls of nvcc, and the process."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TENSORMETRICS", "TORCH_CUDA"))}
    env |= {"PATH": f"{folder}:{os.environ['PATH']}", "CC": "true", "CXX": "true", "TENSORMETRICS_CUDA": "1"}
    command = [sys.executable, "setup.py", "build_ext", f"--build-lib={folder}/lib", f"--build-temp={folder}/temp"]
    process = subprocess.run(command, cwd=ROOT, env=env | environment, capture_output=True, text=True)
    path, arguments = folder / "lib" / "tensormetrics" / "_build.json", folder / "arguments"
    lines = arguments.read_text().splitlines() if arguments.exists() else []
    return json.loads(path.read_text()) if path.exists() else {}, [line.split() for line in lines], process


@pytest.mark.full
@pytest.mark.parametrize(
    "version, requested, targets",
    [
        ("12.6", "", ["sm_70", "sm_75", "sm_80", "sm_90", "compute_90"]),
        ("12.8", "", ["sm_70", "sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_90"]),
        ("13.0", "", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_90"]),
        ("12.6", "7.0;8.6+PTX 9.0a", ["sm_70", "sm_86", "sm_90a", "compute_86"]),
        ("13.0", "Ampere;Hopper", ["sm_80", "sm_86", "sm_90", "compute_86", "compute_90"]),
    ],
)
def test_build_compiles_for_supported_or_requested_architectures(version, requested, targets, tmp_path):
    write_nvcc(tmp_path, version)
    record, calls, _ = build(tmp_path, TORCH_CUDA_ARCH_LIST=requested)
    assert record["architectures"] == targets and record["cuda"]["nvcc"] == version
    assert sorted(Path(call[-1]).name for call in calls) == ["_dirichlet_cuda.so", "_lsa_cuda.so"]
    for call in calls:
        assert [option for option in call if "arch" in option] == flags(targets)
        assert all(f"code={target}" in option for option, target in zip(flags(targets), targets, strict=True))


@pytest.mark.full
@pytest.mark.parametrize("requested", ["7.0", "8.0;sm_90", "native"])
def test_build_for_unsupported_architecture_names_it(requested, tmp_path):
    write_nvcc(tmp_path, "13.0")
    _, calls, process = build(tmp_path, TORCH_CUDA_ARCH_LIST=requested)
    message = f"TORCH_CUDA_ARCH_LIST: got {requested.rpartition(';')[2]!r}, wanted some of 7.5, 8.0, 8.6, "
    assert process.returncode == 1 and calls == [] and message in process.stderr


@pytest.mark.full
def test_build_with_newer_nvcc_warns_and_records_versions(tmp_path):
    write_nvcc(tmp_path, "13.0")
    write_driver(tmp_path, 12040)
    record, _, process = build(tmp_path, LD_LIBRARY_PATH=str(tmp_path))
    assert record["cuda"] == {"nvcc": "13.0", "torch": torch.version.cuda, "driver": "12.4"}
    assert "tensormetrics: nvcc 13.0 is newer than the driver, which serves CUDA 12.4" in process.stderr


@pytest.mark.parametrize(
    "nvcc, of_torch, driver, sentence",
    [
        (None, "12.8", "12.4", None),
        ("12.8", "13.0", "13.0", None),
        ("12.8", None, None, None),
        ("12.10", "12.8", "12.10", None),
        ("12.10", "12.8", "12.9", "the driver serves CUDA 12.9 and compiles no PTX of nvcc 12.10"),
        ("13.0", "12.8", "12.8", "install a driver for CUDA 13.0 or later, or build with nvcc 12"),
        ("13.0", "12.8", None, "nvcc 13.0 is newer than torch's CUDA 12.8"),
        ("13.0", "12.8", "13.1", None),
    ],
)
def test_conflicts_of_versions_give_one_sentence(nvcc, of_torch, driver, sentence):
    sentences = conflicts(nvcc, of_torch, driver)
    assert len(sentences) == (sentence is not None) and all(sentence in conflict for conflict in sentences)


CODE_FOR = {
    "sm_75": [(7, 5)],
    "sm_80": [(8, 0), (8, 9)],
    "sm_90": [(9, 0)],
    "sm_100a": [(10, 0)],
    "sm_120f": [(12, 1)],
    "compute_90": [(10, 3), (13, 0)],
    "": [(7, 0)],
}


def test_code_for_card_is_of_its_family_or_older_ptx():
    targets = ["sm_75", "sm_80", "sm_90", "sm_100a", "sm_120f", "compute_90", "compute_120f"]
    for code, capabilities in CODE_FOR.items():
        assert [code_for(capability, targets) for capability in capabilities] == [code] * len(capabilities)


def test_info_shows_versions_and_code_for_each_card(tmp_path, monkeypatch):
    write_nvcc(tmp_path, "12.8")
    record, _, _ = build(tmp_path)
    record["cuda"]["nvcc"] = "13.0"
    (tmp_path / "_build.json").write_text(json.dumps(record))
    monkeypatch.setattr(native, "FOLDER", tmp_path)
    monkeypatch.setattr(info.cuda_build, "cuda_of_driver", lambda: "12.4")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")
    cards = [(8, 6), (6, 1), (11, 0)]
    monkeypatch.setattr(gpu_kernels, "capability_of", lambda device: cards[device.index])
    monkeypatch.setattr(gpu_kernels, "answers", lambda device: {})
    text = info.report()
    for line in (
        f"CUDA: nvcc 13.0, torch {torch.version.cuda or 'none'}, driver 12.4",
        "hold code for: sm_70, sm_75, sm_80, sm_90, sm_100, sm_120, compute_90",
        "nvcc 13.0 is newer than the driver, which serves CUDA 12.4",
        "cuda:0: a card, sm_86, which the CUDA libraries were built for, by sm_80",
        "cuda:1: a card, sm_61, which the CUDA libraries hold no code for: TORCH_CUDA_ARCH_LIST=6.1 builds it",
        "cuda:2: a card, sm_110, for which the driver compiles the CUDA libraries' compute_90 at the first use",
    ):
        assert line in text, text
