# SPDX-License-Identifier: Apache-2.0
# Finds the PyTorch that QUARRY_PYTHON (python3) imports, without importing it. Used for
# libquarry_torch.so and for the tests with PyTorch; libquarry.so does not need it.
set(QUARRY_HAVE_TORCH OFF)
set(QUARRY_HAVE_TORCH_CUDA OFF)  # one with CUDA, whose allocator class can be extended
set(QUARRY_TORCH_DIR "")
if(QUARRY_BUILD_TORCH AND NOT QUARRY_SANITIZE)
  find_program(QUARRY_PYTHON python3 DOC "The Python whose PyTorch libquarry_torch.so is for")
  if(QUARRY_PYTHON)
    execute_process(
      COMMAND "${QUARRY_PYTHON}" -c "import importlib.util as u; s = u.find_spec('torch'); \
print(s.submodule_search_locations[0] if s else '', end='')"
      OUTPUT_VARIABLE QUARRY_TORCH_DIR ERROR_QUIET)
  endif()
  if(QUARRY_TORCH_DIR AND EXISTS "${QUARRY_TORCH_DIR}/include/c10/util/Exception.h"
     AND EXISTS "${QUARRY_TORCH_DIR}/lib/libc10.so")
    set(QUARRY_HAVE_TORCH ON)
    message(STATUS "Quarry: libquarry_torch.so is for the PyTorch of ${QUARRY_PYTHON}")
    if(QUARRY_HAVE_CUDA AND EXISTS "${QUARRY_TORCH_DIR}/lib/libtorch_cuda.so"
       AND EXISTS "${QUARRY_TORCH_DIR}/include/torch/csrc/cuda/CUDAPluggableAllocator.h")
      set(QUARRY_HAVE_TORCH_CUDA ON)
    else()
      message(STATUS "Quarry: no CUDA in that PyTorch, or no headers of CUDA here; "
                     "libquarry_torch.so is built without support for torch.cuda.MemPool")
    endif()
  else()
    message(STATUS "Quarry: no PyTorch found; libquarry_torch.so is not built "
                   "(without it out of memory is a RuntimeError in Python)")
  endif()
endif()
