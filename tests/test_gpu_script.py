"""The script for GPU machines, run without a GPU: its steps by name, what it keeps, and its words about faults."""

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
SCRIPT = ROOT / "benchmarks" / "gpu.sh"
STEPS = "build check facts tests profile rivals updates ranks counters".split()
STAND_IN = {"TENSORMETRICS_STAND_IN": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.fixture(autouse=True)
def root(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def run(*arguments, script=SCRIPT, **settings):
    command = [shutil.which("bash"), str(script), *map(str, arguments)]
    environment = os.environ | STAND_IN | settings
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=6000)


def test_every_case_has_row_with_a_result_or_not_yet_run():
    from benchmarks.gpu import facts, rivals

    text = (ROOT / "benchmarks" / "results" / "gpu.md").read_text()
    table = text[text.index("## Times") : text.index("## Counters")]
    rows = {row[1]: row[2].split(" | ") for row in re.finditer(r"^\| `([^`]+)` \| (.*) \|$", table, re.MULTILINE)}
    assert rows.keys() == facts.FACTS.keys() | rivals.ROWS.keys()
    for name, (_, ours, rival, floor, card, expected) in rows.items():
        assert re.search(r"\d|not yet run", ours) and floor and card in ("A", "-") and expected, name
        assert re.search(r"\d|not yet run", rival) or name not in rivals.ROWS, name


BROKEN = """
import os, sys, time, types

class Different(Exception): ...

def raises(error): raise error

def lose_context():
    cuda = types.SimpleNamespace(is_initialized=lambda: True, synchronize=lambda: raises(RuntimeError("lost")))
    sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
    raise RuntimeError("CUDA error: an illegal memory access")

CASES = {
    "good": lambda: "equal",
    "aborts": os.abort,
    "talks": lambda: print("a word of a package") or "equal",
    "hangs": lambda: time.sleep(100),
    "raises": lambda: raises(OSError("no such card")),
    "differs": lambda: raises(Different("3 of 7 entries")),
    "loses the context": lose_context,
    "comes after": lambda: f"equal {'torch' in sys.modules}",
}
"""


@pytest.mark.full
def test_cases_that_crash_or_hang_fail_alone(monkeypatch, tmp_path):
    from benchmarks.gpu import __main__ as gpu

    (tmp_path / "broken_cases.py").write_text(BROKEN)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(tmp_path)]))
    monkeypatch.setattr(gpu, "CASE", 2)
    assert dict(gpu.answers("broken_cases")) == {
        "good": "equal",
        "aborts": "failed   status -6",
        "talks": "equal",
        "hangs": "failed   no answer in 2 s",
        "raises": "failed   OSError: no such card",
        "differs": "differs  3 of 7 entries",
        "loses the context": "failed   RuntimeError: CUDA error: an illegal memory access",
        "comes after": "equal False",  # in a new process
    }
    assert dict(gpu.answers("broken_cases", "^good|talks")) == {"good": "equal", "talks": "equal"}
    assert [*gpu.answers("no_such_step")] == [("no_such_step", "failed   status 1")]


def test_kept_build_serves_equal_sources_alone(monkeypatch, tmp_path):
    from benchmarks.gpu import build

    kernels = "tensormetrics/retrieval/search/kernels/nearest.py"
    files = {"setup.py": "", "csrc/lsa/lsa.h": "one", kernels: "import triton"}
    built = {"tensormetrics/_lsa.so": "code", "build/triton/kernel/cubin": "code"}
    for name, text in (files | built).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    kept = build.keep(tmp_path, tmp_path)
    for name in built:
        (tmp_path / name).unlink()
    assert build.restored([tmp_path / "nothing", tmp_path], tmp_path) == kept
    assert all((tmp_path / name).read_text() == "code" for name in built)
    for name in files:
        (tmp_path / name).write_text("import triton  # another kernel")
        assert build.restored([tmp_path], tmp_path) is None
        (tmp_path / name).write_text(files[name])
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert build.restored([tmp_path], tmp_path) is None


@pytest.mark.full
def test_named_steps_run_in_order_with_the_selected_cases(tmp_path):
    process = run(tmp_path / "out", "facts", "check", ONLY="knn 60k D128 k10$")
    assert process.returncode == 0, process.stdout + process.stderr
    lines = r"^facts +passed .* 1 cases, 0 failed\n +knn 60k D128 k10 +equal .*\ncheck +passed"
    assert re.search(lines, process.stdout, re.MULTILINE)
    assert process.stdout == (tmp_path / "out" / "summary.txt").read_text()


@pytest.mark.slow
def test_all_steps_pass_with_the_stand_in(tmp_path, pytestconfig):
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    cache = str(pytestconfig.cache.mkdir("ptx"))
    arguments = "tests/test_gpu_script.py -n 0 -k 'kept_build or around'"
    only = "knn 60k D128 k10$|lsa 64x100x20|HitRate|uncertainty"
    process = run(tmp_path / "out", TENSORMETRICS_PTX_CACHE=cache, TEST_ARGS=arguments, ONLY=only)
    outcomes = re.findall(r"^(\w+) +passed ", process.stdout, re.MULTILINE)
    assert process.returncode == 0 and outcomes == STEPS, process.stdout + process.stderr


@pytest.mark.slow
def test_script_without_required_packages_names_them(tmp_path):
    """Without torchmetrics, compilers and nvidia-smi the script ends with one sentence before any step."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    (packages,) = (tmp_path / "bare").glob("lib/python*/site-packages")
    for path in Path(torch.__file__).parents[1].glob("torch*"):
        if path.name.split("-")[0] in ("torch", "torchgen"):
            (packages / path.name).symlink_to(path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "mkdir", "timeout", "tail", "grep", "tee", "cat", "env"):
        (tools / name).symlink_to(shutil.which(name))
    environment = {"PATH": f"{tmp_path / 'bare' / 'bin'}:{tools}", "HOME": str(tmp_path)}
    script = [shutil.which("bash"), str(SCRIPT), str(tmp_path / "out"), "facts"]
    process = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=200)
    assert process.returncode == 2 and "missing: torchmetrics, numpy, lightning-utilities" in process.stderr


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
    expected = {}
    for file, (line, fault, facts) in FAULTS.items():
        if file.endswith(".py") and find_spec("triton") is None:
            continue
        (source,) = (path for path in copy.rglob(file) if path.is_file())
        text = source.read_text()
        assert text.count(line) == 1, f"{file} has no line {line!r}"
        source.write_text(text.replace(line, fault))
        expected |= facts
    cache = str(pytestconfig.cache.mkdir("ptx"))
    process = run(tmp_path / "out", "facts", script=copy / "benchmarks" / "gpu.sh", TENSORMETRICS_PTX_CACHE=cache)
    text = (tmp_path / "out" / "facts.txt").read_text()
    answers = dict(re.findall(r"^(\S.{41}) (equal|differs|failed) ", text, re.MULTILINE))
    from benchmarks.gpu import facts

    assert process.returncode == 1 and {name.strip() for name in answers} == facts.FACTS.keys() - {
        "probe tensor core"
    }, text
    assert {name.strip(): word for name, word in answers.items() if word != "equal"} == expected, text
