#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the benchmark suites, runs every workload on Quarry and on each peer that is found, and
prints the tables for docs/benchmarks.md; all results go into one JSON file. Needs nothing but
Python. An allocator or a row that cannot run is skipped, and the end of the output says so.

  bench/compare.py                      all, on the GPU
  bench/compare.py --driver sim         Quarry alone on the simulated device; needs no GPU
"""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from comparison_report import Results, render

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Allocator -> its program. Quarry first: the others' ratios are against it.
PROGRAMS = {
    "quarry": "quarry_suite",
    "quarry-locked": "quarry_suite",
    "torch": "quarry_torch_suite",
    "rmm-pool": "quarry_rmm_suite",
    "rmm-arena": "quarry_rmm_suite",
    "cuda-async": "quarry_suite",
    "cuda": "quarry_suite",
    "harness": "quarry_suite",
}
SIMULATED = ("quarry", "quarry-locked", "harness")



def positive(text):
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def pattern(text):
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(error) from error
    return text


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", choices=("cuda", "sim"), default="cuda")
    parser.add_argument("--allocators", help="comma separated; default: all that are found")
    parser.add_argument("--filter", type=pattern,
                        help="only rows that match this regular expression, as pair/512_B")
    parser.add_argument("--rounds", type=positive, default=2,
                        help="processes of each allocator (default %(default)s)")
    parser.add_argument("--repetitions", type=positive, default=3,
                        help="of each row in a process (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.05,
                        help="of a row and repetition (default %(default)s)")
    parser.add_argument("--latency-seconds", type=float, default=0.25,
                        help="at most, of a series (default %(default)s)")
    parser.add_argument("--budget", type=float, default=320,
                        help="for all runs, in seconds (default %(default)s)")
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build/release",
                        help="default: build/release of this tree")
    parser.add_argument("--no-build", action="store_true", help="the programs are there")
    parser.add_argument("--out", type=pathlib.Path,
                        help="folder of the results; default: $OUT, or BUILD_DIR/comparison")
    return parser.parse_args()


def find_prefixes():
    """Where PyTorch and RMM lie in this Python, without importing them."""
    prefixes = [p for p in os.environ.get("CMAKE_PREFIX_PATH", "").split(":") if p]
    for package, subfolder in (("torch", "share/cmake"), ("librmm", ""), ("rapids_logger", "")):
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            continue
        prefixes.append(str(pathlib.Path(spec.submodule_search_locations[0]) / subfolder))
    return prefixes


def build(build_dir):
    prefixes = find_prefixes()
    configure = ["cmake", "--preset", "release", "-B", str(build_dir)]
    if prefixes:
        configure.append("-DCMAKE_PREFIX_PATH=" + ";".join(prefixes))
    run_quietly(configure)
    compile_target = ["cmake", "--build", str(build_dir), "--parallel", str(os.cpu_count() or 2),
                      "--target"]
    run_quietly([*compile_target, "quarry_suite"])
    known = subprocess.run([*compile_target, "help"], capture_output=True, text=True,
                           check=False).stdout
    for target in ("quarry_torch_suite", "quarry_rmm_suite"):
        if target not in known:  # not found at configure time
            (build_dir / "bin" / target).unlink(missing_ok=True)
            continue
        done = subprocess.run([*compile_target, target], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:  # the others are worth measuring all the same
            (build_dir / "bin" / target).unlink(missing_ok=True)
            print(f"== {target} does not build:\n{done.stdout[-3000:]}", file=sys.stderr)


def run_quietly(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def choose(arguments, skipped):
    names = list(PROGRAMS)
    if arguments.allocators:
        names = arguments.allocators.split(",")
        unknown = [name for name in names if name not in PROGRAMS]
        if unknown:
            sys.exit(f"unknown allocators {unknown}; known are {list(PROGRAMS)}")
    chosen = []
    for name in names:
        if arguments.driver == "sim" and name not in SIMULATED:
            skipped.append(f"{name}: the simulated device is for Quarry alone")
        elif not (arguments.build_dir / "bin" / PROGRAMS[name]).exists():
            skipped.append(f"{name}: {PROGRAMS[name]} was not built: its library was not found, "
                           "or does not fit")
        else:
            chosen.append(name)
    return chosen


def run_suite(arguments, name, out, timeout):
    """One process. Returns (Google Benchmark's JSON or None, why not)."""
    out.unlink(missing_ok=True)
    command = [str(arguments.build_dir / "bin" / PROGRAMS[name]), "--allocator", name,
               "--driver", arguments.driver, "--seconds", str(arguments.seconds),
               "--latency-seconds", str(arguments.latency_seconds),
               f"--benchmark_repetitions={arguments.repetitions}",
               f"--benchmark_out={out}", "--benchmark_out_format=json"]
    if arguments.filter:
        command.append(f"--benchmark_filter={arguments.filter}")
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("QUARRY_CONF", "QUARRY_DRIVER", "QUARRY_DISABLE")}
    why = None
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True,
                              timeout=timeout, check=False)
        if done.returncode != 0:
            why = f"status {done.returncode}: {done.stderr.strip()[-400:]}"
    except subprocess.TimeoutExpired:
        why = f"stopped after {timeout:.0f} s"
    return read_results(out), why


def read_results(path):
    """Of a process that was stopped, the rows that it had finished."""
    text = path.read_text() if path.exists() else ""
    whole_rows = text[:text.rfind("\n    }")] + "\n    }]}"
    for candidate in (text, whole_rows):
        try:
            return json.loads(candidate)
        except json.JSONDecodeError:
            continue
    return None


def describe_machine(arguments):
    def first_line(command):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False,
                                  cwd=ROOT)
            return done.stdout.strip().splitlines()[0] if done.returncode == 0 else ""
        except (OSError, IndexError, subprocess.TimeoutExpired):
            return ""
    gpu = first_line(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    model = ""
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {"date": time.strftime("%Y-%m-%d"),
            "gpu": "simulated device" if arguments.driver == "sim" else gpu or "unknown GPU",
            "processor": model, "cores": os.cpu_count(),
            "compiler": first_line(["c++", "--version"]),
            "commit": first_line(["git", "rev-parse", "--short", "HEAD"])}


def main():
    arguments = parse_arguments()
    out = arguments.out or pathlib.Path(os.environ.get("OUT", arguments.build_dir / "comparison"))
    if not arguments.no_build:
        build(arguments.build_dir)
    if not (arguments.build_dir / "bin" / "quarry_suite").exists():
        sys.exit(f"no quarry_suite in {arguments.build_dir / 'bin'}: build it, or leave "
                 "--no-build and --build-dir out")
    runs = arguments.build_dir / "comparison-runs"
    for folder in (out, runs):
        folder.mkdir(parents=True, exist_ok=True)
    skipped, results, reports = [], Results(), []
    names = choose(arguments, skipped)
    machine = describe_machine(arguments)
    deadline = time.monotonic() + arguments.budget
    for turn in range(arguments.rounds):
        for name in names:
            left = deadline - time.monotonic()
            if left < 5:
                skipped.append(f"{name}, round {turn + 1}: the time is used up")
                continue
            start = time.monotonic()
            report, why = run_suite(arguments, name, runs / f"{name}-{turn}.json", min(left, 120))
            print(f"== {name}, round {turn + 1}: {time.monotonic() - start:.0f} s"
                  + (f": {why}" if why else ""), file=sys.stderr, flush=True)
            if why:
                skipped.append(f"{name}, round {turn + 1}: {why}")
            if report is not None:
                results.add(name, report, skipped)
                reports.append({"allocator": name, "round": turn + 1, "report": report})
    text = render(arguments, machine, results, names, skipped)
    with open(out / "comparison.json", "w") as stream:
        json.dump({"machine": machine, "skipped": skipped, "runs": reports}, stream)
    (out / "comparison.md").write_text(text)
    print(text)
    measured = {report["allocator"] for report in reports}
    return 0 if names and names[0] in measured else 1


if __name__ == "__main__":
    sys.exit(main())
