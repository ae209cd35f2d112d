# SPDX-License-Identifier: Apache-2.0
"""examples/pytorch/quarry_allocator.py, as far as it goes without a GPU.

Usage: python_wiring_test.py FOLDER_OF_THE_EXAMPLE FOLDER_OF_LIBQUARRY. Exits with 77 (skipped)
without a CUDA build of PyTorch. Some hooks PyTorch calls without a GPU; those act on the simulated
device here.
"""
import os
import sys

try:
    import torch
except ImportError:
    torch = None
if torch is None or not hasattr(torch._C, "_cuda_customAllocator"):
    print("SKIPPED: no CUDA build of PyTorch here")
    sys.exit(77)
sys.path.insert(0, sys.argv[1])
import quarry_allocator  # noqa: E402


def catch(call):
    try:
        call()
    except Exception as error:  # any class: the text is what is tested
        return str(error)
    return "no error"


def expect(claim, found):
    if not claim:
        print(f"FAILED: {found}")
        sys.exit(1)


text = catch(quarry_allocator.memory_stats)
expect(text == "quarry_allocator.enable() was not called", text)
os.environ["QUARRY_DRIVER"] = "sim"
text = catch(lambda: quarry_allocator.enable(sys.argv[2]))
expect("QUARRY_DRIVER=sim" in text, text)
del os.environ["QUARRY_DRIVER"]
text = catch(lambda: quarry_allocator.enable("/nowhere"))
expect("no libquarry.so in /nowhere" in text, text)

path = quarry_allocator.enable(sys.argv[2])
expect(path.name == "libquarry_torch.so", path)
text = catch(lambda: quarry_allocator.enable(sys.argv[2]))
expect("called already" in text, text)
os.environ["QUARRY_DRIVER"] = "sim"  # read at the first call of the library, which is below

# The plug-in class of PyTorch, which works without libquarry_torch.so.
setters = {name for name in dir(torch._C._cuda_customAllocator(1, 1)) if name.startswith("set_")}
expect(setters == set(quarry_allocator.HOOKS), setters)

torch._C._cuda_emptyCache()
torch._C._cuda_emptyCache()
figures = quarry_allocator.memory_stats()
expect(figures["num_sync_all_streams"] == 2, figures)
expect(figures["reserved_bytes.all.peak"] == 0, figures)
text = catch(lambda: torch._C._cuda_setMemoryFraction(2.0, 0))
expect(text.startswith("Quarry: ") and "2" in text, text)
text = catch(lambda: torch._C._cuda_endAllocateToPool(0, (0, 5)))
expect("pool (0, 5) of device 0 is not begun" in text, text)
torch._C._cuda_beginAllocateCurrentThreadToPool(0, (0, 5))
expect(quarry_allocator.pool_stats()[(0, 5)]["use_count"] == 1, quarry_allocator.pool_stats())
torch._C._cuda_endAllocateToPool(0, (0, 5))
torch._C._cuda_releasePool(0, (0, 5))
expect(quarry_allocator.pool_stats() == {}, quarry_allocator.pool_stats())
torch._C._cuda_releasePool(0, (0, 5))  # one too many is logged
text = catch(lambda: quarry_allocator.memory_stats(7))
expect("device is 7" in text, text)
quarry_allocator.reset_peak_memory_stats()
print("ok")
