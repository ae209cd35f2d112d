#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh Debian 12 to a table: installs what is missing (after saying so), builds the command
# line tool, and replays the recorded traces of examples/traces on a simulated GPU. No GPU needed.
# Run it as root, or as a user who may use sudo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(g++ cmake ninja-build libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev
          zlib1g-dev)

list_missing_packages() {
  local package
  for package in "${packages[@]}"; do
    if [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]]; then
      echo "$package"
    fi
  done
}

if ! command -v dpkg-query >/dev/null; then
  echo "quickstart: this script installs Debian packages, and this is not a Debian." >&2
  echo "quickstart: install the likes of ${packages[*]}, then build as README.md says." >&2
  exit 1
fi

mapfile -t missing < <(list_missing_packages)
if ((${#missing[@]} > 0)); then
  echo "== Installing ${missing[*]}"
  as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      echo "quickstart: neither root nor sudo; ask somebody to install: ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

echo "== Building build/quickstart/bin/quarry"
# The release preset, in a folder of its own: it leaves out the tests, which need more packages.
cmake --preset release -B build/quickstart -DQUARRY_BUILD_TESTS=OFF -DQUARRY_BUILD_BENCH=OFF \
  --log-level=WARNING >/dev/null
cmake --build build/quickstart --target quarry

echo
echo "== Replaying the recorded traces on a simulated H200, beside what PyTorch reserved"
exec build/quickstart/bin/quarry replay examples/traces/*.csv.gz \
  --reference examples/traces/pytorch.csv
