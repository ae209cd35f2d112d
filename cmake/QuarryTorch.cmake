# SPDX-License-Identifier: Apache-2.0
# Finds the PyTorch that python3 (or Python3_EXECUTABLE) would import, without importing it. Used
# for libquarry_torch.so and the example of examples/pytorch; libquarry.so does not need it.
set(QUARRY_HAVE_TORCH OFF)
if(QUARRY_BUILD_TORCH AND NOT QUARRY_SANITIZE)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(Python3_FOUND)
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -c "import importlib.util as u; s = u.find_spec('torch'); \
print(s.submodule_search_locations[0] if s else '', end='')"
      OUTPUT_VARIABLE QUARRY_TORCH_DIR ERROR_QUIET)
  endif()
  if(QUARRY_TORCH_DIR AND EXISTS "${QUARRY_TORCH_DIR}/include/c10/util/Exception.h"
     AND EXISTS "${QUARRY_TORCH_DIR}/lib/libc10.so")
    set(QUARRY_HAVE_TORCH ON)
    message(STATUS "Quarry: libquarry_torch.so is for the PyTorch of ${Python3_EXECUTABLE}")
  else()
    message(STATUS "Quarry: no PyTorch found; libquarry_torch.so is not built "
                   "(out of memory is a RuntimeError in Python without it)")
  endif()
endif()
