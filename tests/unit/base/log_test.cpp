// SPDX-License-Identifier: Apache-2.0
// The level is read from the environment once a process, so each test logs in a process of its
// own.
#include "base/log.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace quarry {
namespace {

class LogDeathTest : public testing::Test {
 protected:
  LogDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

[[noreturn]] void log_everything(const char* level) {
  if (level != nullptr) {
    setenv("QUARRY_LOG_LEVEL", level, 1);
  } else {
    unsetenv("QUARRY_LOG_LEVEL");
  }
  log_debug("event=d");
  log_info("event=i");
  log_warning("event=w");
  log_error("event=e");
  std::exit(0);
}

TEST_F(LogDeathTest, WarningsAndErrorsAreWrittenByDefault) {
  EXPECT_EXIT(
      log_everything(nullptr), testing::ExitedWithCode(0),
      "^[-0-9T:.]+ quarry level=warning event=w\n[-0-9T:.]+ quarry level=error event=e\n$");
}

TEST_F(LogDeathTest, DebugWritesAllFour) {
  EXPECT_EXIT(log_everything("debug"), testing::ExitedWithCode(0),
              "event=d\n.*event=i\n.*event=w\n.*event=e\n$");
}

TEST_F(LogDeathTest, ErrorWritesErrorsOnly) {
  EXPECT_EXIT(log_everything("error"), testing::ExitedWithCode(0),
              "^[-0-9T:.]+ quarry level=error event=e\n$");
}

TEST_F(LogDeathTest, OffWritesNothing) {
  EXPECT_EXIT(log_everything("off"), testing::ExitedWithCode(0), "^$");
}

TEST_F(LogDeathTest, EachAllowedLevelIsTakenWithoutAWarning) {
  for (const char* level : {"debug", "info", "warning", "error", "off", ""}) {
    EXPECT_EXIT(
        {
          setenv("QUARRY_LOG_LEVEL", level, 1);
          log_debug("event=d");
          std::exit(0);
        },
        testing::ExitedWithCode(0),
        level == std::string("debug") ? "level=debug event=d\n$" : "^$")
        << level;
  }
}

TEST_F(LogDeathTest, AnUnknownLevelIsNamedOnceAndTheDefaultHolds) {
  EXPECT_EXIT(log_everything("loud"), testing::ExitedWithCode(0),
              "^[-0-9T:.]+ quarry level=warning event=unknown_log_level QUARRY_LOG_LEVEL=\"loud\" "
              "allowed=debug,info,warning,error,off used=warning\n"
              "[-0-9T:.]+ quarry level=warning event=w\n[-0-9T:.]+ quarry level=error event=e\n$");
}

TEST_F(LogDeathTest, AnUnknownLevelOfAnyTextIsOneShortLine) {
  EXPECT_EXIT(log_everything(("a\nb\"" + std::string(100, 'x')).c_str()),
              testing::ExitedWithCode(0),
              "^[^\n]* QUARRY_LOG_LEVEL=\"a[?]b[?]x{36}[.]{3}\" [^\n]*\n");
}

TEST_F(LogDeathTest, BracesInALineAreText) {
  EXPECT_EXIT(
      {
        log_error("code={0} {");
        std::exit(0);
      },
      testing::ExitedWithCode(0), "code=\\{0\\} \\{\n$");
}

}  // namespace
}  // namespace quarry
