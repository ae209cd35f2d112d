# SPDX-License-Identifier: Apache-2.0
# What every target of this project has in common, and the two kinds of target that the tree uses.

add_library(quarry_options INTERFACE)
target_include_directories(quarry_options INTERFACE
  "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
target_compile_options(quarry_options INTERFACE
  -Wall -Wextra -Wshadow -Wundef -Wimplicit-fallthrough
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  # GCC 12 warns wrongly of std::string's operator+ (its bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<BOOL:${QUARRY_WARNINGS_AS_ERRORS}>:-Werror>)
if(QUARRY_SANITIZE)
  target_compile_options(quarry_options INTERFACE
    -fsanitize=${QUARRY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(quarry_options INTERFACE -fsanitize=${QUARRY_SANITIZE})
endif()

# fmt and spdlog are compiled into what uses them, so that libquarry needs no library of theirs.
# Not under a sanitizer, whose builds no user links: instrumenting fmt's headers anew in each file
# took 10 of the 14 s of c_api.cpp. There the names stand for the libraries, for every layer alike;
# what fmt and spdlog do inside is then not looked at.
if(QUARRY_SANITIZE)
  set_target_properties(fmt::fmt-header-only PROPERTIES
    INTERFACE_COMPILE_DEFINITIONS "" INTERFACE_LINK_LIBRARIES fmt::fmt)
  set_target_properties(spdlog::spdlog_header_only PROPERTIES
    INTERFACE_COMPILE_DEFINITIONS "" INTERFACE_LINK_LIBRARIES spdlog::spdlog)
endif()

# quarry_layer(NAME SOURCES... DEPENDS...): one layer of src/ as a set of objects. Layers carry no
# ABI of their own; libquarry and the tools are linked from them.
function(quarry_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS} Threads::Threads
                                PRIVATE quarry_options ${ARG_PRIVATE})
  target_include_directories(${name} PUBLIC
    "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
endfunction()

# quarry_tool_code(TARGET...): code beside the library, whose speed no test needs: optimised as
# QUARRY_OPTIMISE_TOOLS says, and never under a sanitizer.
function(quarry_tool_code)
  if(QUARRY_SANITIZE OR NOT QUARRY_OPTIMISE_TOOLS)
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE -O0)
    endforeach()
  endif()
endfunction()
