# SPDX-License-Identifier: Apache-2.0
"""What Python sees when the plug-in throws, on a machine without a GPU.

Usage: python_exceptions_test.py LIBQUARRY LIBQUARRY_TORCH. Needs a CUDA build of PyTorch; without
one it exits with 77, which CTest shows as skipped. PyTorch allocates only where there is a GPU,
but calls some hooks without: those get the functions under test in the place of their own, as far
as the arguments agree (a device and two integers arrive as bytes, device and stream).
"""
import ctypes
import os
import sys

os.environ["QUARRY_DRIVER"] = "sim"
try:
    import torch
except ImportError:
    torch = None
if torch is None or not hasattr(torch._C, "_cuda_customAllocator"):
    print("SKIPPED: no CUDA build of PyTorch here")
    sys.exit(77)


def address(library, name):
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def catch(call):
    try:
        call()
    except BaseException as error:  # any class: which one is what is tested
        return error
    return None


def expect(claim, error):
    if not claim:
        print(f"FAILED with {type(error)}: {error}")
        sys.exit(1)


core = ctypes.CDLL(sys.argv[1])
allocator = torch._C._cuda_customAllocator(
    address(core, "quarry_torch_malloc"), address(core, "quarry_torch_free")
)
allocator.set_end_allocate_to_pool_fn(address(core, "quarry_torch_malloc"))
allocator.set_release_pool(address(core, "quarry_torch_end_allocate_to_pool"))
allocator.set_memory_fraction_fn(address(core, "quarry_torch_memory_fraction"))
torch._C._cuda_changeCurrentAllocator(allocator)


def refused():
    return catch(lambda: torch._C._cuda_endAllocateToPool(100, (0, 0)))


error = refused()
expect(error is None, error)  # 100 bytes of device 0 on stream 0
core.quarry_set_limit(0, ctypes.c_uint64(4096))

error = catch(lambda: torch._C._cuda_releasePool(0, (0, 3)))
expect(type(error) is RuntimeError and "(0, 3) of device 0 is not begun" in str(error), error)
error = catch(lambda: torch._C._cuda_setMemoryFraction(0.5, 9))
expect(type(error) is RuntimeError and "device is 9" in str(error), error)

held = 0
error = None
while error is None and held < 5000:  # until the segment that is there is full
    error = refused()
    held += 1
expect(type(error) is RuntimeError, error)
expect(str(error).startswith("CUDA out of memory. Tried to allocate 2.00 MiB."), error)

ctypes.CDLL(sys.argv[2])
error = refused()
expect(type(error) is torch.OutOfMemoryError, error)
expect(str(error).startswith("CUDA out of memory. Tried to allocate 2.00 MiB."), error)
expect("C++" not in str(error), error)  # the report, without a stack of C++ frames
core.quarry_set_limit(0, ctypes.c_uint64(2**64 - 1))
error = refused()
expect(error is None, error)
print(f"ok: RuntimeError, then torch.OutOfMemoryError, with {held - 1} blocks held")
