// SPDX-License-Identifier: Apache-2.0
// The C API's lifetime and configuration while the allocator is there, and that docs/tuning.md
// describes every option of the table.
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "api/config_options.hpp"
#include "api/config_parser.hpp"
#include "tests/unit/api/api_fixture.hpp"

namespace quarry {
namespace {

using testing_support::ApiTest;
using testing_support::error_says;

std::string get_conf() {
  char text[2048];
  EXPECT_EQ(quarry_get_conf(text, sizeof(text), nullptr), QUARRY_OK) << quarry_get_last_error();
  return text;
}

std::string read_file(const std::string& path) {
  std::ifstream file(QUARRY_SOURCE_DIR "/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class ConfigureApi : public ApiTest {};

TEST_F(ConfigureApi, AnOptionChangesWhatItNamesAndNothingElse) {
  ASSERT_EQ(quarry_configure("max_split_size_mb:64,throw_on_cudamalloc_oom:True"), QUARRY_OK);
  ASSERT_EQ(quarry_configure("upstream_quirks:False"), QUARRY_OK);
  Config expected;
  expected.max_split_bytes = 64_MiB;
  expected.throw_on_cudamalloc_oom = true;
  expected.upstream_quirks = false;
  EXPECT_EQ(get_conf(), format_config(expected));
}

TEST_F(ConfigureApi, TheTextNamesEveryOptionButTheAliasesThatTheDocumentsList) {
  const std::string text = "," + get_conf();
  EXPECT_TRUE(
      text.ends_with(",segments:plain,cross_stream_reuse:wait,recycle:stream,"
                     "reserve_slack:0.02,extent_handle_types:none,rdma:auto,thread_cache:True"))
      << text;
  std::set<std::string> left_out;
  for (const ConfigOption& option : get_config_options()) {
    const std::string name(option.name);
    if (text.find("," + name + ":") == std::string::npos) left_out.insert(name);
  }
  EXPECT_EQ(left_out,
            (std::set<std::string>{"expandable_segments", "backend", "release_lock_on_cudamalloc",
                                   "release_lock_on_hipmalloc"}));
  const std::string header = read_file("include/quarry/quarry.h");
  const std::string document = read_file("docs/tuning.md");
  const auto begin = document.find("It does not write the aliases");
  ASSERT_NE(begin, std::string::npos);
  const std::string listed = document.substr(begin, document.find("\n\n", begin) - begin);
  for (const std::string& name : left_out) {
    EXPECT_NE(header.find(name), std::string::npos) << name;
    EXPECT_NE(listed.find("`" + name + "`"), std::string::npos) << name;
  }
}

TEST_F(ConfigureApi, TheWrittenTextIsTakenBack) {
  ASSERT_EQ(quarry_configure("max_split_size_mb:64,roundup_power2_divisions:8,recycle:passed,"
                             "segments:expandable,cross_stream_reuse:idle,reserve_slack:0.5"),
            QUARRY_OK);
  const std::string text = get_conf();
  ASSERT_EQ(quarry_configure("max_split_size_mb:unlimited,roundup_power2_divisions:0,recycle:off,"
                             "segments:plain,cross_stream_reuse:off,reserve_slack:0"),
            QUARRY_OK);
  ASSERT_NE(get_conf(), text);
  EXPECT_EQ(quarry_configure(text.c_str()), QUARRY_OK) << quarry_get_last_error();
  EXPECT_EQ(get_conf(), text);
}

TEST_F(ConfigureApi, C55AFailedConfigureLeavesEverySetting) {
  ASSERT_EQ(quarry_configure("max_split_size_mb:64"), QUARRY_OK);
  const std::string before = get_conf();
  for (const char* bad : {"upstream_quirks:False,max_split_size_mb:abc", "foo_bar:3",
                          "upstream_quirks:False,roundup_power2_divisions:[1:2",
                          "max_split_size_mb:128,expandable_segments:yes"}) {
    EXPECT_EQ(quarry_configure(bad), QUARRY_ERROR_INVALID_ARGUMENT) << bad;
    EXPECT_EQ(get_conf(), before) << bad;
  }
  EXPECT_EQ(quarry_configure("max_split_size_mb:abc"), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("option 'max_split_size_mb': value 'abc' at offset 18"));
  EXPECT_EQ(quarry_configure(nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("conf is NULL"));
}

TEST_F(ConfigureApi, ASettingHoldsFromTheNextRequestOn) {
  ASSERT_EQ(quarry_configure("large_segment_size_mb:40"), QUARRY_OK);
  allocate(4 << 20);
  EXPECT_EQ(stat("reserved_bytes.all.current"), 40 << 20);
}

TEST_F(ConfigureApi, ConfiguringAnotherOptionKeepsAFractionThatTheApiSet) {
  ASSERT_EQ(quarry_set_memory_fraction(0, 0.25), QUARRY_OK);
  ASSERT_EQ(quarry_configure("max_split_size_mb:64"), QUARRY_OK);
  double fraction = 0;
  ASSERT_EQ(quarry_get_memory_fraction(0, &fraction), QUARRY_OK);
  EXPECT_EQ(fraction, 0.25);
  ASSERT_EQ(quarry_configure("per_process_memory_fraction:0.5"), QUARRY_OK);
  ASSERT_EQ(quarry_get_memory_fraction(0, &fraction), QUARRY_OK);
  EXPECT_EQ(fraction, 0.5);
  ASSERT_EQ(quarry_set_memory_fraction(0, 0.25), QUARRY_OK);
  ASSERT_EQ(quarry_configure("per_process_memory_fraction:0.5"), QUARRY_OK);  // what it was
  ASSERT_EQ(quarry_get_memory_fraction(0, &fraction), QUARRY_OK);
  EXPECT_EQ(fraction, 0.5);
}

TEST_F(ConfigureApi, TheTextIsWrittenAsFarAsItFits) {
  std::size_t needed = 0;
  EXPECT_EQ(quarry_get_conf(nullptr, 0, &needed), QUARRY_OK);
  EXPECT_EQ(needed, get_conf().size() + 1);
  std::string exact(needed, 'x');
  EXPECT_EQ(quarry_get_conf(exact.data(), exact.size(), nullptr), QUARRY_OK);
  char small[9] = "xxxxxxxx";
  EXPECT_EQ(quarry_get_conf(small, sizeof(small), &needed), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(small, get_conf().substr(0, 8));
  EXPECT_EQ(quarry_get_conf(nullptr, 10, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("buffer is NULL"));
}

TEST_F(ConfigureApi, InitIsIdempotentWithoutOptionsAndBusyWithThem) {
  EXPECT_EQ(quarry_init(nullptr), QUARRY_OK);
  quarry_init_options options = {};
  options.struct_size = sizeof(options);
  options.driver = QUARRY_DRIVER_SIM;
  EXPECT_EQ(quarry_init(&options), QUARRY_ERROR_BUSY);
  EXPECT_TRUE(error_says("already"));
}

TEST_F(ConfigureApi, ShutdownGivesAllBackAndLaterCallsSaySo) {
  void* held = allocate(4 << 20);
  ASSERT_EQ(quarry_shutdown(), QUARRY_OK);
  void* ptr = reinterpret_cast<void*>(1);
  EXPECT_EQ(quarry_malloc(&ptr, 512, 0, nullptr), QUARRY_ERROR_SHUT_DOWN);
  EXPECT_EQ(ptr, nullptr);
  EXPECT_TRUE(error_says("quarry_shutdown was called"));
  EXPECT_EQ(quarry_free_checked(held), QUARRY_ERROR_SHUT_DOWN);
  quarry_free(held);
  EXPECT_EQ(quarry_free_checked(nullptr), QUARRY_OK);
  quarry_stats stats = {};
  stats.struct_size = sizeof(stats);
  EXPECT_EQ(quarry_get_stats(0, &stats), QUARRY_ERROR_SHUT_DOWN);
  EXPECT_EQ(quarry_shutdown(), QUARRY_OK);
}

TEST_F(ConfigureApi, AfterAShutdownInitMakesANewAllocator) {
  allocate(4 << 20);
  ASSERT_EQ(quarry_shutdown(), QUARRY_OK);
  quarry_init_options options = {};
  options.struct_size = sizeof(options);
  options.driver = QUARRY_DRIVER_SIM;
  options.conf = "large_segment_size_mb:40";
  options.sim_device_count = 3;
  options.sim_memory_bytes = 64_MiB;
  ASSERT_EQ(quarry_init(&options), QUARRY_OK) << quarry_get_last_error();
  int count = 0;
  EXPECT_EQ(quarry_get_device_count(&count), QUARRY_OK);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(stat("allocated_bytes.all.current"), 0);
  allocate(4 << 20, 2);
  EXPECT_EQ(stat("reserved_bytes.all.current", 2), 40 << 20);
  void* ptr = nullptr;
  EXPECT_EQ(quarry_malloc(&ptr, 64 << 20, 2, nullptr), QUARRY_ERROR_OUT_OF_MEMORY);
}

TEST_F(ConfigureApi, BadInitOptionsAreRefusedByName) {
  ASSERT_EQ(quarry_shutdown(), QUARRY_OK);
  const auto refused = [](auto change) {
    quarry_init_options options = {};
    options.struct_size = sizeof(options);
    options.driver = QUARRY_DRIVER_SIM;
    change(options);
    return quarry_init(&options);
  };
  EXPECT_EQ(refused([](auto& o) { o.struct_size = 0; }), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("options->struct_size is 0"));
  // As from C, where an enum holds any int. It must not be loaded as an enum: that is undefined.
  const auto set_foreign_driver = [](quarry_init_options& o) {
    const int foreign = 77;
    std::memcpy(&o.driver, &foreign, sizeof(foreign));
  };
  EXPECT_EQ(refused(set_foreign_driver), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("options->driver is 77"));
  EXPECT_EQ(refused([](auto& o) { o.driver = static_cast<quarry_driver_kind>(3); }),
            QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("options->driver is 3"));
  EXPECT_EQ(refused([](auto& o) { o.sim_device_count = -1; }), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("options->sim_device_count is -1"));
  EXPECT_EQ(refused([](auto& o) { o.conf = "foo_bar:1"; }), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("'foo_bar'"));
}

TEST_F(ConfigureApi, TheCudaDriverStartsOrSaysWhatToDoInstead) {
  ASSERT_EQ(quarry_shutdown(), QUARRY_OK);
  quarry_init_options options = {};
  options.struct_size = sizeof(options);
  options.driver = QUARRY_DRIVER_CUDA;
  const quarry_status status = quarry_init(&options);
  if (status == QUARRY_OK) return;  // a machine with a GPU
  EXPECT_EQ(status, QUARRY_ERROR_NOT_SUPPORTED);
  EXPECT_TRUE(error_says("QUARRY_DRIVER=sim"));
}

TEST(Version, IsThatOfTheHeader) {
  EXPECT_EQ(quarry_get_version(),
            10000 * QUARRY_VERSION_MAJOR + 100 * QUARRY_VERSION_MINOR + QUARRY_VERSION_PATCH);
}

// A heading for each option, its default, and when to use it and when not.
TEST(TuningDocument, DescribesEveryOptionOfTheTable) {
  const std::string document = read_file("docs/tuning.md");
  for (const ConfigOption& option : get_config_options()) {
    const auto begin = document.find("\n### `" + std::string(option.name) + "`");
    ASSERT_NE(begin, std::string::npos) << "docs/tuning.md has no section for " << option.name;
    const std::string section = document.substr(begin, document.find("\n###", begin + 4) - begin);
    EXPECT_NE(section.find("Default: `" + std::string(option.default_text) + "`"),
              std::string::npos)
        << option.name;
    EXPECT_NE(section.find("Use it"), std::string::npos) << option.name;
    EXPECT_NE(section.find("Not "), std::string::npos) << option.name;
  }
}

}  // namespace
}  // namespace quarry
