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
    # Its class is of 2.11; others that it fits are fine, and one that it does not is no reason to
    # fail.
    if(QUARRY_HAVE_CUDA AND EXISTS "${QUARRY_TORCH_DIR}/lib/libtorch_cuda.so")
      set(includes "${PROJECT_SOURCE_DIR}/include" "${QUARRY_TORCH_DIR}/include"
                   "${QUARRY_CUDA_INCLUDE_DIR}")
      set(version "")
      if(EXISTS "${QUARRY_TORCH_DIR}/version.py")
        file(STRINGS "${QUARRY_TORCH_DIR}/version.py" version REGEX "^__version__")
      endif()
      if(NOT "${QUARRY_TORCH_CLASS_TRIED}" STREQUAL "${includes} ${version}")
        set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
        try_compile(QUARRY_TORCH_CLASS_FITS "${PROJECT_BINARY_DIR}/torch_class"
          SOURCES "${PROJECT_SOURCE_DIR}/src/torch/torch_allocator.cpp"
          CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${includes}"
          CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
        unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
        set(QUARRY_TORCH_CLASS_TRIED "${includes} ${version}" CACHE INTERNAL "")
      endif()
      set(QUARRY_HAVE_TORCH_CUDA ${QUARRY_TORCH_CLASS_FITS})
    endif()
    if(NOT QUARRY_HAVE_TORCH_CUDA)
      message(STATUS "Quarry: no CUDA in that PyTorch, another version of its allocator class, or "
                     "no headers of CUDA here; libquarry_torch.so is built without MemPool")
    endif()
  else()
    message(STATUS "Quarry: no PyTorch found; libquarry_torch.so is not built "
                   "(without it out of memory is a RuntimeError in Python)")
  endif()
endif()
