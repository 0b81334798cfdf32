#!/usr/bin/env bash
# Builds tensormetrics on a machine with an NVIDIA GPU and no network, tests it there, and times it; within 10 minutes.
#
#     benchmarks/gpu.sh FOLDER        FOLDER gets summary.txt (also printed), log.txt and the tables of the benchmarks
#
# Wanted on the machine: nvcc, and python3 with torch, torchmetrics, numpy, setuptools, pytest, hypothesis, scipy,
# scikit-learn, pandas, matplotlib, tabulate, pyyaml, click, safetensors and tqdm; better with pytest-xdist and
# pytest-timeout. Taken along in .gpu/ (which git ignores): wheels of packages that the machine lacks, and
# faiss_sm<NN>.tar.xz, a folder `site` with faiss-gpu for the card, its CUDA 12 libraries forwarding to CUDA 13's:
#
#     pip download --no-deps -d .gpu cattrs tomli_w penman torch-linear-assignment==0.1.0 pytorch-metric-learning
#
# summary.txt names what is missing; tests of the command line and of files then fail, and rivals are left out.
#
# Not yet run on a GPU: its steps were run on stand-ins for nvidia-smi and for what torch says of GPUs.
set -uo pipefail

[[ $# == 1 ]] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.." || exit 2
taken=$PWD/.gpu
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
summary=$out/summary.txt
details=$work/details
failed=0
export FAILED_TESTS=$work/failed
DEADLINE=570 # seconds from the start
export OMP_WAIT_POLICY=passive PYTHONUNBUFFERED=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1
shopt -s nullglob
: >"$out/log.txt" >"$details"

# step NAME SECONDS COMMAND...: its output goes to log.txt, its outcome and last line to the summary, and what failed
# below that: tests by what they raised, else the last lines.
step() {
  local name=$1 limit=$2 start=$SECONDS status=0 outcome=passed output=$work/$1.txt
  shift 2
  ((limit <= DEADLINE - start)) || limit=$((DEADLINE - start))
  if ((limit < 5)); then
    printf '%-20s %-12s\n' "$name" "no time left" >>"$summary"
    failed=1
    return 1
  fi
  echo "$name: at most $limit s"
  : >"$FAILED_TESTS"
  timeout --signal=INT --kill-after=15 "$limit" "$@" >"$output" 2>&1 || status=$?
  case $status in
    0) ;;
    124 | 137) outcome="out of time" ;;
    *) outcome="failed ($status)" ;;
  esac
  printf '%-20s %-12s %4d s  %.150s\n' "$name" "$outcome" $((SECONDS - start)) "$(tail -n 1 "$output")" >>"$summary"
  { printf "\n===== %s\n" "$name" && tail -c 3000000 "$output"; } >>"$out/log.txt"
  ((status == 0)) && return
  failed=1
  { printf '\n%s\n' "$name" && { by_reason || tail -n 6 "$output"; } | cut -c -240; } >>"$details"
  return "$status"
}

# Of the tests that failed, the reasons, the most frequent first, each with its first test.
by_reason() {
  awk -F '\t' '
    !($2 in number) { first[$2] = $1 } { number[$2]++ }
    END { for (reason in number) printf "%5d x %.110s; first %s\n", number[reason], reason, first[reason] }
  ' "$FAILED_TESTS" | sort -rn | head -n 20 | grep .
}

finish() {
  printf '\n%s, %d s\n' "$(date -u +%F)" "$SECONDS" >>"$summary"
  cat "$details" >>"$summary"
  head -c 8000 "$summary"
  exit "$failed"
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$summary" || {
  echo "$0: no GPU answers to nvidia-smi" >&2
  exit 2
}
python3 -c 'import torch; print("torch", torch.__version__, "sees", torch.cuda.get_device_name())' >>"$summary" || {
  echo "$0: torch sees no GPU" >&2
  exit 2
}

export PYTHONPATH=$PWD:$work${PYTHONPATH:+:$PYTHONPATH}
wheels=("$taken"/*.whl)
if ((${#wheels[@]})); then
  step wheels 60 python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$work/wheels" \
    "${wheels[@]}" && export PYTHONPATH=$PYTHONPATH:$work/wheels
fi

has() { python3 -c "import $1" 2>/dev/null; }

python3 - >>"$summary" <<'PYTHON'
from importlib.util import find_spec

USES = {
    "the tests": "pytest xdist pytest_timeout hypothesis scipy sklearn pandas matplotlib",
    "tests of tables and files": "tabulate yaml tomli_w penman",
    "the command line": "click cattrs safetensors tqdm",
    "the benchmarks": "torch_linear_assignment pytorch_metric_learning triton",
}
for use, names in USES.items():
    if missing := [name for name in names.split() if find_spec(name) is None]:
        print(f"missing for {use}: {', '.join(missing)}")
PYTHON

build() {
  TENSORMETRICS_CUDA=1 python3 setup.py egg_info build_ext --inplace && ls tensormetrics/_C{,_cuda}.*
}
export -f build
step build 200 bash -c build

# FAISS is used only where its search on the GPU finds what torch finds.
archives=("$taken"/faiss_sm*.tar.xz)
if ((${#archives[@]})) && tar -xJf "${archives[0]}" -C "$work"; then
  with_faiss=$work/site:$PYTHONPATH
  site=$(python3 -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])')
  [[ ! -f $site/nvidia/cu13/lib/libcublas.so.13 ]] || export REAL_CUBLAS=$site/nvidia/cu13/lib/libcublas.so.13
  step faiss 60 env PYTHONPATH="$with_faiss" python3 - <<'PYTHON' && export PYTHONPATH=$with_faiss
import torch
import faiss

queries, references = torch.randn(500, 64), torch.randn(5000, 64)
index = faiss.GpuIndexFlatL2(faiss.StandardGpuResources(), 64)
index.add(references.numpy())
distances, found = index.search(queries.numpy(), 10)
wanted = torch.cdist(queries.double(), references.double()).square()
nearest = wanted.topk(10, largest=False)
agreement = (torch.from_numpy(found) == nearest.indices).double().mean().item()
assert agreement > 0.999, f"{agreement:.4%} of the neighbours agree"
torch.testing.assert_close(torch.from_numpy(distances).double(), nearest.values, rtol=1e-4, atol=1e-4)
print(f"faiss {faiss.__version__}: {agreement:.4%} of the neighbours agree with torch")
PYTHON
fi

# Failures are noted as they come, for a run that is cut off says nothing of them. After a kernel that reads or writes
# elsewhere every later call of its process fails: xdist then starts another one.
cat >"$work/noted.py" <<'PYTHON'
import os

import pytest
import torch

WORKER = "PYTEST_XDIST_WORKER" in os.environ


def note(report):
    if report.failed and not WORKER:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = (crash.message if crash else str(report.longrepr)).splitlines()[0]
        reason = "its process ended" if reason.startswith("worker ") else reason
        with open(os.environ["FAILED_TESTS"], "a") as file:
            print(report.nodeid, reason, sep="\t", file=file)


pytest_runtest_logreport = pytest_collectreport = note


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    result = yield
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        if WORKER:
            os._exit(1)
    return result
PYTHON

# What other packages will give up one day is no concern here. The device fixture of tests/conftest.py takes "cuda" by
# itself; what runs on the GPU comes first, the rest if time is left.
tests=(env OMP_NUM_THREADS=2 python3 -m pytest -p noted --tb=short --durations=10 --continue-on-collection-errors)
tests+=(-W default::DeprecationWarning -W default::FutureWarning)
! has pytest_timeout || tests+=(--timeout 100 --timeout-method thread)
workers=()
! has xdist || workers=(-n 8 --max-worker-restart 200)
on_gpu='cuda or host_copies'
step gpu-tests 200 "${tests[@]}" -k "$on_gpu" ${workers[@]+"${workers[@]}"}
for benchmark in retrieval_gpu:150 assignment:75 plain_torch:60 retrieval_clustering:45; do
  name=${benchmark%:*}
  step "$name" "${benchmark#*:}" python3 -m benchmarks --device cuda --output "$out" --only "$name"
done

# Wrong addresses and races, where a checker is there and works. Torch must ask for each tensor's memory by itself, or
# what lies behind a tensor is another one of its own.
if command -v compute-sanitizer >/dev/null; then
  few='cuda and (hand_worked or strided_input or tiny_concentrations or item_sums or other_dtypes)'
  for tool in memcheck racecheck; do
    step "$tool" 45 env PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "${tests[@]}" -k "$few" tests/assignment/test_solver.py tests/posterior/test_posterior_kernels.py
  done
fi
step cpu-tests 240 "${tests[@]}" -k "not ($on_gpu)" ${workers[@]+"${workers[@]}"}
finish
