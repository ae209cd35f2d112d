// SPDX-License-Identifier: Apache-2.0
// What a running process has loaded that has to do with GPU memory. Pure functions of the text of
// /proc/PID/maps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/finding.hpp"
#include "tools/known_library.hpp"

namespace quarry::tools {

struct LoadedLibrary {
  std::string path;
  KnownLibrary library;

  friend bool operator==(const LoadedLibrary& a, const LoadedLibrary& b) {
    return a.path == b.path && a.library.kind == b.library.kind;
  }
};

// The libraries that recognise_library knows, each file (device and inode) once, in the order of
// the first mapping. Two copies of one library are two files.
std::vector<LoadedLibrary> list_loaded_libraries(std::string_view maps);

// `subject` names the process.
Findings check_loaded_libraries(const std::vector<LoadedLibrary>& libraries,
                                const std::string& subject);

}  // namespace quarry::tools
