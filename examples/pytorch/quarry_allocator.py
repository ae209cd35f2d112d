# SPDX-License-Identifier: Apache-2.0
"""Puts Quarry under a whole PyTorch process: `import quarry_allocator; quarry_allocator.enable()`.

To be called before the first use of CUDA. One file without dependencies, to be copied; what works
under it and what does not is in docs/integrations.md.
"""
import ctypes
import os
import pathlib
import warnings

import torch

# PyTorch's setter and the function of quarry_torch.h that it gets.
HOOKS = {
    "set_init_fn": "quarry_torch_init",
    "set_reset_fn": "quarry_torch_reset",
    "set_memory_fraction_fn": "quarry_torch_memory_fraction",
    "set_base_alloc_fn": "quarry_torch_base_alloc",
    "set_record_stream_fn": "quarry_torch_record_stream",
    "set_begin_allocate_to_pool": "quarry_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "quarry_torch_end_allocate_to_pool",
    "set_release_pool": "quarry_torch_release_pool",
}
_VISITOR = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p)


class _PoolStats(ctypes.Structure):  # quarry_pool_stats of quarry_pool.h
    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [(name, ctypes.c_uint64) for name in ("pool", "id_first", "id_second")]
        + [(name, ctypes.c_int) for name in ("device", "use_count", "has_active_capture")]
        + [(name, ctypes.c_int64) for name in (
            "allocated_bytes", "allocated_peak_bytes", "active_bytes", "active_peak_bytes",
            "reserved_bytes", "reserved_peak_bytes", "allocated_blocks", "segments", "num_ooms")]
        + [("limit_bytes", ctypes.c_uint64)]
    )  # fmt: skip


_POOL_VISITOR = ctypes.CFUNCTYPE(None, ctypes.POINTER(_PoolStats), ctypes.c_void_p)
_library = None


def enable(folder=None):
    """Makes Quarry the allocator of all CUDA memory of this process; returns the library's path.

    `folder` is where libquarry.so is; otherwise the environment's QUARRY_LIBRARY_DIR, or this
    tree's build/release/lib. With libquarry_torch.so beside it, torch.cuda.MemPool works and a
    request that cannot be met is a torch.OutOfMemoryError; without it, that is a RuntimeError.
    """
    global _library
    if _library is not None:
        raise RuntimeError("quarry_allocator.enable() was called already")
    if os.environ.get("QUARRY_DRIVER") == "sim":
        raise RuntimeError(
            "QUARRY_DRIVER=sim: addresses of the simulated device are not memory; unset it"
        )
    path, library = _load(_find_folder(folder))
    if hasattr(library, "quarry_torch_change_allocator"):
        library.quarry_torch_change_allocator.restype = ctypes.c_char_p
        failure = library.quarry_torch_change_allocator()
        if failure is not None:
            raise RuntimeError(failure.decode())
    else:
        _change_by_hooks(path, library)
    _library = library
    return path


def _change_by_hooks(path, library):
    """With PyTorch's own plug-in class, under which torch.cuda.MemPool cannot be made."""
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        str(path), "quarry_torch_malloc", "quarry_torch_free"
    )
    for setter, function in HOOKS.items():
        address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
        getattr(allocator.allocator(), setter)(address)
    torch.cuda.memory.change_current_allocator(allocator)


def memory_stats(device=0):
    """What torch.cuda.memory_stats() would say, and Quarry's own figures (docs/stats.md)."""
    figures = {}

    def visit(key, value, _):
        figures[key.decode()] = value

    call("quarry_for_each_stat", int(device), _VISITOR(visit), None)
    return figures


def pool_stats(device=0):
    """The figures of each private pool, by its id: of graphs (`graph.pool()`) and of MemPools."""
    pools = {}

    def visit(stats, _):
        shown = {name: getattr(stats.contents, name) for name, _ in _PoolStats._fields_}
        pools[(shown.pop("id_first"), shown.pop("id_second"))] = shown

    call("quarry_for_each_pool", int(device), _POOL_VISITOR(visit), None)
    return pools


def reset_peak_memory_stats(device=0):
    call("quarry_reset_peak_stats", int(device))


def call(function, *arguments):
    """A function of quarry.h that returns a status, with arguments that ctypes understands."""
    if _library is None:
        raise RuntimeError("quarry_allocator.enable() was not called")
    if getattr(_library, function)(*arguments) != 0:
        _library.quarry_get_last_error.restype = ctypes.c_char_p
        raise RuntimeError(_library.quarry_get_last_error().decode())


def _find_folder(folder):
    if folder is None:
        folder = os.environ.get("QUARRY_LIBRARY_DIR")
    if folder is None:
        folder = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "lib"
    folder = pathlib.Path(folder)
    if not (folder / "libquarry.so").exists():
        raise FileNotFoundError(f"no libquarry.so in {folder}; build it, or name its folder")
    return folder


def _load(folder):
    glue = folder / "libquarry_torch.so"
    why = "it is not there"
    if glue.exists():
        try:
            return glue, ctypes.CDLL(str(glue))
        except OSError as error:  # built against another PyTorch
            why = str(error)
    warnings.warn(
        f"without {glue} ({why}) an out-of-memory error is a RuntimeError", stacklevel=3
    )
    path = folder / "libquarry.so"
    return path, ctypes.CDLL(str(path))
