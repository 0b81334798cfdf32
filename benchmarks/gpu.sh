#!/usr/bin/env bash
# Builds tensormetrics on a machine with an NVIDIA GPU and no network, asks it the facts most worth having, then times it
# against its rivals, then tests it there; within 10 minutes, whatever breaks.
#
#     benchmarks/gpu.sh FOLDER        FOLDER gets summary.txt (also printed), log.txt, gpu-expected.md with the measured
#                                     times, and the tables of the benchmarks, each line as it comes
#
# Wanted on the machine: python3 with torch, torchmetrics and numpy, nvcc and g++; better with Triton, Python.h and what
# the tests import: gpu/start.py says what is missing and how it is gone around. Taken along in .gpu/ (which git ignores):
# wheels of packages that the machine lacks, and faiss_sm<NN>.tar.xz, a folder `site` with faiss-gpu for the card, its
# CUDA 12 libraries forwarding to CUDA 13's:
#
#     pip download --no-deps -d .gpu torchmetrics lightning-utilities numpy pytest iniconfig pluggy cattrs tomli_w penman torch-linear-assignment==0.1.0 pytorch-metric-learning
#
# Not yet run on a GPU. With TENSORMETRICS_STAND_IN=1 no card is needed: see gpu/ask.py. TENSORMETRICS_STEPS=facts ends it
# after the facts.
set -uo pipefail

[[ $# == 1 ]] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.." || exit 2
taken=$PWD/.gpu
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
summary=$out/summary.txt
failed=0
export FAILED_TESTS=$work/failed
DEADLINE=565 # seconds from the start
[[ -z ${TENSORMETRICS_STAND_IN:-} ]] || DEADLINE=6000 # a CPU is slow
export OMP_WAIT_POLICY=passive PYTHONUNBUFFERED=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1
export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$PWD/build/triton} # what is compiled once serves all steps
shopt -s nullglob
: >"$out/log.txt"

# step NAME SECONDS COMMAND...: its output goes to log.txt, its outcome and last line to the summary, and what failed
# below that: tests by what they raised, else the last lines.
step() {
  local name=$1 limit=$2 start=$SECONDS status=0 outcome=passed output=$work/$1.txt
  shift 2
  ((limit <= DEADLINE - start)) || limit=$((DEADLINE - start))
  if ((limit < 5)); then
    printf '%-22s %-12s\n' "$name" "no time left" >>"$summary"
    failed=1
    return 1
  fi
  echo "$name: at most $limit s"
  : >"$FAILED_TESTS"
  timeout --signal=INT --kill-after=10 "$limit" "$@" >"$output" 2>&1 || status=$?
  case $status in
    0) ;;
    124 | 137) outcome="out of time" ;;
    *) outcome="failed ($status)" ;;
  esac
  { printf "\n===== %s\n" "$name" && tail -c 3000000 "$output"; } >>"$out/log.txt"
  printf '%-22s %-12s %4d s  %.150s\n' "$name" "$outcome" $((SECONDS - start)) "$(tail -n 1 "$output")" >>"$summary"
  ((status == 0)) && return
  failed=1
  { by_reason || tail -n 6 "$output"; } | cut -c -200 | sed 's/^/    /' >>"$summary"
  return "$status"
}

# Of the tests that failed, the reasons, the most frequent first, each with its first test.
by_reason() {
  awk -F '\t' '
    !($2 in number) { first[$2] = $1 } { number[$2]++ }
    END { for (reason in number) printf "%5d x %.90s; first %s\n", number[reason], reason, first[reason] }
  ' "$FAILED_TESTS" | sort -rn | head -n 12 | grep .
}

finish() {
  printf '\n%s, %d s\n' "$(date -u +%F)" "$SECONDS" >>"$summary"
  head -c 8000 "$summary" >"$work/short" && cp "$work/short" "$summary"
  cat "$summary"
  exit "$failed"
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$summary" 2>/dev/null ||
  echo "nvidia-smi is missing: the card is named below" >"$summary"
export PYTHONPATH=$PWD:$work${PYTHONPATH:+:$PYTHONPATH}
wheels=("$taken"/*.whl)
if ((${#wheels[@]})); then
  step wheels 40 python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$work/wheels" \
    "${wheels[@]}" && export PYTHONPATH=$PYTHONPATH:$work/wheels
fi
timeout 150 python3 -m benchmarks.gpu.start >"$work/start" || {
  echo "$0: $(tail -n 1 "$work/start")" >&2
  exit 2
}
grep -v '^export' "$work/start" | tee -a "$summary"
eval "$(grep '^export .' "$work/start" || :)"

# Triton's compilers and nvcc work side by side. The facts of retrieval need no build, those of the others wait for it.
build() {
  python3 -m benchmarks.gpu.build || TENSORMETRICS_CUDA=1 python3 setup.py -q egg_info build_ext --inplace
}
export -f build
step build $((DEADLINE / 5)) bash -c build &
builder=$!
[[ -n ${TENSORMETRICS_STAND_IN:-} ]] || step warm-up $((DEADLINE / 4)) python3 -m benchmarks.gpu.ask --warm
wait "$builder" || failed=1

[[ -n ${TENSORMETRICS_STAND_IN:-} ]] || step check-gpu 120 python3 -m tensormetrics check-gpu
step facts $((DEADLINE * 6 / 10)) python3 -m benchmarks.gpu.ask --all "$out"
[[ ${TENSORMETRICS_STEPS:-} != facts ]] || finish

# FAISS is used only where its search on the GPU finds what torch finds.
archives=("$taken"/faiss_sm*.tar.xz)
if ((${#archives[@]})) && tar -xJf "${archives[0]}" -C "$work"; then
  with_faiss=$work/site:$PYTHONPATH
  site=$(python3 -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])')
  [[ ! -f $site/nvidia/cu13/lib/libcublas.so.13 ]] || export REAL_CUBLAS=$site/nvidia/cu13/lib/libcublas.so.13
  step faiss 40 env PYTHONPATH="$with_faiss" python3 -m benchmarks.gpu.faiss_search && export PYTHONPATH=$with_faiss
fi

device=cuda quick=()
[[ -z ${TENSORMETRICS_STAND_IN:-} ]] || device=cpu quick=(--quick)
for benchmark in retrieval_gpu:110 assignment:50 validation_hook:60 plain_torch:45 retrieval_clustering:40; do
  name=${benchmark%:*}
  step "$name" "${benchmark#*:}" python3 -m benchmarks --device "$device" ${quick[@]+"${quick[@]}"} --output "$out" --only "$name"
done

# What other packages will give up one day is no concern here. The device fixture of tests/conftest.py takes "cuda" by
# itself; what runs on the GPU comes first, the rest if time is left.
has() { python3 -c "import $1" 2>/dev/null; }
if has pytest; then
  tests=(env OMP_NUM_THREADS=2 python3 -m pytest -p benchmarks.gpu.noted --tb=short --durations=10 --continue-on-collection-errors)
  tests+=(-W default::DeprecationWarning -W default::FutureWarning)
  ! has pytest_timeout || tests+=(--timeout 60 --timeout-method thread)
  ! has xdist || tests+=(-n 4 --max-worker-restart 200)
  on_gpu='cuda or host_copies'
  step gpu-tests 200 "${tests[@]}" -k "$on_gpu"
  step cpu-tests 240 "${tests[@]}" -k "not ($on_gpu)"
fi
finish
