# SPDX-License-Identifier: Apache-2.0
# Finds the CUDA Toolkit's headers, which are all that the library needs: it links neither libcuda
# nor libcudart. And an nvcc, for the tests on the GPU and the driver facts.
set(QUARRY_HAVE_CUDA OFF)
if(QUARRY_BUILD_CUDA)
  find_path(QUARRY_CUDA_INCLUDE_DIR cuda.h
    HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
  set(cuda_version 0)
  if(QUARRY_CUDA_INCLUDE_DIR)
    file(STRINGS "${QUARRY_CUDA_INCLUDE_DIR}/cuda.h" cuda_version REGEX "^#define CUDA_VERSION ")
    string(REGEX REPLACE "[^0-9]" "" cuda_version "${cuda_version}")
  endif()
  # The newest entry that cuda/driver_entries.hpp names is of CUDA 12.5. Drivers may be older.
  if(cuda_version GREATER_EQUAL 12050)
    set(QUARRY_HAVE_CUDA ON)
  else()
    message(STATUS "Quarry: no headers of a CUDA Toolkit of 12.5 or later found; building without "
                   "the CUDA driver (the simulated device, the replayer and all CPU tests work)")
  endif()
endif()

# Not under the sanitizers, which CUDA does not run under.
set(QUARRY_HAVE_NVCC OFF)
if(QUARRY_HAVE_CUDA AND NOT QUARRY_SANITIZE AND (QUARRY_BUILD_TESTS OR QUARRY_BUILD_BENCH))
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90)
    endif()
    enable_language(CUDA)
    set(QUARRY_HAVE_NVCC ON)
  else()
    message(STATUS "Quarry: no CUDA compiler found; the GPU tests and the driver facts are not "
                   "built")
  endif()
endif()
