// SPDX-License-Identifier: Apache-2.0
#include "tests/layers/source_tree.hpp"

#include <algorithm>
#include <fstream>
#include <optional>

namespace quarry::layers {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolders[] = {"src",   "cuda",     "include", "tests",
                                    "bench", "examples", "cmake"};
constexpr const char* kExtensions[] = {".hpp", ".h",   ".cpp",   ".c",  ".cc",
                                       ".cu",  ".cuh", ".cmake", ".sh", ".py"};

bool is_source(const fs::path& path) {
  if (path.filename() == "CMakeLists.txt") return true;
  return std::find(std::begin(kExtensions), std::end(kExtensions), path.extension().string()) !=
         std::end(kExtensions);
}

// `# include <name>` or `# include "name"`, with any white space before and after the #.
std::optional<Include> parse_include(const std::string& line, int number) {
  std::size_t at = line.find_first_not_of(" \t");
  if (at == std::string::npos || line[at] != '#') return std::nullopt;
  at = line.find_first_not_of(" \t", at + 1);
  if (at == std::string::npos || line.compare(at, 7, "include") != 0) return std::nullopt;
  at = line.find_first_not_of(" \t", at + 7);
  if (at == std::string::npos || (line[at] != '"' && line[at] != '<')) return std::nullopt;
  const bool is_quoted = line[at] == '"';
  const std::size_t end = line.find(is_quoted ? '"' : '>', at + 1);
  if (end == std::string::npos) return std::nullopt;
  return Include{number, line.substr(at + 1, end - at - 1), is_quoted};
}

SourceFile read_file(const fs::path& root, const fs::path& path) {
  SourceFile file;
  file.path = path.lexically_relative(root).generic_string();
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) {
    file.lines.push_back(line);
    if (auto include = parse_include(line, static_cast<int>(file.lines.size()))) {
      file.includes.push_back(*include);
    }
  }
  return file;
}

}  // namespace

std::string SourceTree::resolve(const SourceFile& from, const Include& include) const {
  const fs::path beside = fs::path(from.path).parent_path();
  for (const fs::path& folder : {beside, fs::path("src"), fs::path("include"), fs::path()}) {
    const fs::path candidate = (folder / include.name).lexically_normal();
    if (fs::is_regular_file(root / candidate)) return candidate.generic_string();
  }
  return {};
}

SourceTree read_source_tree(const fs::path& root) {
  SourceTree tree{root, {}};
  for (const char* folder : kFolders) {
    if (!fs::is_directory(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      tree.files.push_back(read_file(root, entry.path()));
    }
  }
  if (fs::is_regular_file(root / "CMakeLists.txt")) {
    tree.files.push_back(read_file(root, root / "CMakeLists.txt"));
  }
  std::sort(tree.files.begin(), tree.files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return tree;
}

}  // namespace quarry::layers
