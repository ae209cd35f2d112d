# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.MemPool over Quarry, on a machine without a GPU.

Usage: python_pools_test.py FOLDER_OF_THE_EXAMPLE FOLDER_OF_LIBQUARRY, with fake_cudart preloaded.
PyTorch's own classes make, use and drop the pools; their memory is the simulated device's. Exits
with 77 (skipped) without a PyTorch with CUDA.
"""
import ctypes
import os
import subprocess
import sys
import threading

try:
    import torch
except ImportError:
    torch = None
if torch is None or not hasattr(torch._C, "_cuda_customAllocator"):
    print("SKIPPED: no CUDA build of PyTorch here")
    sys.exit(77)
sys.path.insert(0, sys.argv[1])
import quarry_allocator  # noqa: E402

MIB = 1 << 20
torch.cuda._initialized = True  # else PyTorch would ask the driver


def expect(claim, found):
    if not claim:
        raise AssertionError(found)


def catch(call):
    try:
        call()
    except Exception as error:  # any class: the text is what is tested
        return str(error)
    return "no error"


def allocate(size):
    return torch._C._cuda_cudaCachingAllocator_raw_alloc(size, 0)


def free(pointer):
    torch._C._cuda_cudaCachingAllocator_raw_delete(pointer)


def get_pool(pool):
    return quarry_allocator.pool_stats()[tuple(pool.id)]


def check_plain_plugin_class():
    """It has no pools; the day it has, the subclass may go."""
    functions = [
        ctypes.cast(getattr(ctypes.CDLL(sys.argv[2] + "/libquarry.so"), name), ctypes.c_void_p)
        for name in ("quarry_torch_malloc", "quarry_torch_free")
    ]
    plain = torch._C._cuda_customAllocator(*(function.value for function in functions))
    torch._C._cuda_changeCurrentAllocator(plain)
    text = catch(torch.cuda.MemPool)
    expect("does not yet support createOrIncrefPool" in text, text)


def test_requests_inside_the_context_are_the_pools():
    pool = torch.cuda.MemPool()
    expect(pool.use_count() == 1, pool.use_count())
    with torch.cuda.use_mem_pool(pool, device=0):
        expect(pool.use_count() == 2, pool.use_count())
        inside = allocate(4 * MIB)
        other = threading.Thread(target=lambda: free(allocate(1000)))
        other.start()
        other.join()
        text = catch(lambda: torch.cuda.use_mem_pool(pool, device=0).__enter__())
        expect("is begun already" in text, text)
    expect(pool.use_count() == 1, pool.use_count())
    outside = allocate(4 * MIB)
    figures = get_pool(pool)
    expect(figures["allocated_blocks"] == 1, figures)
    expect(figures["reserved_bytes"] == 20 * MIB, figures)
    free(inside)
    free(outside)
    name = tuple(pool.id)
    del pool  # gives its memory back, and nobody else's
    expect(name not in quarry_allocator.pool_stats(), name)
    stats = quarry_allocator.memory_stats()
    expect(stats["reserved_bytes.all.current"] >= 20 * MIB, stats)
    torch.cuda.empty_cache()
    stats = quarry_allocator.memory_stats()
    expect(stats["reserved_bytes.all.current"] == 0, stats)


def test_a_block_may_outlive_its_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool, device=0):
        block = allocate(4 * MIB)
    name = tuple(pool.id)
    del pool
    expect(quarry_allocator.pool_stats()[name]["use_count"] == 0, name)
    free(block)
    torch.cuda.empty_cache()
    expect(name not in quarry_allocator.pool_stats(), name)


def test_contexts_nest():
    first, second = torch.cuda.MemPool(), torch.cuda.MemPool()
    blocks = []
    with torch.cuda.use_mem_pool(first, device=0):
        blocks.append(allocate(20 * MIB))
        with torch.cuda.use_mem_pool(second, device=0):
            blocks.append(allocate(20 * MIB))
        blocks.append(allocate(20 * MIB))
    counts = [get_pool(pool)["allocated_blocks"] for pool in (first, second)]
    expect(counts == [2, 1], counts)
    for block in blocks:
        free(block)


def test_use_on_oom_and_no_split():
    quarry_allocator.call("quarry_set_limit", 0, ctypes.c_uint64(60 * MIB))
    lender = torch.cuda.MemPool(use_on_oom=True, no_split=True)
    with torch.cuda.use_mem_pool(lender, device=0):
        blocks = [allocate(2 * MIB), allocate(2 * MIB)]
    expect(get_pool(lender)["segments"] == 2, get_pool(lender))
    free(blocks[0])
    kept = allocate(20 * MIB)
    borrowed = allocate(4 * MIB)  # no room for another segment
    expect(borrowed == blocks[0], (borrowed, blocks))
    free(borrowed)
    del lender  # lends no more, with a block still held
    free(blocks[1])
    free(kept)
    torch.cuda.empty_cache()
    quarry_allocator.call("quarry_set_limit", 0, ctypes.c_uint64(2**64 - 1))


def test_a_pool_with_an_allocator_of_its_own():
    calls = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    def own_malloc(size, device, stream):
        calls.append(("malloc", size, device))
        return 1 << 45

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    def own_free(pointer, size, device, stream):
        calls.append(("free", size, device))

    own = torch._C._cuda_customAllocator(
        *(ctypes.cast(function, ctypes.c_void_p).value for function in (own_malloc, own_free))
    )
    pool = torch.cuda.MemPool(own)
    with torch.cuda.use_mem_pool(pool, device=0):
        block = allocate(4 * MIB)
    expect(block == 1 << 45, block)
    expect(calls == [("malloc", 20 * MIB, 0)], calls)
    del pool, own
    expect(len(calls) == 1, calls)  # the block keeps both alive
    free(block)
    expect(calls[1:] == [("free", 20 * MIB, 0)], calls)


if len(sys.argv) > 3:
    check_plain_plugin_class()
    sys.exit(0)
subprocess.run([sys.executable, *sys.argv, "plain"], check=True)
quarry_allocator.enable(sys.argv[2])
os.environ["QUARRY_DRIVER"] = "sim"  # read at the first call of the library, which comes now
for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print("ok", name)
