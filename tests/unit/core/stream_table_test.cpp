// SPDX-License-Identifier: Apache-2.0
#include "core/stream_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "core/routing.hpp"
#include "core/thread_state.hpp"

namespace quarry {
namespace {

constexpr StreamHandle kS1{0x1001};
constexpr StreamHandle kS2{0x1002};

// As after retirement and the end of its work.
void drain(StreamTable& table, Stream& stream) {
  table.forget_handle(stream);
  stream.life = StreamLife::kDrained;
}

TEST(StreamTableTest, AHandleIsOneStreamFromTheFirstMeetingOn) {
  StreamTable table(5);
  EXPECT_EQ(table.find(kS1), nullptr);
  Stream& stream = table.find_or_add(kS1);
  EXPECT_EQ(&table.find_or_add(kS1), &stream);
  EXPECT_EQ(table.find(kS1), &stream);
  EXPECT_EQ(stream.ref, (StreamRef{5, kS1}));
  EXPECT_EQ(stream.life, StreamLife::kLive);
  EXPECT_NE(&table.find_or_add(kS2), &stream);
}

TEST(StreamTableTest, ZeroAndOneAreTheLegacyStream) {
  StreamTable table(0);
  Stream& legacy = table.find_or_add(StreamHandle::kLegacyExplicit);
  EXPECT_EQ(&table.find_or_add(StreamHandle::kLegacy), &legacy);
  EXPECT_EQ(legacy.ref.handle, StreamHandle::kLegacy);
  EXPECT_EQ(table.get_all().size(), 2u) << "the idle owner and one stream";
}

TEST(StreamTableTest, ThePerThreadHandleIsAnotherStreamInEachThread) {
  StreamTable table(0);
  Stream* const mine = &table.find_or_add(StreamHandle::kPerThread);
  EXPECT_EQ(mine->thread, get_thread_token());
  EXPECT_TRUE(mine->is_per_thread());
  Stream* other = nullptr;
  std::thread([&] {
    EXPECT_EQ(table.find(StreamHandle::kPerThread), nullptr);
    other = &table.find_or_add(StreamHandle::kPerThread);
    EXPECT_EQ(other->thread, get_thread_token());
  }).join();
  EXPECT_NE(other, mine);
  EXPECT_EQ(&table.find_or_add(StreamHandle::kPerThread), mine);
  EXPECT_EQ(table.get_streams_of_thread(get_thread_token()), std::vector<Stream*>{mine});
  EXPECT_EQ(table.get_streams_of_thread(other->thread), std::vector<Stream*>{other});
}

TEST(StreamTableTest, OrdinaryStreamsAreSharedByThreadsAndBelongToNone) {
  StreamTable table(0);
  Stream& stream = table.find_or_add(kS1);
  std::thread([&] { EXPECT_EQ(&table.find_or_add(kS1), &stream); }).join();
  EXPECT_EQ(stream.thread, 0u);
  EXPECT_TRUE(table.get_streams_of_thread(get_thread_token()).empty());
}

TEST(StreamTableTest, TheIdleOwnerIsDrainedFromTheStartAndFoundByNoHandle) {
  StreamTable table(0);
  EXPECT_EQ(table.idle().life, StreamLife::kDrained);
  table.drop_if_unused(table.idle());
  EXPECT_EQ(table.get_all()[table.idle().index].get(), &table.idle());
}

TEST(StreamTableTest, AForgottenHandleMeansANewStreamAndTheOldRecordStays) {
  StreamTable table(0);
  Stream& before = table.find_or_add(kS1);
  before.references = 1;
  table.forget_handle(before);
  EXPECT_EQ(table.find(kS1), nullptr);
  Stream& after = table.find_or_add(kS1);
  EXPECT_NE(&after, &before);
  EXPECT_NE(after.index, before.index);
  EXPECT_EQ(&table.find_or_add(kS1), &after);
}

TEST(StreamTableTest, ARecordIsDroppedWhenItIsDrainedAndNothingRefersToIt) {
  StreamTable table(0);
  Stream& stream = table.find_or_add(kS1);
  const std::uint32_t index = stream.index;
  table.drop_if_unused(stream);
  EXPECT_EQ(table.get_all()[index].get(), &stream) << "live streams stay";
  drain(table, stream);
  stream.references = 1;
  table.drop_if_unused(stream);
  EXPECT_EQ(table.get_all()[index].get(), &stream) << "a block refers to it";
  stream.references = 0;
  table.drop_if_unused(stream);
  EXPECT_EQ(table.get_all()[index], nullptr);
}

TEST(StreamTableTest, IndicesStayDenseThroughManyShortStreams) {
  StreamTable table(0);
  std::set<std::uint32_t> indices;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    Stream& stream = table.find_or_add(StreamHandle{0x5000 + i});
    indices.insert(stream.index);
    drain(table, stream);
    table.drop_if_unused(stream);
  }
  EXPECT_EQ(indices.size(), 1u);
  EXPECT_EQ(table.get_all().size(), 2u);
}

// The last lookup is remembered: it must not outlive the handle.
TEST(StreamTableTest, TheRememberedLookupIsForgottenWithItsHandle) {
  StreamTable table(0);
  Stream& stream = table.find_or_add(kS1);
  EXPECT_EQ(table.find(kS1), &stream);
  drain(table, stream);
  table.drop_if_unused(stream);
  EXPECT_EQ(table.find(kS1), nullptr);
  EXPECT_EQ(table.find(kS1), nullptr);
  EXPECT_EQ(table.find_or_add(kS1).life, StreamLife::kLive);
}

TEST(ThreadStateTest, TokensAreNeverReused) {
  std::set<std::uint64_t> tokens = {get_thread_token()};
  EXPECT_EQ(get_thread_token(), *tokens.begin());
  for (int i = 0; i < 50; ++i) {
    std::uint64_t token = 0;
    std::thread([&token] { token = get_thread_token(); }).join();
    EXPECT_NE(token, 0u);
    EXPECT_TRUE(tokens.insert(token).second);
  }
}

TEST(ThreadStateTest, CallbackScopesNestAndMarkTheirOwnThreadOnly) {
  EXPECT_FALSE(is_driver_callback_thread());
  {
    DriverCallbackScope outer;
    { DriverCallbackScope inner; }
    EXPECT_TRUE(is_driver_callback_thread());
    std::thread([] { EXPECT_FALSE(is_driver_callback_thread()); }).join();
  }
  EXPECT_FALSE(is_driver_callback_thread());
}

TEST(RoutingWordTest, IsClearUntilAReasonIsSet) {
  RoutingWord routing;
  EXPECT_TRUE(routing.is_clear());
  EXPECT_FALSE(routing.has(RoutingReason::kForked));
  routing.set(RoutingReason::kForked);
  EXPECT_FALSE(routing.is_clear());
  EXPECT_TRUE(routing.has(RoutingReason::kForked));
}

}  // namespace
}  // namespace quarry
