// SPDX-License-Identifier: Apache-2.0
#include "base/status.hpp"

#include <gtest/gtest.h>

#include <set>

namespace quarry {
namespace {

static_assert(sizeof(Status) == sizeof(void*), "success is one machine word");
static_assert(!std::is_copy_constructible_v<Status>);
static_assert(std::is_nothrow_move_constructible_v<Status>);

constexpr StatusCode kCodes[] = {StatusCode::kOk,           StatusCode::kInvalidArgument,
                                 StatusCode::kOutOfMemory,  StatusCode::kInvalidPointer,
                                 StatusCode::kDoubleFree,   StatusCode::kSizeMismatch,
                                 StatusCode::kDriverError,  StatusCode::kForked,
                                 StatusCode::kNotSupported, StatusCode::kBusy,
                                 StatusCode::kInternal,     StatusCode::kShutDown};

// They are part of the C ABI.
TEST(StatusTest, CodesKeepTheirNumbers) {
  int expected = 0;
  for (const StatusCode code : kCodes)
    EXPECT_EQ(static_cast<int>(code), expected++);
}

TEST(StatusTest, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (const StatusCode code : kCodes)
    names.insert(get_name(code));
  EXPECT_EQ(names.size(), std::size(kCodes));
  EXPECT_EQ(names.count("unknown status"), 0u);
  EXPECT_EQ(get_name(static_cast<StatusCode>(99)), "unknown status");
}

TEST(StatusTest, SuccessHasNoMessageWhateverItWasGiven) {
  EXPECT_TRUE(Status().is_ok());
  EXPECT_TRUE(Status::ok().is_ok());
  const Status status(StatusCode::kOk, "nothing");
  EXPECT_TRUE(status.is_ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
}

TEST(StatusTest, FailureKeepsCodeAndMessageThroughMoves) {
  Status first(StatusCode::kBusy, "the stream captures");
  const Status second = std::move(first);
  EXPECT_FALSE(second.is_ok());
  EXPECT_EQ(second.code(), StatusCode::kBusy);
  EXPECT_EQ(second.message(), "the stream captures");
}

TEST(ResultTest, HoldsAValueThatMayBeMovedOut) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  ASSERT_TRUE(result.is_ok());
  EXPECT_EQ(*result.value(), 7);
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 7);
}

TEST(ResultTest, HoldsTheStatusThatSaysWhyThereIsNoValue) {
  Result<int> result = Status(StatusCode::kOutOfMemory, "full");
  EXPECT_FALSE(result.is_ok());
  EXPECT_EQ(result.code(), StatusCode::kOutOfMemory);
  const Status status = std::move(result).status();
  EXPECT_EQ(status.message(), "full");
}

#ifndef NDEBUG
TEST(ResultDeathTest, TheValueOfAFailureEndsDebugBuilds) {
  const Result<int> result = Status(StatusCode::kBusy, "later");
  EXPECT_DEATH(static_cast<void>(result.value()), "invariant does not hold");
}

TEST(ResultDeathTest, ASuccessWithoutAValueEndsDebugBuilds) {
  EXPECT_DEATH(Result<int>{Status::ok()}, "invariant does not hold");
}
#endif

}  // namespace
}  // namespace quarry
