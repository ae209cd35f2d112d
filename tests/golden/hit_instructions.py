#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of a malloc and a free that the cache serves, under callgrind, and
compares them with the golden figure. Exits with 77, which CTest shows as skipped, where valgrind
is missing. Usage: hit_instructions.py PROGRAM GOLDEN COMPILER"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PAIRS = 20_000
SAME_COMPILER = 0.01  # what the C runtime's version may add
OTHER_COMPILER = 0.15


def count_instructions(program, pairs):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", program,
             str(pairs)], capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"{program} {pairs} under valgrind: status {done.returncode}\n{done.stderr}")
    return int(found.group(1))


def main():
    program, golden_path, compiler = sys.argv[1:]
    if shutil.which("valgrind") is None:
        print("SKIPPED: the instructions of a hit are NOT checked, since valgrind is not here")
        return 77
    lines = pathlib.Path(golden_path).read_text().splitlines()
    golden_compiler, golden = next(line for line in lines if not line.startswith("#")).split()
    golden = float(golden)
    # What comes before the pairs is in both runs.
    figure = (count_instructions(program, 2 * PAIRS) - count_instructions(program, PAIRS)) / PAIRS
    tolerance = SAME_COMPILER if compiler == golden_compiler else OTHER_COMPILER
    print(f"{figure:.1f} instructions a malloc and free, built by {compiler}; golden: "
          f"{golden:.1f} ({golden_compiler}), tolerance {tolerance:.0%}")
    if abs(figure - golden) <= tolerance * golden:
        return 0
    print(f"If that is on purpose, the last line of {golden_path} becomes:\n"
          f"{compiler} {figure:.1f}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
