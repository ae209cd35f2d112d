# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.MemPool and checkpoints of pools over Quarry, on a machine without a GPU.

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


def view(pointer, size):
    """A storage that does not own its memory."""
    return torch._C._construct_storage_from_data_pointer(pointer, torch.device("cuda:0"), size)


def make_storage(pool, size):
    """One of the pool that owns its memory: a restore gives it the deleter of what stays. (The
    ordinary way asks the driver for a context.)"""
    with torch.cuda.use_mem_pool(pool, device=0):
        storage = view(allocate(size), size)
    restore(torch._C._cuda_getCheckpointState(0, pool.id), [], [storage])
    return storage


def restore(state, stale=(), revived=()):
    lists = [[storage._cdata for storage in storages] for storages in (stale, revived)]
    torch._C._cuda_setCheckpointPoolState(0, state, *lists)


def has_exactly(pool, storages):
    pointers = {storage.data_ptr() for storage in storages}
    return torch._C._cuda_checkPoolLiveAllocations(0, pool.id, pointers)


def test_a_pool_goes_back_to_an_earlier_layout():
    pool = torch.cuda.MemPool()
    kept, dying = make_storage(pool, 4 * MIB), make_storage(pool, 1000)
    expect(has_exactly(pool, [kept, dying]), "live allocations")
    expect(not has_exactly(pool, [kept]), "one too few")
    state = torch._C._cuda_getCheckpointState(0, pool.id)
    revived = view(dying.data_ptr(), 1000)
    del dying
    stale = make_storage(pool, 8 * MIB)
    expect(has_exactly(pool, [kept, stale]), "live allocations")
    expect(not torch._C._has_Standard_Deleter(revived._cdata), "a deleter of a view")
    restore(state, [stale], [revived])
    expect(has_exactly(pool, [kept, revived]), "the layout of then")
    expect(torch._C._has_Standard_Deleter(revived._cdata), "a deleter of what is revived")
    expect(not torch._C._has_Standard_Deleter(stale._cdata), "no deleter of what is stale")
    again = make_storage(pool, 8 * MIB)
    expect(again.data_ptr() == stale.data_ptr(), "the memory of what is stale")
    del stale
    expect(has_exactly(pool, [kept, revived, again]), "a stale storage frees nothing")
    del revived
    expect(has_exactly(pool, [kept, again]), "a revived one does")
    del kept
    expect(has_exactly(pool, [again]), "as does one that stayed")
    del again
    expect(has_exactly(pool, []), "nothing")


def test_dead_blocks_are_freed_by_hand():
    """As graph trees do: nothing is stale, and what has died since is revived, then deleted."""
    pool = torch.cuda.MemPool()
    live, dead = make_storage(pool, 1000), make_storage(pool, 1000)
    state = torch._C._cuda_getCheckpointState(0, pool.id)
    pointers = live.data_ptr(), dead.data_ptr()
    del live, dead
    for _ in range(3):
        live = view(pointers[0], 1000)
        restore(state, [], [live])
        free(pointers[1])
        expect(has_exactly(pool, [live]), "what is alive")
        del live
        expect(has_exactly(pool, []), "nothing")
    restore(state)  # in nobody's hands
    expect(get_pool(pool)["allocated_blocks"] == 2, get_pool(pool))
    name = pool.id
    del pool
    text = catch(lambda: restore(state))
    expect("was released" in text, text)
    for pointer in pointers:
        free(pointer)
    torch.cuda.empty_cache()
    expect(tuple(name) not in quarry_allocator.pool_stats(), name)
    for call in (lambda: restore(state), lambda: torch._C._cuda_getCheckpointState(0, name)):
        text = catch(call)
        expect("does not exist" in text, text)


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
