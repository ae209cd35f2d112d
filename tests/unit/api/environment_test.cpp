// SPDX-License-Identifier: Apache-2.0
// How the allocator comes to be: by the first call, from the environment. Each test runs in a
// child process, whose parent never makes an allocator.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "quarry/quarry.h"
#include "tests/unit/api/child_process.hpp"

namespace quarry {
namespace {

using testing_support::left_well;
using testing_support::run_in_child;

bool error_says(const char* piece) {
  return std::strstr(quarry_get_last_error(), piece) != nullptr;
}

quarry_status request(std::size_t bytes, int device = 0) {
  void* ptr = nullptr;
  return quarry_malloc(&ptr, bytes, device, nullptr);
}

TEST(Environment, TheFirstCallMakesTheAllocator) {
  EXPECT_TRUE(left_well(run_in_child([] {
    ::setenv("QUARRY_DRIVER", "sim", 1);
    ::setenv("QUARRY_SIM_DEVICES", "3", 1);
    ::setenv("QUARRY_SIM_MEMORY", "64M", 1);
    ::setenv("QUARRY_CONF", "large_segment_size_mb:40", 1);
    CHILD_EXPECT(request(4 << 20, 2) == QUARRY_OK);
    std::int64_t reserved = 0;
    CHILD_EXPECT(quarry_get_stat(2, "reserved_bytes.all.current", &reserved) == QUARRY_OK);
    CHILD_EXPECT(reserved == 40 << 20);
    CHILD_EXPECT(request(60 << 20, 2) == QUARRY_ERROR_OUT_OF_MEMORY);
    CHILD_EXPECT(request(512, 3) == QUARRY_ERROR_INVALID_ARGUMENT);
  })));
}

TEST(Environment, AnyCallMayBeTheFirstAndManyThreadsMakeOneAllocator) {
  EXPECT_TRUE(left_well(run_in_child([] {
    ::setenv("QUARRY_DRIVER", "sim", 1);
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        if (request(1000) != QUARRY_OK) ++failures;
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    CHILD_EXPECT(failures == 0);
    std::int64_t blocks = 0;
    CHILD_EXPECT(quarry_get_stat(0, "allocation.all.current", &blocks) == QUARRY_OK);
    CHILD_EXPECT(blocks == 8);
  })));
}

TEST(Environment, WithoutADriverChoiceTheErrorSaysWhatToDo) {
  EXPECT_TRUE(left_well(run_in_child([] {
    ::unsetenv("QUARRY_DRIVER");
    const quarry_status status = request(512);
    if (status == QUARRY_OK) return;  // a machine with a GPU
    CHILD_EXPECT(status == QUARRY_ERROR_NOT_SUPPORTED);
    CHILD_EXPECT(error_says("QUARRY_DRIVER=sim"));
    ::setenv("QUARRY_DRIVER", "cuda", 1);
    CHILD_EXPECT(quarry_init(nullptr) == QUARRY_ERROR_NOT_SUPPORTED);
    // A failure leaves nothing behind: the next call tries again.
    ::setenv("QUARRY_DRIVER", "sim", 1);
    CHILD_EXPECT(request(512) == QUARRY_OK);
  })));
}

TEST(Environment, ABadVariableIsRefusedByName) {
  struct BadVariable {
    const char* name;
    const char* value;
  };
  for (const BadVariable bad : {BadVariable{"QUARRY_DRIVER", "simulated"},
                                {"QUARRY_SIM_DEVICES", "0"},
                                {"QUARRY_SIM_DEVICES", "65"},
                                {"QUARRY_SIM_DEVICES", "two"},
                                {"QUARRY_SIM_MEMORY", "1"},
                                {"QUARRY_SIM_MEMORY", "10X"},
                                {"QUARRY_SIM_MEMORY", "64MB"},
                                {"QUARRY_SIM_MEMORY", "99999999999T"},
                                {"QUARRY_DISABLE", "yes"},
                                {"QUARRY_CONF", "foo_bar:1"}}) {
    EXPECT_TRUE(left_well(run_in_child([&] {
      ::setenv("QUARRY_DRIVER", "sim", 1);
      ::setenv(bad.name, bad.value, 1);
      CHILD_EXPECT(request(512) == QUARRY_ERROR_INVALID_ARGUMENT);
      CHILD_EXPECT(error_says(bad.name));
      CHILD_EXPECT(error_says("allowed"));
    }))) << bad.name
         << "=" << bad.value;
  }
}

// What the library writes to stderr while `body` runs. For a child.
template <class Body>
std::string capture_stderr(Body&& body) {
  std::FILE* file = std::tmpfile();
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  body();
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  std::string text(4096, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(Environment, AnUnknownLogLevelIsToldWhenTheAllocatorIsMade) {
  EXPECT_TRUE(left_well(run_in_child([] {
    ::setenv("QUARRY_DRIVER", "sim", 1);
    ::setenv("QUARRY_LOG_LEVEL", "loud", 1);
    const std::string log =
        capture_stderr([] { CHILD_EXPECT(quarry_init(nullptr) == QUARRY_OK); });
    CHILD_EXPECT(log.find("\"loud\" allowed=debug,info") != std::string::npos);
    CHILD_EXPECT(log.find("event=start") == std::string::npos);
  })));
}

TEST(Environment, TheFirstLineOfADebugLogSaysWithWhatTheAllocatorStarts) {
  EXPECT_TRUE(left_well(run_in_child([] {
    ::setenv("QUARRY_DRIVER", "sim", 1);
    ::setenv("QUARRY_SIM_DEVICES", "3", 1);
    ::setenv("QUARRY_LOG_LEVEL", "debug", 1);
    ::setenv("QUARRY_CONF", "large_segment_size_mb:40", 1);
    const std::string log =
        capture_stderr([] { CHILD_EXPECT(quarry_init(nullptr) == QUARRY_OK); });
    CHILD_EXPECT(log.find("event=start devices=3 conf=\"large_segment_size_mb:40,") !=
                 std::string::npos);
  })));
}

TEST(Environment, C55LenientModeTakesWhatItKnows) {
  EXPECT_TRUE(left_well(run_in_child([] {
    ::setenv("QUARRY_DRIVER", "sim", 1);
    ::setenv("QUARRY_CONF", "foo_bar:1,large_segment_size_mb:40", 1);
    ::setenv("QUARRY_CONF_LENIENT", "1", 1);
    CHILD_EXPECT(request(4 << 20) == QUARRY_OK);
    std::int64_t reserved = 0;
    CHILD_EXPECT(quarry_get_stat(0, "reserved_bytes.all.current", &reserved) == QUARRY_OK);
    CHILD_EXPECT(reserved == 40 << 20);
  })));
}

TEST(Environment, FreesMakeNoAllocator) {
  EXPECT_TRUE(left_well(run_in_child([] {
    int on_the_host = 0;
    quarry_free(&on_the_host);
    quarry_free(nullptr);
    CHILD_EXPECT(quarry_free_checked(&on_the_host) == QUARRY_ERROR_INVALID_POINTER);
    CHILD_EXPECT(quarry_free_checked(nullptr) == QUARRY_OK);
    CHILD_EXPECT(quarry_record_stream(&on_the_host, nullptr) == QUARRY_ERROR_INVALID_POINTER);
    CHILD_EXPECT(quarry_shutdown() == QUARRY_OK);
  })));
}

TEST(Environment, TheKillSwitchWorksThoughTheConfigurationIsWrong) {
  EXPECT_TRUE(left_well(run_in_child([] {
    ::setenv("QUARRY_DRIVER", "sim", 1);
    ::setenv("QUARRY_DISABLE", "1", 1);
    ::setenv("QUARRY_CONF", "foo_bar:1", 1);
    ::setenv("QUARRY_LOG_LEVEL", "off", 1);
    CHILD_EXPECT(request(1000) == QUARRY_OK);
    std::int64_t reserved = 0;
    CHILD_EXPECT(quarry_get_stat(0, "reserved_bytes.all.current", &reserved) == QUARRY_OK);
    CHILD_EXPECT(reserved == 1000);
  })));
}

TEST(Environment, AChildOfAProcessWithoutAnAllocatorMakesItsOwn) {
  EXPECT_TRUE(left_well(run_in_child([] {
    ::setenv("QUARRY_DRIVER", "sim", 1);
    // This is a child already, of the test program; and so is its own child.
    CHILD_EXPECT(left_well(run_in_child([] { CHILD_EXPECT(request(512) == QUARRY_OK); })));
    CHILD_EXPECT(request(512) == QUARRY_OK);
  })));
}

}  // namespace
}  // namespace quarry
