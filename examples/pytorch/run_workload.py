# SPDX-License-Identifier: Apache-2.0
"""Runs one workload in this process, under one allocator, and prints a line of JSON about it.

compare.py runs it many times. Kernels are deterministic, so that two allocators must give the same
bits: the digest is SHA-256 over the bytes, shapes and types of all outputs.
"""
import argparse
import ctypes
import hashlib
import importlib
import json
import os
import time

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # before CUDA starts; cuBLAS is deterministic

import torch  # noqa: E402

import quarry_allocator  # noqa: E402

WORKLOADS = {
    "llm": "llm_decode", "vision": "vision", "training": "training", "graphs": "graphs",
    "overlap": "overlap",
}  # fmt: skip


def make_deterministic():
    torch.use_deterministic_algorithms(True)
    # Filling each new tensor would hide what is measured, the cost of making it.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False  # also asks for what a plug-in cannot tell
    torch.backends.cudnn.deterministic = True
    # The other implementations of attention have no deterministic backward pass.
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)


def calculate_digest(tensors):
    digest = hashlib.sha256()
    for tensor in tensors:
        flat = tensor.detach().contiguous().flatten().cpu()
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        size = flat.numel() * flat.element_size()
        digest.update((ctypes.c_char * size).from_address(flat.data_ptr()))
    return digest.hexdigest()


def get_stats(allocator):
    return (quarry_allocator if allocator == "quarry" else torch.cuda).memory_stats(0)


def get_figures(allocator, device):
    if device == "cpu":
        return {}
    figures = get_stats(allocator)
    return {
        "peak_allocated": figures["allocated_bytes.all.peak"],
        "peak_reserved": figures["reserved_bytes.all.peak"],
        "requests": figures["allocation.all.allocated"],
        "driver_allocations": figures["num_device_alloc"],
        "retries": figures["num_alloc_retries"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--allocator", choices=("native", "quarry"), default="native")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=("full", "quick", "tiny"), default="full")
    parser.add_argument("--scale", type=float, default=1.0, help="times the amount of work")
    parser.add_argument("--library", help="folder of libquarry.so")
    args = parser.parse_args()
    if args.allocator == "quarry":
        quarry_allocator.enable(args.library)
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU; --device cpu tries the models without one")
    make_deterministic()
    module = importlib.import_module(WORKLOADS[args.workload])
    known = {}
    if args.workload == "graphs":
        known["get_reserved"] = lambda: get_stats(args.allocator)["reserved_bytes.all.current"]
    workload = module.Workload(args.device, args.size, args.scale, **known)
    workload.warm_up()
    synchronize = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    synchronize()
    begin = time.perf_counter()
    workload.run()
    synchronize()
    seconds = time.perf_counter() - begin
    figures = get_figures(args.allocator, args.device)
    if args.workload == "graphs":
        figures |= workload.figures()
    if args.allocator == "quarry" and args.device == "cuda" and figures["requests"] == 0:
        raise RuntimeError("Quarry served no request: it was not the allocator")
    print(
        json.dumps(
            {"seconds": seconds, "digest": calculate_digest(workload.outputs())} | figures
        )
    )


if __name__ == "__main__":
    main()
