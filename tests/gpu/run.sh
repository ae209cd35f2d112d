#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs a GPU, in one go: builds with optimisation, runs the tests labelled gpu
# (with "all" every test), and prints a short table last. Usage: bash tests/gpu/run.sh [all]
# QUARRY_GPU_BLOCKS sets how many blocks the integrity test makes (default one million).
set -uo pipefail
cd "$(dirname "$0")/../.."
what=${1:-gpu}
log=${OUT:-/tmp}/gpu-run.log
replays=${OUT:-/tmp}/gpu-replays.txt
: >"$log"
: >"$replays"
table=()

step() { # step NAME COMMAND...: runs it, notes how it ended and how long it took
  local name=$1 start=$SECONDS code=0
  shift
  "$@" >>"$log" 2>&1 || code=$?
  local result=ok
  [ $code -eq 0 ] || result="FAIL $code"
  table+=("$(printf '%-28s %-8s %5d s' "$name" "$result" $((SECONDS - start)))")
  return $code
}

summary() {
  [ -s "$replays" ] && cat "$replays"
  grep -E '^blocks=' "$log"
  grep -E '\*\*\*(Failed|Timeout|Skipped|Exception)|\[  FAILED  \]|error:|tests passed' "$log" |
    sort -u | head -60
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>&1 | head -1
  printf '%s\n' "${table[@]}"
}
trap summary EXIT
if ! nvidia-smi >/dev/null 2>&1; then
  echo "no GPU here (nvidia-smi does not run): nothing was tested"
  trap - EXIT
  exit 77
fi

step configure cmake --preset release -DQUARRY_BUILD_BENCH=ON || { tail -20 "$log"; exit 1; }
step build cmake --build --preset release --parallel "$(nproc)" -- -k 0 ||
  { grep -E "error|FAILED" "$log" | head -40; exit 1; }
failed=0
if [ "$what" = all ]; then
  step "tests without a GPU" ctest --preset release --parallel "$(nproc)" -LE gpu || failed=1
fi
step "tests on the GPU" ctest --preset release -L gpu --verbose || failed=1

# A table for people; the tests above have compared the same figures with the simulated device's.
replay_on_gpu() { # replay_on_gpu OPTION...
  timeout 300 build/release/bin/quarry replay examples/traces/*.csv.gz --driver cuda --touch "$@" \
    --reference examples/traces/pytorch.csv >>"$replays" 2>&1
}
step "replay, GPU in step" replay_on_gpu --in-step --segments || failed=1
step "replay, GPU free" replay_on_gpu || failed=1
exit $failed
