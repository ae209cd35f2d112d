// SPDX-License-Identifier: Apache-2.0
// A section goes on after a step that fails, what it found is on the disk at any moment, and a
// step that hangs ends the process.
#include "bench/driver_facts/recorder.hpp"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>

#include "bench/driver_facts/child_process.hpp"

namespace quarry::facts {
namespace {

FactSheet make_sheet() {
  return {"name", "Title", "About.", {}, {}, {}};
}

TEST(RecorderTest, AFailedStepIsNotedAndTheNextOneRuns) {
  Recorder recorder(make_sheet(), "");
  recorder.start_table("", {"row"});
  recorder.step("first", [] { throw std::runtime_error("error 2"); });
  recorder.step("second", [&] { recorder.add_row({"here"}); });
  EXPECT_EQ(recorder.sheet().failures, std::vector<std::string>{"first: error 2"});
  EXPECT_EQ(recorder.sheet().tables[0].rows.size(), 1u);
}

TEST(RecorderTest, WhatWasFoundIsOnTheDiskAndNamesTheStepThatRuns) {
  const AnswerFile answer;
  Recorder recorder(make_sheet(), answer.path());
  recorder.step("first", [&] { recorder.add_rule("holds", true); });
  recorder.step("second", [&] {
    const std::vector<FactSheet> saved = parse_json(answer.read());
    ASSERT_EQ(saved.size(), 1u);
    EXPECT_EQ(saved[0].rules.size(), 1u);
    EXPECT_EQ(saved[0].failures, std::vector<std::string>{"second: the process ended here"});
  });
  EXPECT_TRUE(parse_json(answer.read())[0].failures.empty());
}

TEST(RecorderTest, AStepThatHangsEndsTheProcessAndIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Recorder recorder(make_sheet(), "", std::chrono::milliseconds(1));
        std::promise<void> never;
        recorder.step("the slow one", [&] { never.get_future().wait(); });
      },
      testing::ExitedWithCode(kHungStatus), "HUNG.*the slow one");
}

}  // namespace
}  // namespace quarry::facts
