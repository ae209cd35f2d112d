// SPDX-License-Identifier: Apache-2.0
#include "tests/layers/tree_rules.hpp"

#include <algorithm>
#include <set>
#include <sstream>

namespace quarry::layers {
namespace {

constexpr std::size_t kMaxLines = 400;
constexpr std::size_t kMaxColumns = 100;

const std::set<std::string, std::less<>> kStandardCHeaders = {
    "assert.h", "ctype.h",   "errno.h",  "float.h",  "inttypes.h", "limits.h", "math.h",
    "stdarg.h", "stdbool.h", "stddef.h", "stdint.h", "stdio.h",    "stdlib.h", "string.h"};

std::string trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t`");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t`") - begin + 1));
}

std::vector<std::string> split_at(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(trim(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool is_below(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

const Layer* find_layer(const Layers& layers, std::string_view path) {
  for (const Layer& layer : layers) {
    if (is_below(path, layer.folder)) return &layer;
  }
  return nullptr;
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string at(const SourceFile& file, std::size_t line) {
  return file.path + ":" + std::to_string(line) + ": ";
}

constexpr std::string_view kCudaFolders[] = {"cuda", "tests/gpu", "examples/cuda_graph",
                                             "bench/peers", "bench/driver_facts"};

// Of the Toolkit, or of a library that comes with it or needs it.
bool is_cuda_header(std::string_view name) {
  constexpr std::string_view kPrefixes[] = {"cuda",   "cupti",   "nvml",         "nvrtc",
                                            "nvtx3/", "nccl",    "driver_types", "vector_types",
                                            "cub/",   "thrust/", "c10/cuda/",    "rmm/"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_standard_header(std::string_view name, bool is_c) {
  if (kStandardCHeaders.count(name) > 0) return true;
  return !is_c && name.find_first_of("/.") == std::string_view::npos;
}

std::size_t count_columns(std::string_view line) {
  return static_cast<std::size_t>(std::count_if(
      line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

bool has_licence_line(const SourceFile& file) {
  const std::size_t place = !file.lines.empty() && file.lines[0].starts_with("#!") ? 1 : 0;
  if (file.lines.size() <= place) return false;
  const std::string& line = file.lines[place];
  return line == "// SPDX-License-Identifier: Apache-2.0" ||
         line == "# SPDX-License-Identifier: Apache-2.0";
}

}  // namespace

Layers parse_layer_table(std::string_view markdown) {
  Layers layers;
  std::istringstream stream{std::string(markdown)};
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with("|") || line.find('`') == std::string::npos) continue;
    const std::vector<std::string> cells = split_at(std::string_view(line).substr(1), '|');
    if (cells.size() < 4) continue;
    Layer layer{cells[0], cells[1], {}};
    if (cells[2] != "nothing") layer.may_include = split_at(cells[2], ',');
    layers.push_back(std::move(layer));
  }
  return layers;
}

Violations check_table(const Layers& layers) {
  Violations violations;
  std::vector<std::string> above;
  for (const Layer& layer : layers) {
    for (const std::string& name : layer.may_include) {
      if (contains(above, name)) continue;
      violations.push_back("src/README.md: " + layer.name + " may include " + name +
                           ", which does not stand above it");
    }
    above.push_back(layer.name);
  }
  return violations;
}

Violations check_layers(const SourceTree& tree, const Layers& layers) {
  Violations violations;
  for (const SourceFile& file : tree.files) {
    const Layer* from = find_layer(layers, file.path);
    for (const Include& include : file.includes) {
      const Layer* to = find_layer(layers, tree.resolve(file, include));
      if (to == nullptr || to == from) continue;
      if (from != nullptr && contains(from->may_include, to->name)) continue;
      violations.push_back(at(file, include.line) + (from != nullptr ? from->name : "no layer") +
                           " may not include " + to->name + " (" + include.name + ")");
    }
  }
  return violations;
}

Violations check_quoted_includes(const SourceTree& tree) {
  Violations violations;
  for (const SourceFile& file : tree.files) {
    for (const Include& include : file.includes) {
      if (!include.is_quoted || !tree.resolve(file, include).empty()) continue;
      violations.push_back(at(file, include.line) + "\"" + include.name + "\" is no file");
    }
  }
  return violations;
}

Violations check_cuda_headers(const SourceTree& tree) {
  Violations violations;
  for (const SourceFile& file : tree.files) {
    const auto holds_file = [&](std::string_view folder) { return is_below(file.path, folder); };
    if (std::any_of(std::begin(kCudaFolders), std::end(kCudaFolders), holds_file)) continue;
    for (const Include& include : file.includes) {
      if (!is_cuda_header(include.name) || !tree.resolve(file, include).empty()) continue;
      violations.push_back(
          at(file, include.line) + include.name +
          " is a CUDA header, and this is below no folder that may include those");
    }
  }
  return violations;
}

Violations check_public_headers(const SourceTree& tree) {
  Violations violations;
  for (const SourceFile& file : tree.files) {
    if (!is_below(file.path, "include")) continue;
    const bool is_c = file.path.ends_with(".h");
    for (const Include& include : file.includes) {
      const bool is_own = is_below(tree.resolve(file, include), "include/quarry") &&
                          (!is_c || include.name.ends_with(".h"));
      if (is_standard_header(include.name, is_c) || is_own) continue;
      violations.push_back(at(file, include.line) + include.name + " is no standard header" +
                           (is_c ? " of C" : ""));
    }
  }
  return violations;
}

Violations check_light_headers(const SourceTree& tree) {
  Violations violations;
  for (const SourceFile& file : tree.files) {
    if (!file.is_header() || is_below(file.path, "tests")) continue;
    for (const Include& include : file.includes) {
      for (const std::string_view library : {"fmt/", "spdlog/", "nlohmann/"}) {
        if (!include.name.starts_with(library)) continue;
        violations.push_back(at(file, include.line) + include.name + " in a header");
      }
    }
  }
  return violations;
}

Violations check_file_form(const SourceTree& tree) {
  Violations violations;
  for (const SourceFile& file : tree.files) {
    if (!has_licence_line(file)) violations.push_back(at(file, 1) + "no licence line");
    if (file.lines.size() >= kMaxLines) {
      violations.push_back(at(file, file.lines.size()) + std::to_string(file.lines.size()) +
                           " lines");
    }
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const std::size_t columns = count_columns(file.lines[i]);
      if (columns < kMaxColumns) continue;
      violations.push_back(at(file, i + 1) + std::to_string(columns) + " columns");
    }
  }
  return violations;
}

}  // namespace quarry::layers
