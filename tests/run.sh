#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Quarry and runs all CPU tests. Usage: bash tests/run.sh [PRESET...]; default: dev.
# Presets: dev, release, ci, asan, tsan (CMakePresets.json). Installs nothing: see the README.
set -euo pipefail
cd "$(dirname "$0")/.."

presets=("$@")
if [ ${#presets[@]} -eq 0 ]; then presets=(dev); fi
jobs=${QUARRY_JOBS:-$(nproc)}

for preset in "${presets[@]}"; do
  echo "== $preset: configure and build"
  cmake --preset "$preset" >"/tmp/quarry-configure-$$.log" 2>&1 ||
    { cat "/tmp/quarry-configure-$$.log"; exit 1; }
  rm -f "/tmp/quarry-configure-$$.log"
  cmake --build --preset "$preset" --parallel "$jobs"
  echo "== $preset: test"
  ctest --preset "$preset" --parallel "$jobs"
done
if ! command -v nvidia-smi >/dev/null 2>&1; then
  echo "== no GPU on this machine: the tests labelled 'gpu' were NOT run"
fi
