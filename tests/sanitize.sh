#!/usr/bin/env bash
# Run the tests of native operators with AddressSanitizer and UndefinedBehaviorSanitizer, in a copy of the last commit.
#
#     tests/sanitize.sh [FOLDER OF csrc,...]
#
# Without arguments all CPU libraries are built (minutes); `tests/sanitize.sh sequence` is the smallest.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git clone -q . "$copy"
cd "$copy"
export TENSORMETRICS_SANITIZE=${1:-1} TENSORMETRICS_CUDA=0 TENSORMETRICS_TESTING=0
python setup.py -q build_ext --inplace
export OMP_NUM_THREADS=2 PYTHONPATH=$copy PYTHONMALLOC=malloc
# Python and torch keep memory until they end, and are not built with the sanitizers.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so) $(gcc -print-file-name=libstdc++.so)"
cd tests
python test_operator_arguments.py > "$copy/calls.log"
grep -v ': harmless$' "$copy/calls.log" | grep -v '^end$' && exit 1
tail -n 1 "$copy/calls.log" | grep -qx end
python -m pytest -q -p no:cacheprovider test_operators.py -k "gives_what or the_nearest_of or references_keep or references_list"
