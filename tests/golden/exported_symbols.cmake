# SPDX-License-Identifier: Apache-2.0
# Compares the exports of LIBRARY with the list in GOLDEN, and checks what it is linked to. Run
# with cmake -DLIBRARY=... -DGOLDEN=... -P; -DUPDATE=ON writes the list instead.
find_program(NM nm REQUIRED)
find_program(READELF readelf REQUIRED)

execute_process(COMMAND ${NM} -D --defined-only --format=posix "${LIBRARY}"
  OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "\n$" "" listing "${listing}")
string(REPLACE "\n" ";" lines "${listing}")
set(exports "")
foreach(line IN LISTS lines)
  string(REGEX REPLACE " .*" "" symbol "${line}")
  string(APPEND exports "${symbol}\n")
endforeach()

if(UPDATE)
  file(WRITE "${GOLDEN}" "${exports}")
  return()
endif()
file(READ "${GOLDEN}" expected)
if(NOT exports STREQUAL expected)
  message(FATAL_ERROR "The exports differ from ${GOLDEN}. Found:\n${exports}")
endif()
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^(quarry_[a-z_]+@@QUARRY_0 T|QUARRY_0(@@QUARRY_0)? A)")
    message(FATAL_ERROR "Not a function of the C API: ${line}")
  endif()
endforeach()

execute_process(COMMAND ${READELF} -d "${LIBRARY}" OUTPUT_VARIABLE dynamic
  COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "NEEDED[^\n]*\\[[^]]*\\]" needed "${dynamic}")
foreach(entry IN LISTS needed)
  if(NOT entry MATCHES
     "\\[(libstdc\\+\\+|libgcc_s|libm|libc|ld-linux-[a-z0-9-]+)\\.so\\.[0-9]+\\]")
    message(FATAL_ERROR "A dependency besides the C++ runtime and libc: ${entry}")
  endif()
endforeach()
if(NOT dynamic MATCHES "SONAME[^\n]*\\[libquarry\\.so\\.[0-9]+\\]")
  message(FATAL_ERROR "The SONAME is not libquarry.so.MAJOR")
endif()
