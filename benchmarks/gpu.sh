#!/usr/bin/env bash
# Measures and tests tensormetrics on a machine with an NVIDIA GPU and no network, in steps of a minute or two:
#
#     benchmarks/gpu.sh FOLDER STEP...        all steps if none is named
#
#     build     the libraries for this card and Triton's kernels; FOLDER/built-KEY.tgz serves later calls there, or in .gpu/
#     check     tensormetrics info --gpu
#     facts     operations: equal to the CPU's, milliseconds, memory
#     tests     the tests that use a GPU; TEST_ARGS are more options of pytest, such as "-m full"
#     profile   kernels, launches and waits of each operation
#     rivals    the same work by other packages, in turns
#     updates   each metric's update (host time, launches, waits) and compute
#     ranks     each metric with NCCL on one rank and with gloo on two, against one process
#     counters  Nsight Compute's figures of the kernels
#
# FOLDER/summary.txt, which is also printed, has the outcomes, FOLDER/STEP.txt and FOLDER/STEP.err what a step printed.
# ONLY='knn|lsa' selects cases of facts, profile, rivals, updates, ranks and counters; LIMIT is the most seconds of a step.
#
# The machine needs python3 with torch, torchmetrics and numpy, nvcc and g++; gpu/start.py says what else is missing. Taken
# along in .gpu/ (which git ignores): wheels of packages that the machine lacks, and faiss_sm<NN>.tar.xz, a folder `site`
# with faiss-gpu for the card, its CUDA 12 libraries forwarding to CUDA 13's. With TENSORMETRICS_STAND_IN=1 no card is
# needed: see gpu/facts.py.
set -uo pipefail
shopt -s nullglob

declare -A limits=([build]=120 [check]=90 [facts]=120 [tests]=200 [profile]=100 [rivals]=120 [updates]=90 [ranks]=90 [counters]=90)
steps=(build check facts tests profile rivals updates ranks counters)
(($# > 1)) && steps=("${@:2}")
for step in "${steps[@]}"; do [[ -v limits[$step] ]] || set --; done
(($#)) || { echo "usage: $0 FOLDER [build|check|facts|tests|profile|rivals|updates|ranks|counters]..." >&2; exit 2; }
mkdir -p "$1" && out=$(cd "$1" && pwd) && cd "$(dirname "$0")/.." || exit 2
is_stand_in=${TENSORMETRICS_STAND_IN:-}
export OMP_WAIT_POLICY=passive PYTHONUNBUFFERED=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1
export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$PWD/build/triton} FAILED_TESTS=$out/failed.tsv

wheels=(.gpu/*.whl) archives=(.gpu/faiss_sm*.tar.xz)
if ((${#wheels[@]})) && [[ ! -d .gpu/wheels ]]; then
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target .gpu/wheels "${wheels[@]}"
fi
export PYTHONPATH=$PWD:$PWD/.gpu/wheels${PYTHONPATH:+:$PYTHONPATH}
timeout 150 python3 -m benchmarks.gpu.start "$out" >"$out/machine.txt" || {
  echo "$0: $(tail -n 1 "$out/machine.txt")" >&2
  exit 2
}
eval "$(grep '^export .' "$out/machine.txt")"
{ git log -1 --format='commit %h' 2>/dev/null; grep -v '^export' "$out/machine.txt"; } | tee "$out/summary.txt"

failed=0
for step in "${steps[@]}"; do
  command=(python3 -m benchmarks.gpu "$step" "${ONLY:-}")
  case $step in
    build) command=(python3 -m benchmarks.gpu.build "$out") ;;
    check) command=(python3 -m tensormetrics info --gpu) ;;
    tests) # the device fixture of tests/conftest.py takes "cuda" by itself
      : >"$FAILED_TESTS"
      command=(env OMP_NUM_THREADS=1 python3 -m pytest -p benchmarks.gpu.noted -p no:benchmark --tb=short --durations=25)
      command+=(--continue-on-collection-errors -W default::DeprecationWarning -W default::FutureWarning)
      ! python3 -c 'import pytest_timeout' 2>/dev/null || command+=(--timeout 60 --timeout-method thread)
      ! python3 -c 'import xdist' 2>/dev/null || command+=(-n $(($(nproc) > 3 ? $(nproc) - 2 : 2)) --max-worker-restart 200)
      eval "command+=(-k 'cuda or host_copies' ${TEST_ARGS:-})" ;; # a quoted part of them is one argument
    rivals)
      if ((${#archives[@]})) && [[ ! $is_stand_in ]]; then
        [[ -d .gpu/site ]] || tar -xJf "${archives[0]}" -C .gpu
        site=$(python3 -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])')
        command=(env PYTHONPATH="$PWD/.gpu/site:$PYTHONPATH" REAL_CUBLAS="$site/nvidia/cu13/lib/libcublas.so.13" "${command[@]}")
      fi ;;
    counters)
      command=(python3 -m benchmarks.gpu.counters "${ONLY:-^(knn 60k D128|lsa|sampler|item|gammas)}")
      [[ $is_stand_in ]] || command=(ncu --clock-control none --profile-from-start off -c 40 --section SpeedOfLight
        --section WarpStateStats --section Occupancy --section LaunchStats --section MemoryWorkloadAnalysis
        -k 'regex:register_kernel|memory_kernel|sums_kernel|gamma|_count|_block_minima|_select|_collect|_canonical' "${command[@]}") ;;
  esac
  [[ $step != check || ! $is_stand_in ]] || command=(echo "needs a card")
  limit=${LIMIT:-$((${limits[$step]} * (${#is_stand_in} ? 30 : 1)))} start=$SECONDS status=0 outcome=passed
  text=$out/$step.txt
  timeout --signal=INT --kill-after=10 "$limit" "${command[@]}" >"$text" 2>"$out/$step.err" || status=$?
  case $status in
    0) ;;
    124 | 137) outcome="out of time" ;;
    *) outcome="failed ($status)" ;;
  esac
  {
    last=$(if [[ $step == tests ]]; then grep -E ' in [0-9.]+s' "$text"; else cat "$text"; fi | tail -n 1)
    printf '%-10s %-12s %4d s  %.150s\n' "$step" "$outcome" $((SECONDS - start)) "$last"
    case $step in
      facts | rivals | ranks) grep -v ' cases, ' "$text" ;;
      profile) grep -v -e '^ ' -e ' cases, ' "$text" ;;
      updates) grep -E ' (differs|failed)  ' "$text" ;;
      tests) cut -f 2 "$FAILED_TESTS" | cut -c -90 | sort | uniq -c | sort -rn | head -n 12 ;; # reasons
    esac | sed 's/^/    /'
    ((status == 0)) || tail -n 8 "$out/$step.err" | sed 's/^/    ! /'
  } | cut -c -200 | tee -a "$out/summary.txt"
  ((status == 0)) || failed=1
done
date -u +%F | tee -a "$out/summary.txt"
exit "$failed"
