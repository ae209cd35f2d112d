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

# A call inside the library must not go round through the procedure linkage table.
execute_process(COMMAND ${READELF} -W -r "${LIBRARY}" OUTPUT_VARIABLE relocations
  COMMAND_ERROR_IS_FATAL ANY)
if(relocations MATCHES "JU?MP_SLOT?[^\n]* quarry_")
  message(FATAL_ERROR "A function of the C API is called as if it could be replaced")
endif()

# Python loads the library late. glibc keeps 512 bytes of thread-local storage for libraries that
# come after the start and cannot do without a static place, for all of them together.
execute_process(COMMAND ${READELF} -W -l "${LIBRARY}" OUTPUT_VARIABLE segments
  COMMAND_ERROR_IS_FATAL ANY)
if(NOT segments MATCHES "TLS +0x[0-9a-f]+ 0x[0-9a-f]+ 0x[0-9a-f]+ 0x[0-9a-f]+ 0x([0-9a-f]+)")
  message(FATAL_ERROR "No thread-local storage found in:\n${segments}")
endif()
math(EXPR thread_local_bytes "0x${CMAKE_MATCH_1}")
if(thread_local_bytes GREATER 400)
  message(FATAL_ERROR "${thread_local_bytes} bytes of thread-local storage, allowed: 400")
endif()

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
