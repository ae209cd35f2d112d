// SPDX-License-Identifier: Apache-2.0
#include "tools/process_check.hpp"

#include <algorithm>
#include <set>

namespace quarry::tools {
namespace {

// The word at the start of `line`, which is taken off it with the spaces after it.
std::string_view take_word(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
  return word;
}

std::vector<std::string> list_paths(const std::vector<LoadedLibrary>& libraries,
                                    LibraryKind kind) {
  std::vector<std::string> paths;
  for (const LoadedLibrary& loaded : libraries) {
    if (loaded.library.kind == kind) paths.push_back(loaded.path);
  }
  return paths;
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words)
    text += (text.empty() ? "" : ", ") + word;
  return text;
}

void check_copies(const std::vector<std::string>& paths, const char* what,
                  const std::string& subject, const char* advice, Findings& findings) {
  if (paths.size() < 2) return;
  findings.push_back(
      {Severity::kHurts, subject,
       "has loaded " + std::to_string(paths.size()) + " copies of " + what + ": " + join(paths),
       advice});
}

}  // namespace

std::vector<LoadedLibrary> list_loaded_libraries(std::string_view maps) {
  std::vector<LoadedLibrary> libraries;
  std::set<std::string, std::less<>> seen;
  while (!maps.empty()) {
    const std::size_t end = std::min(maps.find('\n'), maps.size());
    std::string_view line = maps.substr(0, end);
    maps.remove_prefix(std::min(end + 1, maps.size()));
    // "7f00-7f10 r-xp 00000000 08:01 1234   /usr/lib/libquarry.so.0.1.0"
    for (int word = 0; word < 3; ++word)
      take_word(line);
    std::string file(take_word(line));
    file += " ";
    file += take_word(line);
    if (line.empty() || !seen.insert(file).second) continue;
    const KnownLibrary library = recognise_library(line);
    if (library.kind != LibraryKind::kUnknown) libraries.push_back({std::string(line), library});
  }
  return libraries;
}

Findings check_loaded_libraries(const std::vector<LoadedLibrary>& libraries,
                                const std::string& subject) {
  Findings findings;
  const auto quarries = list_paths(libraries, LibraryKind::kQuarry);
  const auto shims = list_paths(libraries, LibraryKind::kQuarryShim);
  check_copies(quarries, "libquarry", subject,
               "make all parts of the program load the same file: each copy caches for itself",
               findings);
  check_copies(shims, "Quarry's shim", subject, "preload one", findings);
  check_copies(list_paths(libraries, LibraryKind::kCudaDriver), "libcuda", subject,
               "take the bundled one out of the library path: two drivers do not share memory",
               findings);
  if (!quarries.empty() && !shims.empty()) {
    findings.push_back({Severity::kHurts, subject,
                        "has loaded libquarry and its shim, which cache on top of each other",
                        "use one of them: the library where the program calls quarry_*, the shim "
                        "where it does not"});
  }
  for (const std::string& hook : list_paths(libraries, LibraryKind::kCudaHook)) {
    findings.push_back({Severity::kHurts, subject,
                        "has loaded " + hook + " (" + recognise_library(hook).name +
                            "), which stands between it and the CUDA driver",
                        "take it out unless its limits are what you want"});
  }
  if (quarries.empty() && shims.empty()) {
    findings.push_back({Severity::kNote, subject,
                        "has loaded no libquarry (a program that is linked with libquarry.a "
                        "cannot be told from one without)",
                        "look for quarry_ in its symbols if it should use Quarry"});
    return findings;
  }
  for (const std::string& other : list_paths(libraries, LibraryKind::kGpuAllocator)) {
    findings.push_back(
        {Severity::kNote, subject,
         "has loaded " + other + " (" + recognise_library(other).name + ") beside Quarry",
         "make it allocate through Quarry where it can; what it caches itself is "
         "external memory to Quarry"});
  }
  return findings;
}

}  // namespace quarry::tools
