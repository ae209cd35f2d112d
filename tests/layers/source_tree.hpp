// SPDX-License-Identifier: Apache-2.0
// The project's source files as text, for rules about them: which files there are, their lines,
// and what they include. Reads the disk once; knows no rule itself.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace quarry::layers {

struct Include {
  int line = 0;  // from 1
  std::string name;
  bool is_quoted = false;  // "name" and not <name>
};

struct SourceFile {
  std::string path;  // from the root, with '/'
  std::vector<std::string> lines;
  std::vector<Include> includes;

  bool is_header() const { return path.ends_with(".hpp") || path.ends_with(".h"); }
};

struct SourceTree {
  std::filesystem::path root;
  std::vector<SourceFile> files;  // by path

  // The file that `include` names from within `from`: beside it, else below src/, include/ or the
  // root. Empty if there is none.
  std::string resolve(const SourceFile& from, const Include& include) const;
};

// The sources, scripts and build files below the folders that hold code, and the build file of the
// root.
SourceTree read_source_tree(const std::filesystem::path& root);

}  // namespace quarry::layers
