"""The script for GPU machines, run without a GPU: its messages about missing tools and about faulty kernels."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
FACTS = 24


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.gpu import ask

    return ask


def test_every_fact_has_row_with_expectation(gpu):
    rows = re.findall(r"^\| `([^`]+)` \|.*\| \|$", gpu.EXPECTED.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(gpu.FACTS) and len(rows) == FACTS


def test_filled_table_has_measured_next_to_expected_times(gpu):
    table = "| fact | estimate | measured |\n|---|---|---|\n| `a` | 1 ms | |\n| `b` | 2 ms | |\n| `c` | 3 ms | |\n"
    answers = {"a": "equal         1.250 ms  a note", "b": "differs  3 of 7 entries", "d": "equal 1 ms"}
    expected = table.replace("| `a` | 1 ms | |", "| `a` | 1 ms | 1.250 ms |").replace("2 ms | |", "2 ms | differs |")
    assert gpu.filled(table, answers) == expected


@pytest.mark.parametrize(
    ("program", "seconds", "answer"),
    [
        ("import os; print(flush=True); os.abort()", 5, "failed   status -6"),
        ("print(flush=True)\nwhile True: pass", 0.5, "failed   no answer in 0.5 s"),
        ("print(flush=True); raise OSError('no such card')", 5, "failed   OSError: no such card"),
        # the limit starts at the first line
        ("import time; time.sleep(0.6); print('imported', flush=True); print('equal')", 0.5, "equal"),
    ],
)
def test_run_fact_that_crashes_or_hangs_reports_failure(program, seconds, answer, gpu, monkeypatch):
    monkeypatch.setattr(gpu, "LIMIT", seconds)
    monkeypatch.setattr(gpu, "COMMAND", [sys.executable, "-c", program])
    assert gpu.run_fact("a fact") == answer
    if answer == "equal":
        monkeypatch.setattr(gpu, "COLD_IMPORT", 0.3)
        assert gpu.run_fact("a fact") == "failed   no answer in 0.3 s"


def test_around_finds_nvcc(gpu, monkeypatch, tmp_path):
    from benchmarks.gpu import start

    monkeypatch.setattr(start.shutil, "which", lambda tool: None)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert "nvcc is missing" in "\n".join(start.around()[0])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").touch()
    assert start.around()[1]["PATH"].startswith(f"{tmp_path}/bin:")


def test_refusal_names_missing_package_or_old_torch(gpu, monkeypatch):
    from benchmarks.gpu import start

    monkeypatch.setattr(start, "find_spec", lambda name: None if name == "lightning_utilities" else name)
    assert start.refusal().startswith("missing: lightning-utilities; write pip install lightning-utilities")
    monkeypatch.setattr(start, "find_spec", lambda name: name)
    for version, expected in {"2.10.1+cu128": "torch: got 2.10.1+cu128, wanted 2.11 or later", "2.11.0": ""}.items():
        monkeypatch.setattr(start, "installed", lambda name, version=version: version)
        assert start.refusal() == expected


@pytest.mark.slow
def test_script_without_required_packages_names_them(tmp_path):
    """Without torchmetrics, compilers and nvidia-smi the script ends with one sentence before any test."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    (packages,) = (tmp_path / "bare").glob("lib/python*/site-packages")
    for path in Path(torch.__file__).parents[1].glob("torch*"):
        if path.name.split("-")[0] in ("torch", "torchgen"):
            (packages / path.name).symlink_to(path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "mktemp", "mkdir", "rm", "timeout", "tail", "grep", "tee", "cat", "env"):
        (tools / name).symlink_to(shutil.which(name))
    environment = {"PATH": f"{tmp_path / 'bare' / 'bin'}:{tools}", "HOME": str(tmp_path)}
    script = [shutil.which("bash"), str(ROOT / "benchmarks" / "gpu.sh"), str(tmp_path / "out")]
    process = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=200)
    assert process.returncode == 2 and "missing: torchmetrics, numpy, lightning-utilities" in process.stderr


def test_build_commands_compile_every_source(gpu):
    from benchmarks.gpu import build

    lines = build.commands((12, 0))
    sources = {str(path) for path in (ROOT / "csrc").rglob("*.c*") if path.parent.name != "testing"}
    assert {part for line in lines for part in line if part in sources} == sources
    assert all("-arch=sm_120" in line for line in lines if line[0] == "nvcc")
    assert {Path(line[-1]).name for line in lines if line[0] == "nvcc"} == {"_lsa_cuda.so", "_dirichlet_cuda.so"}


# file -> a line of it, a faulty replacement, and the facts that use the kernel with their expected answers
FAULTS = {
    "dirichlet_lane.h": (
        "tn(j) += factor * summary.sum_without(g);",
        "tn(j) += factor * summary.sum_without(g) * 1.001;",
        {"sampler C10 S1e5": "differs"},
    ),
    "lsa_cuda.cu": (
        "const int64_t with_tiles = Team::kTeams * (sizes.search + sizes.tile);",
        "const int64_t with_tiles = Team::kTeams * (sizes.search + sizes.tile) - (Team::kTeams == 1 ? 64 : 0);",
        {"lsa 208x300x300": "failed", "lsa 208x300x600": "failed"},
    ),
    "association/resampling/kernels.py": ("count += below", "count += below + 1", {"p-values 1e6 x 4096": "differs"}),
}


@pytest.mark.slow
def test_faulty_kernels_fail_only_their_facts(tmp_path, pytestconfig):
    """Faults in CUDA sources and, if Triton is installed to interpret them, in Triton kernels."""
    if shutil.which("nvcc") is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc and g++")
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns(".git", ".*_cache", "build", "__pycache__", "*.md", "_*_cuda.so")
    shutil.copytree(ROOT, copy, ignore=ignored)
    shutil.copytree(ROOT / "benchmarks" / "results", copy / "benchmarks" / "results", dirs_exist_ok=True)
    expected = {}
    for file, (line, fault, facts) in FAULTS.items():
        if file.endswith(".py") and find_spec("triton") is None:
            continue
        (source,) = (path for path in copy.rglob(file) if path.is_file())
        text = source.read_text()
        assert text.count(line) == 1, f"{file} has no line {line!r}"
        source.write_text(text.replace(line, fault))
        expected |= facts
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho a stand-in, 0, 0 MiB\n")
    (tools / "nvidia-smi").chmod(0o755)
    settings = {
        "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TENSORMETRICS_STAND_IN": "1",
        "TENSORMETRICS_PTX_CACHE": str(pytestconfig.cache.mkdir("ptx")),
        "TENSORMETRICS_STEPS": "facts",
    }
    script = [str(copy / "benchmarks" / "gpu.sh"), str(tmp_path / "out")]
    process = subprocess.run(script, env=os.environ | settings, capture_output=True, text=True, timeout=6000)
    summary = (tmp_path / "out" / "summary.txt").read_text()
    assert process.returncode == 1 and summary in process.stdout and len(summary) <= 8000
    answers = dict(re.findall(r"^(\S.{20}\S?) +((?:equal|differs|failed)  .*)$", summary, re.MULTILINE))
    answers = {name.strip(): text for name, text in answers.items()}
    bad = {name: text.split()[0] for name, text in answers.items() if not text.startswith("equal")}
    assert len(answers) == FACTS, summary
    assert bad == expected, summary
    table = (tmp_path / "out" / "gpu-expected.md").read_text()
    assert len(re.findall(r" [\d.]+ ms \|$", table, re.MULTILINE)) == FACTS - len(expected)
    assert len(re.findall(r"\| (?:failed|differs) \|$", table, re.MULTILINE)) == len(expected)
