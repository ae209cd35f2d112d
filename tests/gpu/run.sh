#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What needs a GPU, or a machine with many cores, in one go: builds, runs, and prints a short table
# last. A step that fails does not stop the others. Usage: bash tests/gpu/run.sh [PART...]
#   gpu       the tests labelled gpu (with replay the default)
#   replay    the recorded traces on the device, as tables
#   torch     examples/pytorch/compare.py, 7 runs of each model and allocator: about 10 minutes
#   facts     what docs/driver-facts.md holds, measured, into $OUT/driver-facts.md (and .json)
#   all       every test that needs no GPU, then gpu, then replay
#   sanitize  the integrity test with few blocks under compute-sanitizer: clean, errors, or why it
#             did not start (some machines do not permit it)
#   tsan      the tests that need no GPU, under ThreadSanitizer
# QUARRY_GPU_BLOCKS sets how many blocks the integrity test makes (default one million).
# To add a part: a function part_NAME below, made of steps, and a line above.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
log=${OUT:-/tmp}/gpu-run.log
facts=${OUT:-/tmp}/driver-facts
replays=${OUT:-/tmp}/gpu-replays.txt
table=()
failed=0

note() { # note NAME RESULT SECONDS
  table+=("$(printf '%-32s %-14s %5d s' "$1" "$2" "$3")")
}

step() { # step NAME COMMAND...: runs it, notes how it ended and how long it took
  local name=$1 start=$SECONDS code=0
  shift
  echo "=== $name: $*" >>"$log"
  "$@" >>"$log" 2>&1 || code=$?
  local result=ok
  case $code in
    0) ;;
    77) result=skipped ;;
    *) result="FAIL $code"; failed=1 ;;
  esac
  note "$name" "$result" $((SECONDS - start))
  return $code
}

built=""
build() { # build PRESET [CMAKE_OPTION...]: configures and builds, once
  local preset=$1
  shift
  case " $built " in *" $preset "*) return 0 ;; esac
  built="$built $preset"
  step "configure $preset" cmake --preset "$preset" "$@" || return 1
  step "build $preset" cmake --build --preset "$preset" --parallel "$(nproc)" -- -k 0
}

# Its exit code is 1 where a setting of this machine hurts, which is no failure of Quarry's.
doctor() {
  local code=0
  build/release/bin/quarry doctor >>"$replays" 2>&1 || code=$?
  [ $code -le 1 ]
}

part_gpu() {
  build release -DQUARRY_BUILD_BENCH=ON
  step "quarry doctor" doctor
  step "tests on the GPU" timeout 420 ctest --preset release -L gpu --verbose
}

# A table for people; the tests have compared the same figures with the simulated device's.
replay_on_gpu() { # replay_on_gpu OPTION...
  timeout 300 build/release/bin/quarry replay examples/traces/*.csv.gz --driver cuda --touch "$@" \
    --reference examples/traces/pytorch.csv >>"$replays" 2>&1
}

part_replay() {
  build release -DQUARRY_BUILD_BENCH=ON
  step "replay, GPU in step" replay_on_gpu --in-step --segments
  step "replay, GPU free" replay_on_gpu
}

part_torch() {
  build release -DQUARRY_BUILD_BENCH=ON
  local model
  for model in vision training llm graphs; do
    step "PyTorch $model, 7 runs" timeout 300 python3 examples/pytorch/compare.py \
      --models "$model" --json "${OUT:-/tmp}/torch-$model.json"
  done
}

measure_facts() {
  timeout 580 build/release/bin/quarry_driver_facts --markdown --json "$facts.json" >"$facts.md"
}

part_facts() {
  step "configure release" cmake --preset release -DQUARRY_BUILD_BENCH=ON
  step "build driver facts" cmake --build --preset release --target quarry_driver_facts
  step "driver facts" measure_facts
  grep -E '\| (holds|\*\*does not hold\*\*) \||^- not measured' "$facts.md"
}

part_all() {
  build release -DQUARRY_BUILD_BENCH=ON
  step "tests without a GPU" ctest --preset release --parallel "$(nproc)" -LE gpu
  part_gpu
  part_replay
}

sanitize() { # sanitize TOOL: the integrity test with few blocks; notes what came of it
  local tool=$1 start=$SECONDS code=0 out
  out=$(mktemp)
  QUARRY_GPU_BLOCKS=${QUARRY_SANITIZE_BLOCKS:-2000} timeout 240 compute-sanitizer --tool "$tool" \
    --error-exitcode 86 build/release/bin/gpu_integrity_test \
    --gtest_filter='*OneThread*:*EightThreads*:*LittleMemory*' >"$out" 2>&1 || code=$?
  { echo "=== compute-sanitizer $tool: exit $code"; cat "$out"; } >>"$log"
  local result="did not start"
  if grep -q '^blocks=' "$out"; then
    result="errors"
    [ $code -eq 0 ] && grep -q 'ERROR SUMMARY: 0 errors' "$out" && result=clean
    [ $code -eq 124 ] && result="out of time"
  fi
  [ "$result" = clean ] || sanitizer_says+=("$tool: $result (exit $code): $(grep -vE \
    '^blocks=|^\[|^Running|^Note|^$' "$out" | head -8 | tr '\n' ' ')")
  case "$result" in errors) failed=1 ;; esac
  note "compute-sanitizer $tool" "$result" $((SECONDS - start))
  rm -f "$out"
}
sanitizer_says=()

# Not racecheck, which is about shared memory: the kernels use none.
part_sanitize() {
  build release -DQUARRY_BUILD_BENCH=ON
  export PATH="$PATH:/usr/local/cuda/bin"
  if ! command -v compute-sanitizer >/dev/null; then
    note "compute-sanitizer" "not installed" 0
    return
  fi
  sanitize memcheck
  sanitize initcheck
}

part_tsan() {
  build tsan
  step "tests under ThreadSanitizer" ctest --preset tsan --parallel "$(nproc)"
}

summary() {
  [ -s "$replays" ] && cat "$replays"
  grep -E '^([0-9]+: )?(blocks=|captures=|C[0-9]+ )' "$log" | sed -E 's/^[0-9]+: //'
  awk '/trial=.* words_compared=/ {
    sub(/.*words_compared=/, ""); sub(/wrong=/, ""); words += $1; wrong += $2
  } END { if (words) printf "aliases: %.0f words compared, %d wrong\n", words, wrong }' "$log"
  grep -E '\| +(workload|llm|vision|training|graphs) \||(^|: )(ok|FAILED)  |graphs in one pool' \
    "$log" | sed -E 's/^[0-9]+: //' | awk '!seen[$0]++'
  grep -E '\*\*\*(Failed|Timeout|Skipped|Exception)|\[  FAILED  \]|error:|tests passed' "$log" |
    sort -u | head -60
  grep -E 'SUMMARY: ThreadSanitizer' "$log" | sort | uniq -c | head -20
  printf '%s\n' "${sanitizer_says[@]}"
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>&1 | head -1
  printf '%s\n' "${table[@]}"
}

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
  sed -n '3,/^set /{/^set /d; s/^# \{0,1\}//p}' "$0"
  exit 0
fi
[ $# -gt 0 ] || set -- gpu replay
for part in "$@"; do
  if ! declare -F "part_$part" >/dev/null; then
    echo "unknown part $part; there are:$(declare -F | sed -n 's/.* part_/ /p' | tr -d '\n')"
    exit 2
  fi
done
if ! nvidia-smi >/dev/null 2>&1; then
  echo "no GPU here (nvidia-smi does not run): nothing was tested"
  exit 77
fi
: >"$log"
: >"$replays"
trap summary EXIT
for part in "$@"; do
  "part_$part"
done
exit $failed
