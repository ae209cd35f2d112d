// SPDX-License-Identifier: Apache-2.0
// The rules about the source tree find what they forbid: each is run on a small tree with a
// planted violation, and on the same tree without it.
#include "tests/layers/tree_rules.hpp"

#include <gtest/gtest.h>

#include <fstream>

namespace quarry::layers {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLicence = "// SPDX-License-Identifier: Apache-2.0\n";
constexpr std::string_view kTable =
    "| layer | folder | may include | what |\n"
    "|---|---|---|---|\n"
    "| base | `src/base` | nothing | ground |\n"
    "| core | `src/core` | base | middle |\n"
    "| capi | `include/quarry` | nothing | interface |\n"
    "| api | `src/api` | core, base | top |\n";

// A tree on disk for the length of one test.
class TreeRulesTest : public testing::Test {
 protected:
  TreeRulesTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(testing::TempDir()) / (std::string("quarry_tree_") + info->name());
    fs::remove_all(root_);
    write("src/base/a.hpp", "#include <string>\n");
    write("src/core/b.hpp", "#include \"base/a.hpp\"\n");
    write("src/core/b.cpp", "#include \"core/b.hpp\"\n#include \"b.hpp\"\n");
    write("src/api/c.cpp", "#include \"core/b.hpp\"\n#  include \"base/a.hpp\"\n");
    write("include/quarry/quarry.h", "#include <stdint.h>\n");
  }
  ~TreeRulesTest() override { fs::remove_all(root_); }

  // With the licence line before `text`.
  void write(const std::string& path, const std::string& text) {
    write_raw(path, kLicence + text);
  }
  void write_raw(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  SourceTree tree() const { return read_source_tree(root_); }
  Violations layer_violations() const { return check_layers(tree(), parse_layer_table(kTable)); }

  fs::path root_;
};

TEST_F(TreeRulesTest, ACleanTreePassesEveryRule) {
  EXPECT_EQ(tree().files.size(), 5u);
  EXPECT_EQ(check_table(parse_layer_table(kTable)), Violations());
  EXPECT_EQ(layer_violations(), Violations());
  EXPECT_EQ(check_quoted_includes(tree()), Violations());
  EXPECT_EQ(check_cuda_headers(tree()), Violations());
  EXPECT_EQ(check_public_headers(tree()), Violations());
  EXPECT_EQ(check_light_headers(tree()), Violations());
  EXPECT_EQ(check_file_form(tree()), Violations());
}

TEST_F(TreeRulesTest, TheTableIsReadRowByRow) {
  const Layers layers = parse_layer_table(kTable);
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_EQ(layers[0].name, "base");
  EXPECT_EQ(layers[0].may_include, std::vector<std::string>());
  EXPECT_EQ(layers[3].folder, "src/api");
  EXPECT_EQ(layers[3].may_include, (std::vector<std::string>{"core", "base"}));
}

TEST_F(TreeRulesTest, ARowThatNamesALayerBelowItIsFound) {
  const Layers layers = parse_layer_table(
      "| base | `src/base` | core | x |\n"
      "| core | `src/core` | base | x |\n");
  EXPECT_EQ(check_table(layers),
            Violations{"src/README.md: base may include core, which does not stand above it"});
}

TEST_F(TreeRulesTest, AnIncludeThatPointsUpIsFound) {
  write("src/base/bad.hpp", "\n#include \"core/b.hpp\"\n");
  EXPECT_EQ(layer_violations(),
            Violations{"src/base/bad.hpp:3: base may not include core (core/b.hpp)"});
}

TEST_F(TreeRulesTest, AnIncludeThatPointsUpThroughARelativePathIsFound) {
  write("src/base/bad.cpp", " # include \"../core/b.hpp\"\n");
  EXPECT_EQ(layer_violations(),
            Violations{"src/base/bad.cpp:2: base may not include core (../core/b.hpp)"});
}

TEST_F(TreeRulesTest, AnAngledIncludeOfTheProjectIsFoundToo) {
  write("src/core/bad.cpp", "#include <quarry/quarry.h>\n");
  EXPECT_EQ(layer_violations(),
            Violations{"src/core/bad.cpp:2: core may not include capi (quarry/quarry.h)"});
}

TEST_F(TreeRulesTest, AFileOutsideEveryLayerMayIncludeNone) {
  write("bench/bad.cpp", "#include \"base/a.hpp\"\n");
  EXPECT_EQ(layer_violations(),
            Violations{"bench/bad.cpp:2: no layer may not include base (base/a.hpp)"});
}

TEST_F(TreeRulesTest, AQuotedIncludeOfNoFileIsFound) {
  write("src/core/bad.cpp", "#include \"core/gone.hpp\"\n");
  EXPECT_EQ(check_quoted_includes(tree()),
            Violations{"src/core/bad.cpp:2: \"core/gone.hpp\" is no file"});
}

TEST_F(TreeRulesTest, ACudaHeaderIsFoundWhereItMayNotBe) {
  write("cuda/good.cpp", "#include <cuda.h>\n");
  write("tests/gpu/good.cu", "#include <cuda_runtime.h>\n");
  write("examples/cuda_graph/good.hpp", "#include <cuda.h>\n");
  write("bench/peers/good.cpp", "#include <rmm/cuda_device.hpp>\n");
  write("bench/bad.cpp", "#include <c10/cuda/CUDAFunctions.h>\n");
  write("src/core/bad.cpp", "#include <cuda_runtime_api.h>\n");
  write("tests/bad.cpp", "#include \"nvml.h\"\n");
  write("bench/driver_facts/good.cu", "#include <cuda.h>\n");
  const std::string why = " is a CUDA header, and this is below no folder that may include those";
  EXPECT_EQ(check_cuda_headers(tree()),
            (Violations{"bench/bad.cpp:2: c10/cuda/CUDAFunctions.h" + why,
                        "src/core/bad.cpp:2: cuda_runtime_api.h" + why,
                        "tests/bad.cpp:2: nvml.h" + why}));
}

TEST_F(TreeRulesTest, APublicHeaderThatNeedsMoreThanStandardHeadersIsFound) {
  write("include/quarry/good.hpp", "#include \"quarry/quarry.h\"\n#include <memory>\n");
  write("include/quarry/good.h", "#include \"quarry/quarry.h\"\n");
  write("include/quarry/bad.h",
        "#include <memory>\n#include <sys/types.h>\n#include \"quarry/good.hpp\"\n");
  write("include/quarry/bad.hpp", "#include \"base/a.hpp\"\n");
  EXPECT_EQ(check_public_headers(tree()),
            (Violations{"include/quarry/bad.h:2: memory is no standard header of C",
                        "include/quarry/bad.h:3: sys/types.h is no standard header of C",
                        "include/quarry/bad.h:4: quarry/good.hpp is no standard header of C",
                        "include/quarry/bad.hpp:2: base/a.hpp is no standard header"}));
}

TEST_F(TreeRulesTest, AHeavyLibraryInAHeaderIsFound) {
  write("src/base/bad.hpp", "#include <fmt/format.h>\n");
  write("src/base/good.cpp", "#include <fmt/format.h>\n");
  EXPECT_EQ(check_light_headers(tree()),
            Violations{"src/base/bad.hpp:2: fmt/format.h in a header"});
}

TEST_F(TreeRulesTest, AMissingLicenceLineIsFound) {
  write_raw("src/base/bad.hpp", "#pragma once\n");
  write_raw("src/base/empty.hpp", "");
  write_raw("tests/good.sh", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n");
  write_raw("tests/CMakeLists.txt", "# SPDX-License-Identifier: MIT\n");
  EXPECT_EQ(check_file_form(tree()), (Violations{"src/base/bad.hpp:1: no licence line",
                                                 "src/base/empty.hpp:1: no licence line",
                                                 "tests/CMakeLists.txt:1: no licence line"}));
}

TEST_F(TreeRulesTest, AFileOfFourHundredLinesIsFound) {
  std::string text;
  for (int i = 0; i < 398; ++i)
    text += "\n";
  write("src/base/good.cpp", text);
  write("src/base/long.cpp", text + "\n");
  EXPECT_EQ(check_file_form(tree()), Violations{"src/base/long.cpp:400: 400 lines"});
}

TEST_F(TreeRulesTest, ALineOfAHundredColumnsIsFoundAndColumnsAreNotBytes) {
  std::string two_bytes_each;
  for (int i = 0; i < 97; ++i)
    two_bytes_each += "\u00b5";
  write("src/base/good.cpp", "//" + two_bytes_each + "\n");
  write("src/base/wide.cpp", "//" + std::string(98, 'x') + "\n");
  EXPECT_EQ(check_file_form(tree()), Violations{"src/base/wide.cpp:2: 100 columns"});
}

}  // namespace
}  // namespace quarry::layers
