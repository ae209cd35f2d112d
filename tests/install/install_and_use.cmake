# SPDX-License-Identifier: Apache-2.0
# Installs the component `library` of BUILD into a new prefix under WORK, checks that the prefix
# holds what docs/c-api.md says and no more, and builds and runs programs with nothing but it: by
# the commands of docs/c-api.md, with the shared library, then with the static one, then in C++.
# Run with cmake -DBUILD=... -P; tests/install/CMakeLists.txt passes the variables.
cmake_minimum_required(VERSION 3.25)
set(prefix "${WORK}/prefix")
unset(ENV{DESTDIR})
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${WORK}" COMMAND_ECHO STDOUT
    COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(expect_runs program)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env QUARRY_DRIVER=sim "LD_LIBRARY_PATH=${prefix}/${LIBDIR}"
      "${WORK}/${program}"
    OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
  if(NOT output MATCHES "3 driver allocations for 2001 requests")
    message(FATAL_ERROR "${program} printed:\n${output}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install "${BUILD}" --config "${CONFIG}" --component library
  --prefix "${prefix}")

file(GLOB_RECURSE installed RELATIVE "${prefix}" "${prefix}/*")
list(SORT installed)
set(expected
  "${INCLUDEDIR}/quarry/quarry.h"
  "${INCLUDEDIR}/quarry/quarry.hpp"
  "${INCLUDEDIR}/quarry/quarry_pool.h"
  "${INCLUDEDIR}/quarry/quarry_pool.hpp"
  "${INCLUDEDIR}/quarry/quarry_sharing.h"
  "${INCLUDEDIR}/quarry/quarry_sharing.hpp"
  "${INCLUDEDIR}/quarry/quarry_torch.h"
  "${LIBDIR}/libquarry.a"
  "${LIBDIR}/libquarry.so"
  "${LIBDIR}/libquarry.so.${VERSION_MAJOR}"
  "${LIBDIR}/libquarry.so.${VERSION}")
list(SORT expected)
if(NOT installed STREQUAL expected)
  message(FATAL_ERROR "The prefix holds ${installed}; it should hold ${expected}")
endif()

set(main "${SOURCE}/examples/c_program/main.c")
set(strict -Wall -Wextra -Wpedantic -Werror "-I${prefix}/${INCLUDEDIR}")
run("${CC}" -std=c99 ${strict} "${main}" "-L${prefix}/${LIBDIR}" -lquarry -o shared_program)
expect_runs(shared_program)
run("${CC}" -std=c99 ${strict} "${main}" "${prefix}/${LIBDIR}/libquarry.a" -lstdc++ -lm -pthread
  -o static_program)
expect_runs(static_program)

file(WRITE "${WORK}/main.cpp" [=[
#include <quarry/quarry.hpp>

int main() {
  const quarry::Pool pool(0);
  const auto scope = quarry::PoolScope::for_thread(pool);
  quarry::UniqueBlock block(1000, 0, nullptr);
  return block.data() != nullptr && pool.get_stats().allocated_blocks == 1 ? 0 : 1;
}
]=])
file(WRITE "${WORK}/pool.c" [=[
#include <quarry/quarry_pool.h>

int main(void) {
  quarry_pool pool = QUARRY_POOL_DEFAULT;
  void* ptr = NULL;
  if (quarry_pool_create(0, NULL, &pool) != QUARRY_OK) return 1;
  if (quarry_pool_malloc(pool, &ptr, 1000, NULL) != QUARRY_OK) return 2;
  quarry_free(ptr);
  return quarry_pool_release(pool) == QUARRY_OK ? 0 : 3;
}
]=])
run("${CC}" -std=c99 ${strict} pool.c "-L${prefix}/${LIBDIR}" -lquarry -o pool_program)
run(${CMAKE_COMMAND} -E env QUARRY_DRIVER=sim "LD_LIBRARY_PATH=${prefix}/${LIBDIR}"
  "${WORK}/pool_program")
run("${CXX}" -std=c++17 ${strict} main.cpp "-L${prefix}/${LIBDIR}" -lquarry -o cpp_program)
run(${CMAKE_COMMAND} -E env QUARRY_DRIVER=sim "LD_LIBRARY_PATH=${prefix}/${LIBDIR}"
  "${WORK}/cpp_program")
