// SPDX-License-Identifier: Apache-2.0
// This source tree obeys the table of layers in src/README.md and the rules of file form. That the
// rules find violations is shown in tree_rules_test.cpp.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/layers/tree_rules.hpp"

namespace quarry::layers {
namespace {

const SourceTree& get_tree() {
  static const SourceTree tree = read_source_tree(QUARRY_SOURCE_DIR);
  return tree;
}

const Layers& get_layers() {
  static const Layers layers = [] {
    std::ifstream stream(get_tree().root / "src/README.md");
    std::ostringstream text;
    text << stream.rdbuf();
    return parse_layer_table(text.str());
  }();
  return layers;
}

std::string join(const Violations& violations) {
  std::string text;
  for (const std::string& violation : violations)
    text += violation + "\n";
  return text;
}

TEST(SourceTreeTest, TheTableNamesEveryFolderWithCode) {
  ASSERT_GE(get_layers().size(), 10u);
  ASSERT_GE(get_tree().files.size(), 50u);
  std::string outside;
  for (const SourceFile& file : get_tree().files) {
    if (file.includes.empty()) continue;
    bool is_inside = false;
    for (const Layer& layer : get_layers())
      is_inside |= file.path.starts_with(layer.folder + "/");
    if (!is_inside) outside += file.path + "\n";
  }
  EXPECT_EQ(outside, "");
}

TEST(SourceTreeTest, TheTableStandsBottomUp) {
  EXPECT_EQ(join(check_table(get_layers())), "");
}

TEST(SourceTreeTest, EveryIncludePointsDown) {
  EXPECT_EQ(join(check_layers(get_tree(), get_layers())), "");
}

TEST(SourceTreeTest, EveryQuotedIncludeIsAFileOfTheProject) {
  EXPECT_EQ(join(check_quoted_includes(get_tree())), "");
}

TEST(SourceTreeTest, CudaHeadersAreBelowCudaAndInTheTestsOfTheGpuOnly) {
  EXPECT_EQ(join(check_cuda_headers(get_tree())), "");
}

TEST(SourceTreeTest, PublicHeadersNeedStandardHeadersOnly) {
  EXPECT_EQ(join(check_public_headers(get_tree())), "");
}

TEST(SourceTreeTest, HeadersOfTheProductStayLight) {
  EXPECT_EQ(join(check_light_headers(get_tree())), "");
}

TEST(SourceTreeTest, EveryFileIsLicensedAndOfReadableSize) {
  EXPECT_EQ(join(check_file_form(get_tree())), "");
}

}  // namespace
}  // namespace quarry::layers
