// SPDX-License-Identifier: Apache-2.0
// The rules that the source tree obeys: layers, foreign headers, and the form of files. Each rule
// returns its violations as lines "file:line: what is wrong"; none means that it holds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/layers/source_tree.hpp"

namespace quarry::layers {

struct Layer {
  std::string name;
  std::string folder;
  std::vector<std::string> may_include;  // names of layers
};

using Layers = std::vector<Layer>;  // bottom-up
using Violations = std::vector<std::string>;

// The rows of the table in src/README.md: | name | `folder` | layers or nothing | ... |
Layers parse_layer_table(std::string_view markdown);

// Every row names only layers that stand above it.
Violations check_table(const Layers& layers);
// Every included file of the project is of the same layer or of one that the table allows.
Violations check_layers(const SourceTree& tree, const Layers& layers);
// Every "quoted" include names a file of the project.
Violations check_quoted_includes(const SourceTree& tree);
// Headers of the CUDA Toolkit and its libraries appear below cuda/ only, in tests/gpu, which runs
// kernels, in examples/cuda_graph, which captures them, and in bench/peers, which measures other
// allocators.
Violations check_cuda_headers(const SourceTree& tree);
// The public headers include standard headers and each other; the C header only C's.
Violations check_public_headers(const SourceTree& tree);
// Headers of the product stay light: formatting, logging and JSON libraries appear in .cpp files
// only.
Violations check_light_headers(const SourceTree& tree);
// The licence line first (in a script: second); under 400 lines; every line under 100 columns.
Violations check_file_form(const SourceTree& tree);

}  // namespace quarry::layers
