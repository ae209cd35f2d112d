# SPDX-License-Identifier: Apache-2.0
# Finds the CUDA Toolkit's headers. Only cuda/ uses them; nothing here links libcuda or libcudart.
set(QUARRY_HAVE_CUDA OFF)
if(QUARRY_BUILD_CUDA)
  find_path(QUARRY_CUDA_INCLUDE_DIR cuda.h
    HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
  if(QUARRY_CUDA_INCLUDE_DIR)
    set(QUARRY_HAVE_CUDA ON)
  else()
    message(STATUS "Quarry: no CUDA Toolkit headers found; building without the CUDA driver "
                   "(the simulated device, the replayer and all CPU tests work)")
  endif()
endif()
