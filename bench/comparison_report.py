# SPDX-License-Identifier: Apache-2.0
"""What the suites that compare.py ran have measured, as the tables of docs/benchmarks.md. Runs
nothing itself."""

import statistics

LEGEND = """\
quarry: the C API of libquarry.so with its defaults; quarry-locked: with thread_cache:False;
torch: PyTorch's caching allocator through C++; rmm-pool, rmm-arena: RMM over cudaMalloc;
cuda-async: cudaMallocAsync, default pool, release threshold at its maximum; cuda: cudaMalloc and
cudaFree; harness: no allocator, the cost of the workload itself (included in every column)."""
SKIPPED_SHOWN = 20
PERCENTILES = ("p50", "p99", "p99.9", "p99.999", "p100")


def row_of(result):
    """The row's name without what Google Benchmark appends, and its number of threads."""
    parts = [part for part in result["run_name"].split("/")
             if not part.startswith(("min_time:", "iterations:", "threads:", "repeats:"))
             and part not in ("real_time", "manual_time")]
    return "/".join(parts), result.get("threads", 1)


class Results:
    def __init__(self):
        self.pairs = {}      # (row, threads) -> allocator -> [pair_ns]
        self.latencies = {}  # row -> allocator -> [{counter: value}]

    def add(self, name, report, skipped):
        for result in report["benchmarks"]:
            if result.get("run_type") != "iteration":
                continue
            row, threads = row_of(result)
            if result.get("error_occurred") or result.get("skipped"):
                text = (result.get("error_message") or result.get("skip_message") or "?")
                note = f"{name}: {row}, {threads} threads: "
                if not any(known.startswith(note) for known in skipped):
                    skipped.append(note + text.splitlines()[0][:100])
            elif row.startswith("latency/"):
                self.latencies.setdefault(row, {}).setdefault(name, []).append(result)
            else:
                self.pairs.setdefault((row, threads), {}).setdefault(name, []).append(
                    result["pair_ns"])


def figure(ns):
    return f"{ns:,.0f}" if ns >= 10 else f"{ns:.1f}"


def short(ns):
    if ns < 9_999.5:
        return f"{ns:.0f}"
    return f"{ns / 1000:.0f}k" if ns < 999_500 else f"{ns / 1e6:.1f}M"


def print_table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def pair_table(results, names):
    rows = []
    for (row, threads), cells in results.pairs.items():
        line = [row.replace("_", " ") + (f", {threads} threads" if threads > 1 else "")]
        base = statistics.median(cells["quarry"]) if "quarry" in cells else None
        for name in names:
            values = cells.get(name)
            if not values:
                line.append("-")
                continue
            median = statistics.median(values)
            text = f"{figure(median)} [{figure(min(values))}-{figure(max(values))}]"
            if base and name not in ("quarry", "harness"):
                text += f" {median / base:.2g}x" if median < 100 * base else \
                        f" {median / base:,.0f}x"
            line.append(text)
        rows.append(line)
    rows += flatness(results, names)
    return print_table(["ns a pair and thread", *names], rows)


def flatness(results, names):
    few = results.pairs.get(("churn/1024_live_among_64_holes", 1), {})
    many = results.pairs.get(("churn/1024_live_among_65536_holes", 1), {})
    if not few or not many:
        return []
    line = ["that churn: 65536 holes over 64"]
    for name in names:
        line.append(f"{statistics.median(many[name]) / statistics.median(few[name]):.2f}"
                    if name in few and name in many else "-")
    return [line]


def latency_table(results, names):
    rows = []
    for row, cells in results.latencies.items():
        for call in ("malloc", "free"):
            line = [row.removeprefix("latency/").replace("_", " ") + ": " + call]
            for name in names:
                series = cells.get(name)
                if not series:
                    line.append("-")
                    continue
                middle = [statistics.median(one[f"{call}_{p}"] for one in series)
                          for p in PERCENTILES[:-1]]
                worst = max(one[f"{call}_p100"] for one in series)
                line.append(" ".join(short(value) for value in [*middle, worst]))
            rows.append(line)
    return print_table(["ns a call: " + " ".join(PERCENTILES), *names], rows)


def latency_notes(results, names):
    notes = []
    for name in names:
        series = [one for cells in results.latencies.values() for one in cells.get(name, [])]
        if series:
            fewest = min(one["samples"] for one in series)
            most = max(one["samples"] for one in series)
            notes.append(f"{name} {fewest:,.0f}-{most:,.0f}")
            clock = statistics.median(one["clock_ns"] for one in series)
    if not notes:
        return ""
    return (f"Calls in a series: {'; '.join(notes)}. Reading the clock takes {clock:.1f} ns, "
            "which is subtracted.\nMedians over the series; p100 is the worst of all.\n")


def render(arguments, machine, results, names, skipped):
    told = ", ".join(part for part in (
        machine["date"], machine["gpu"], machine["processor"],
        f"{machine['cores']} cores", machine["compiler"], machine["commit"]) if part)
    total = arguments.rounds * arguments.repetitions
    text = f"{told}; `bench/compare.py`. Median [least-most] of {total} measurements "
    text += f"({arguments.rounds} processes); x: times Quarry's.\n\n{LEGEND}\n\n"
    if results.pairs:
        text += pair_table(results, names) + "\n"
    if results.latencies:
        text += latency_table(results, names) + "\n" + latency_notes(results, names)
    if not results.pairs and not results.latencies:
        text += "No row was measured" + (f"; does {arguments.filter!r} match any?\n"
                                         if arguments.filter else ".\n")
    if skipped:
        text += "\nSKIPPED:\n" + "".join(f"- {note}\n" for note in skipped[:SKIPPED_SHOWN])
        if len(skipped) > SKIPPED_SHOWN:
            text += f"- and {len(skipped) - SKIPPED_SHOWN} more, in comparison.json\n"
    return text
