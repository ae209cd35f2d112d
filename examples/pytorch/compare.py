#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs real models under PyTorch's native allocator and under Quarry, in turn, and compares.

Each run is a process of its own (run_workload.py); the two allocators take turns, and who begins
changes from run to run. Prints time and memory of both (medians), and whether all outputs of all
runs are equal bit for bit. Exits with 1 if they differ or a run failed, with 77 without a GPU.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
WORKLOADS = ("llm", "vision", "training", "graphs", "overlap")


def call(script, arguments, timeout):
    """The JSON that the script printed last; or what went wrong, as text."""
    command = [sys.executable, str(HERE / script), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, f"{script} {' '.join(arguments)}: no end after {timeout} s"
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        return None, f"{script} {' '.join(arguments)}: exit {done.returncode}\n{said}"
    return json.loads(lines[-1]), done.stdout


def describe(result):
    """All that the summary is made of, should the rest be stopped."""
    text = f"{result['seconds']:.3f} s, outputs {result['digest'][:12]}"
    if "graphs" in result:
        text += f", {format_graphs(result)}"
    return text


def format_graphs(figures):
    return (f"{figures['graphs']:.0f} graphs in one pool reserve "
            f"{figures['reserved_by_graphs'] / (1 << 20):.0f} MiB, the largest alone "
            f"{figures['reserved_by_largest_graph'] / (1 << 20):.0f}")


def compare(workload, args):
    results = {name: [] for name in args.names}
    errors = []
    for run in range(args.runs):
        for name in args.names if run % 2 == 0 else args.names[::-1]:
            allocator = "quarry" if name == "quarry" else "native"
            arguments = [workload, "--allocator", allocator, "--device", args.device]
            arguments += ["--size", args.size, "--scale", str(args.scale)]
            if args.library:
                arguments += ["--library", args.library]
            result, text = call("run_workload.py", arguments, args.timeout)
            if result is None:
                errors.append(text)
                print(f"FAILED {text}", flush=True)
                if len(errors) == 2:  # the rest would fail as well
                    return results, errors
            else:
                results[name].append(result)
                print(f"  {workload} {name} {describe(result)}", flush=True)
    return results, errors


def summarize(workload, results, errors):
    summary = {"workload": workload, "errors": errors, "figures": {}}
    digests = {result["digest"] for runs in results.values() for result in runs}
    summary["is_equal"] = not errors and len(digests) == 1
    for name, runs in results.items():
        if not runs:
            continue
        seconds = [result["seconds"] for result in runs]
        figures = {key: statistics.median(result[key] for result in runs)
                   for key in runs[0] if key != "digest"}
        summary["figures"][name] = figures | {
            "fastest": min(seconds), "slowest": max(seconds), "runs": runs}  # fmt: skip
    if len(summary["figures"]) == 2:
        native, other = summary["figures"].values()
        summary["time_ratio"] = other["seconds"] / native["seconds"]
        if "peak_reserved" in native:
            summary["reserved_ratio"] = other["peak_reserved"] / native["peak_reserved"]
    return summary


def format_cells(figures):
    if figures is None:
        return ["-", "-", "-", "-"]
    cells = [f"{figures['seconds']:.3f}", f"{figures['fastest']:.3f}-{figures['slowest']:.3f}"]
    for key in ("peak_allocated", "peak_reserved"):
        cells.append(f"{figures[key] / (1 << 20):.0f}" if key in figures else "-")
    return cells


def print_table(summaries, args):
    heads = ["workload"]
    for name in args.names:
        heads += [f"{name} s", "min-max", "MiB allocated", "MiB reserved"]
    heads += ["time ratio", "reserved ratio", "bit-equal"]
    rows = [heads]
    for summary in summaries:
        row = [summary["workload"]]
        for name in args.names:
            row += format_cells(summary["figures"].get(name))
        for key in ("time_ratio", "reserved_ratio"):
            row.append(f"{summary[key]:.4f}" if key in summary else "-")
        rows.append(row + ["yes" if summary["is_equal"] else "NO"])
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    print(f"\n{args.runs} runs of each, size {args.size}, scale {args.scale}; medians, peaks")
    for row in rows:
        print("| " + " | ".join(cell.rjust(width) for cell, width in zip(row, widths)) + " |")
    for summary in summaries:
        for name, figures in summary["figures"].items():
            if "graphs" in figures:
                print(f"{name}: {format_graphs(figures)}")


def has_gpu():
    probe = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 77)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    if done.returncode != 0:
        print("SKIPPED: this python3 has no PyTorch that finds a GPU; nothing was compared")
        if done.stderr.strip():
            print(done.stderr.strip()[-300:])
    return done.returncode == 0


def positive(text):
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=positive, help="of each model and allocator (default 7)")
    parser.add_argument("--models", default=",".join(WORKLOADS),
                        help="which, with commas (default %(default)s)")
    parser.add_argument("--size", choices=("full", "quick", "tiny"), default="full",
                        help="of the models (default full)")
    parser.add_argument("--scale", type=float, default=1.0, help="times the amount of work")
    parser.add_argument("--quick", action="store_true", help="--size quick --runs 1")
    parser.add_argument("--oom", action="store_true", help="out_of_memory.py, too")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu: only to try the scripts; Quarry takes no part")
    parser.add_argument("--library", default=os.environ.get("QUARRY_LIBRARY_DIR"),
                        help="folder of libquarry.so (default: build/release/lib of this tree)")
    parser.add_argument("--timeout", type=positive, default=120,
                        help="seconds, of each run (default 120)")
    parser.add_argument("--json", help="write all figures to this file")
    args = parser.parse_args()
    if args.quick:
        args.size = "quick"
    # PyTorch's CPU tensors know no other allocator: the native one twice.
    args.names = ("native", "quarry" if args.device == "cuda" else "again")
    args.runs = args.runs or (1 if args.quick else 7)
    unknown = set(args.models.split(",")) - set(WORKLOADS)
    if unknown:
        parser.error(f"--models: no {', '.join(map(repr, sorted(unknown)))}; there are "
                     f"{', '.join(WORKLOADS)}")
    if args.oom and args.device == "cpu":
        parser.error("--oom needs --device cuda")
    if args.json and not pathlib.Path(args.json).absolute().parent.is_dir():
        parser.error(f"--json: no folder for {args.json}")
    return args


def main():
    args = parse_arguments()
    if args.device == "cuda" and not has_gpu():
        sys.exit(77)
    begin = time.monotonic()
    summaries = []
    for model in args.models.split(","):  # what is done stays, should the rest be stopped
        summaries.append(summarize(model, *compare(model, args)))
        print_table(summaries, args)
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(summaries, indent=1) + "\n")
    is_good = all(summary["is_equal"] for summary in summaries)
    if args.oom:
        arguments = ["--library", args.library] if args.library else []
        result, text = call("out_of_memory.py", arguments, args.timeout)
        print(f"\n{text.rstrip()}")
        is_good &= result is not None
    print(f"{'ok' if is_good else 'FAILED'}, {time.monotonic() - begin:.0f} s")
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
