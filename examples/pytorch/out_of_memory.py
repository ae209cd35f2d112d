# SPDX-License-Identifier: Apache-2.0
"""What a PyTorch program under Quarry sees when something is refused: an error that it can catch.

Prints a line for each claim, then a line of JSON; exits with 1 if a claim does not hold, with 77
without a GPU.
"""
import argparse
import json
import pathlib
import sys

import torch

import quarry_allocator

GIB = 1 << 30
failures = 0


def catch(call):
    try:
        call()
    except Exception as error:  # any class: which one is what is shown
        return error
    return None


def claim(holds, text, error=None):
    global failures
    failures += not holds
    said = f": {type(error).__name__}: {str(error).splitlines()[0]}" if error else ""
    print(f"{'ok    ' if holds else 'FAILED'} {text}{said[:240]}", flush=True)


def refuse_too_much(expected):
    error = catch(lambda: torch.empty(4096 * GIB, dtype=torch.uint8, device="cuda"))
    claim(type(error) is expected, "4 TiB are refused", error)
    claim(str(error).startswith("CUDA out of memory. Tried to allocate 4096.00 GiB"), "by name")


def fill_the_limit(expected):
    total = torch.cuda.get_device_properties(0).total_memory
    small = GIB // 16  # room for what the sums below need
    torch.cuda.set_per_process_memory_fraction((8 * GIB + small) / total)
    held = []
    error = None
    while error is None and len(held) < 100:
        error = catch(lambda: held.append(torch.full((GIB // 4,), 1.0, device="cuda")))
    claim(type(error) is expected, f"under a limit of 8 GiB, {len(held)} tensors of 1 GiB", error)
    claim(4 <= len(held) <= 8, "and not before the limit is reached")
    sums = [float(tensor.sum()) for tensor in held]  # exact: powers of two
    claim(sums == [GIB // 4] * len(held), "what was held before is untouched")
    held.pop()
    again = catch(lambda: held.append(torch.full((GIB // 4,), 2.0, device="cuda")))
    claim(again is None, "after one is dropped, one more fits", again)
    torch.cuda.set_per_process_memory_fraction(1.0)


def use_stats_and_cache():
    before = quarry_allocator.memory_stats()["reserved_bytes.all.current"]
    torch.cuda.empty_cache()
    after = quarry_allocator.memory_stats()["reserved_bytes.all.current"]
    claim(after < before, f"empty_cache gives back: {before >> 20} MiB, then {after >> 20}")
    error = catch(lambda: torch.cuda.memory_stats(0))
    claim(error is not None, "torch.cuda.memory_stats is PyTorch's to refuse", error)


def run_out_in_a_capture(expected):
    """What is refused inside a capture does not lose the capture."""
    x = torch.ones(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        before = x + 1
        error = catch(lambda: torch.empty(4096 * GIB, dtype=torch.uint8, device="cuda"))
        after = before * 2
    claim(type(error) is expected, "4 TiB are refused inside a capture", error)
    x.fill_(2)
    graph.replay()
    claim(float(after.sum()) == 6000, "and the graph goes on and replays")


def run_out_in_a_pool(expected):
    if expected is RuntimeError:
        error = catch(torch.cuda.MemPool)
        claim(error is not None, "without libquarry_torch.so a MemPool is refused", error)
        return
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        error = catch(lambda: torch.empty(4096 * GIB, dtype=torch.uint8, device="cuda"))
        sum_after = float(torch.ones(1000, device="cuda").sum())
    claim(type(error) is expected, "4 TiB are refused by a MemPool", error)
    claim(sum_after == 1000, "which goes on")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", help="folder of libquarry.so")
    args = parser.parse_args()
    path = pathlib.Path(quarry_allocator.enable(args.library))
    if not torch.cuda.is_available():
        print("SKIPPED: PyTorch finds no GPU; nothing was tried")
        sys.exit(77)
    has_glue = path.name.startswith("libquarry_torch")
    expected = torch.OutOfMemoryError if has_glue else RuntimeError
    refuse_too_much(expected)
    fill_the_limit(expected)
    use_stats_and_cache()
    run_out_in_a_capture(expected)
    run_out_in_a_pool(expected)
    print(json.dumps({"out_of_memory_class": expected.__name__, "failures": failures}))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
