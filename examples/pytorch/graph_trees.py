# SPDX-License-Identifier: Apache-2.0
"""Graph trees under Quarry: a pool that goes back to an earlier layout, and torch.compile on it.

First by hand, as PyTorch's own tests do it, then by torch.compile(mode="reduce-overhead"). Its
results are compared with eager ones bit for bit: all numbers are small whole ones, so that the
order of sums does not matter.

Prints a line for each claim, then a line of JSON; exits with 1 if a claim does not hold, with 77
without a GPU or without libquarry_torch.so. Without Triton or a C compiler torch.compile is left
out, and the output says so.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import sys

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of processes for so little

import torch  # noqa: E402

import quarry_allocator  # noqa: E402

ROUNDS = 4  # of a compiled function: the first warms up, the second captures, the others replay
failures = 0


def claim(holds, text):
    global failures
    failures += not holds
    print(f"{'ok    ' if holds else 'FAILED'} {text}", flush=True)


def make_vector(start, count=1024):
    return torch.arange(start, start + count, dtype=torch.float32, device="cuda") % 64


# --- By hand ---


def capture(function, pool=None):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function()  # libraries are set up outside of captures
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        outputs = function()
    return graph, outputs


def restore(state, stale=(), revived=()):
    lists = [[t.untyped_storage()._cdata for t in tensors] for tensors in (stale, revived)]
    torch._C._cuda_setCheckpointPoolState(0, state, *lists)


def has_exactly(pool, tensors):
    return torch._C._cuda_checkPoolLiveAllocations(0, pool, {t.data_ptr() for t in tensors})


def view_again(tensor):
    """A tensor of the same memory that does not own it, as graph trees keep one of each output."""
    storage = torch._C._construct_storage_from_data_pointer(
        tensor.untyped_storage().data_ptr(), tensor.device, tensor.untyped_storage().nbytes()
    )
    meta = {"dtype": tensor.dtype, "size": tuple(tensor.shape), "stride": tensor.stride(),
            "storage_offset": tensor.storage_offset()}  # fmt: skip
    return torch._C._construct_CUDA_Tensor_From_Storage_And_Metadata(meta, storage)


def go_back_by_hand():
    x = make_vector(0)
    root, outputs = capture(lambda: [x + 1, x * 2])
    pool = root.pool()
    claim(has_exactly(pool, outputs), "the pool holds the outputs of the graph")
    claim(not has_exactly(pool, outputs[:1]), "and no fewer")
    state = torch._C._cuda_getCheckpointState(0, pool)
    first, branch = capture(lambda: [outputs[0] + outputs[1]], pool)
    claim(has_exactly(pool, outputs + branch), "a branch adds its own")
    place = branch[0].data_ptr()
    root.replay()
    first.replay()
    claim(torch.equal(branch[0], x * 3 + 1), "the first branch computes what it should")
    torch.cuda.synchronize()
    restore(state, stale=branch)
    claim(has_exactly(pool, outputs), "after the restore they are gone")
    other, branch = capture(lambda: [outputs[0] - outputs[1]], pool)
    claim(branch[0].data_ptr() == place, "the second branch gets the memory of the first")
    root.replay()
    other.replay()
    claim(torch.equal(branch[0], 1 - x), "and computes what it should")

    views = [view_again(tensor) for tensor in outputs]
    del outputs
    torch.cuda.synchronize()
    restore(state, stale=branch, revived=views)
    claim(has_exactly(pool, views), "outputs that died are allocated again")
    root.replay()
    claim(torch.equal(views[0], x + 1) and torch.equal(views[1], x * 2), "with their values")
    del views[0]
    claim(has_exactly(pool, views), "and freed when they die again")


# --- By torch.compile ---


def scale(x, weight):
    return torch.relu(x @ weight) * 2 + 1


def add(y, x):
    return y + x.sum()


def subtract(y, x):
    return (y - x.mean(dim=0, keepdim=True) * 2).relu()


def find_what_is_missing():
    if importlib.util.find_spec("triton") is None:
        return "Triton"
    compilers = [os.environ.get("CC"), "gcc", "clang", "cc"]
    if not any(shutil.which(name) for name in compilers if name):
        return "a C compiler"
    return None


def compile_two_branches():
    from torch._dynamo.utils import counters
    from torch._inductor import cudagraph_trees

    torch.set_float32_matmul_precision("highest")
    x = make_vector(0, 64 * 32).view(64, 32)
    weight = (torch.arange(32 * 32, device="cuda").view(32, 32) % 5 - 2).float()
    root = torch.compile(scale, mode="reduce-overhead")
    for function in (add, subtract):  # a branch each: the second begins where the root ended
        leaf = torch.compile(function, mode="reduce-overhead")
        equal = True
        for i in range(ROUNDS):
            torch.compiler.cudagraph_mark_step_begin()
            x += 1
            found = leaf(root(x, weight), x)
            equal &= torch.equal(found, function(scale(x, weight), x))
            del found
        claim(equal, f"scale, then {function.__name__}: {ROUNDS} rounds equal eager ones")
    claim(counters["inductor"]["cudagraph_skips"] == 0, "none was left without its graph")
    manager = cudagraph_trees.get_container(0).tree_manager
    restores = manager.debug_checkpointing_counter
    claim(restores > 0, f"the pool went back to an earlier layout ({restores} times)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", help="folder of libquarry.so")
    parser.add_argument("--native", action="store_true", help="PyTorch's own allocator instead")
    args = parser.parse_args()
    if not args.native:
        path = pathlib.Path(quarry_allocator.enable(args.library))
        if not path.name.startswith("libquarry_torch"):
            print("SKIPPED: no libquarry_torch.so; PyTorch's plug-in class has no checkpoints")
            sys.exit(77)
    if not torch.cuda.is_available():
        print("SKIPPED: PyTorch finds no GPU; nothing was tried")
        sys.exit(77)
    go_back_by_hand()
    missing = find_what_is_missing()
    if missing is None:
        compile_two_branches()
    else:
        print(f"SKIPPED: torch.compile needs {missing}")
    print(json.dumps({"compiled": missing is None, "failures": failures}))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
