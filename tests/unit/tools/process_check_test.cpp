// SPDX-License-Identifier: Apache-2.0
// Reading /proc/PID/maps: which files there are, and what several of them mean.
#include "tools/process_check.hpp"

#include <gtest/gtest.h>

namespace quarry::tools {
namespace {

std::string map_line(const std::string& inode, const std::string& path) {
  return "7f0000000000-7f0000001000 r-xp 00000000 08:01 " + inode + "      " + path + "\n";
}

std::vector<LibraryKind> list_kinds(const std::string& maps) {
  std::vector<LibraryKind> kinds;
  for (const LoadedLibrary& loaded : list_loaded_libraries(maps))
    kinds.push_back(loaded.library.kind);
  return kinds;
}

// "HURTS: text" of each finding.
std::vector<std::string> check(const std::string& maps) {
  std::vector<std::string> lines;
  for (const Finding& finding : check_loaded_libraries(list_loaded_libraries(maps), "process 7")) {
    EXPECT_EQ(finding.subject, "process 7");
    EXPECT_NE(finding.advice, "");
    lines.push_back((finding.severity == Severity::kHurts ? "HURTS: " : "note: ") + finding.text);
  }
  return lines;
}

TEST(ListLoadedLibraries, CountsAFileOnceHoweverOftenItIsMapped) {
  const std::string maps = map_line("11", "/opt/lib/libquarry.so.0.1.0") +
                           map_line("11", "/opt/lib/libquarry.so.0.1.0") +
                           map_line("12", "/usr/lib/libm.so.6") +
                           "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0    [stack]\n"
                           "7f0000002000-7f0000003000 rw-p 00000000 00:00 0 \n";
  const auto libraries = list_loaded_libraries(maps);
  ASSERT_EQ(libraries.size(), 1u);
  EXPECT_EQ(libraries[0].path, "/opt/lib/libquarry.so.0.1.0");
  EXPECT_EQ(libraries[0].library.kind, LibraryKind::kQuarry);
}

TEST(ListLoadedLibraries, TellsFilesApartByDeviceAndInodeNotByName) {
  // One file under two names (a hard link), and two files of one name.
  EXPECT_EQ(list_kinds(map_line("11", "/a/libquarry.so") + map_line("11", "/b/libquarry.so")),
            (std::vector<LibraryKind>{LibraryKind::kQuarry}));
  EXPECT_EQ(list_kinds("1-2 r-xp 0 08:01 11 /a/libquarry.so\n1-2 r-xp 0 08:02 11 /a/libquarry.so"),
            (std::vector<LibraryKind>{LibraryKind::kQuarry, LibraryKind::kQuarry}));
}

TEST(ListLoadedLibraries, KnowsOtherAllocators) {
  const std::string maps =
      map_line("1", "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04") +
      map_line("2", "/venv/torch/lib/libc10_cuda.so") +
      map_line("3", "/venv/librmm/lib64/librmm.so (deleted)") +
      map_line("4", "/venv/cupy/cuda/memory.cpython-312-x86_64-linux-gnu.so") +
      map_line("5", "/venv/jax_plugins/xla_cuda13/xla_cuda_plugin.so") +
      map_line("6", "/opt/with space/libvgpu.so") + map_line("7", "/opt/libquarry_preload.so");
  EXPECT_EQ(list_kinds(maps),
            (std::vector<LibraryKind>{LibraryKind::kCudaDriver, LibraryKind::kGpuAllocator,
                                      LibraryKind::kGpuAllocator, LibraryKind::kGpuAllocator,
                                      LibraryKind::kGpuAllocator, LibraryKind::kCudaHook,
                                      LibraryKind::kQuarryShim}));
  EXPECT_EQ(list_loaded_libraries(maps)[5].path, "/opt/with space/libvgpu.so");
}

TEST(ListLoadedLibraries, SurvivesTextThatIsNoMap) {
  for (const char* text : {"", "\n\n", "x", "a b c d e", "          ", "libquarry.so\n"})
    EXPECT_TRUE(list_kinds(text).empty()) << text;
}

TEST(CheckLoadedLibraries, FindsSeveralQuarries) {
  const auto findings =
      check(map_line("11", "/a/libquarry.so.0") + map_line("12", "/b/libquarry.so.0"));
  EXPECT_EQ(findings, (std::vector<std::string>{"HURTS: has loaded 2 copies of libquarry: "
                                                "/a/libquarry.so.0, /b/libquarry.so.0"}));
}

TEST(CheckLoadedLibraries, FindsTheShimOnTopOfTheLibrary) {
  const auto findings =
      check(map_line("11", "/a/libquarry.so.0") + map_line("12", "/a/libquarry_preload.so"));
  EXPECT_EQ(findings,
            (std::vector<std::string>{
                "HURTS: has loaded libquarry and its shim, which cache on top of each other"}));
}

TEST(CheckLoadedLibraries, FindsHooksAndASecondDriver) {
  const auto findings =
      check(map_line("1", "/a/libcuda.so.1") + map_line("2", "/b/libcuda.so.580") +
            map_line("3", "/c/libvgpu.so") + map_line("4", "/d/libquarry.so"));
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0],
            "HURTS: has loaded 2 copies of libcuda: /a/libcuda.so.1, "
            "/b/libcuda.so.580");
  EXPECT_NE(findings[1].find("HURTS: has loaded /c/libvgpu.so (HAMi-core"), std::string::npos);
}

TEST(CheckLoadedLibraries, NamesAllocatorsBesideQuarry) {
  const auto findings =
      check(map_line("1", "/a/libquarry.so") + map_line("2", "/a/libc10_cuda.so"));
  EXPECT_EQ(findings,
            (std::vector<std::string>{
                "note: has loaded /a/libc10_cuda.so (PyTorch's allocator) beside Quarry"}));
  EXPECT_EQ(check(map_line("1", "/a/libquarry.so")), std::vector<std::string>{});
}

TEST(CheckLoadedLibraries, SaysThatThereIsNoQuarry) {
  const auto findings = check(map_line("2", "/a/libc10_cuda.so"));
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].rfind("note: has loaded no libquarry", 0), 0u) << findings[0];
}

}  // namespace
}  // namespace quarry::tools
