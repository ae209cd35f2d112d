// SPDX-License-Identifier: Apache-2.0
// What the allocator answers to wrong arguments, in a forked child, on a thread that the driver
// calls, and about addresses; and that an error changes nothing.
#include "core/allocator.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/thread_state.hpp"
#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The figures that an error may not touch.
std::vector<NamedValue> get_memory_figures(Scenario& scenario) {
  std::vector<NamedValue> figures;
  for (NamedValue& figure : flatten(scenario.stats())) {
    if (contains(figure.name, ".current") || contains(figure.name, "num_")) {
      figures.push_back(std::move(figure));
    }
  }
  return figures;
}

void expect_equal(const std::vector<NamedValue>& a, const std::vector<NamedValue>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(a[i].value, b[i].value) << a[i].name;
}

TEST(AllocatorTest, CreationTellsTheDriversError) {
  for (const DriverEntry entry :
       {DriverEntry::kGetDeviceCount, DriverEntry::kGetDeviceProperties}) {
    SimDriver sim;
    sim.fail_call(entry, 1, DriverCode::kNotInitialized);
    const auto allocator = Allocator::create(sim, Config{});
    EXPECT_EQ(allocator.code(), StatusCode::kDriverError);
    EXPECT_TRUE(contains(allocator.status().message(), "CUDA_ERROR_NOT_INITIALIZED"));
  }
}

TEST(AllocatorTest, CreationTakesNoDeviceMemory) {
  Scenario s;
  EXPECT_EQ(s.calls(DriverEntry::kAllocate), 0u);
  EXPECT_EQ(s.sim().get_holdings(0).physical_bytes, 0u);
}

TEST(AllocatorTest, AnUnknownDeviceIsNamedWithThoseThereAre) {
  ScenarioOptions options;
  options.sim.device_count = 2;
  Scenario s(options);
  Allocator& a = s.allocator();
  for (const DeviceId device : {-1, 2, 1000000}) {
    const std::string expected =
        "device is " + std::to_string(device) + "; there are devices 0 to 1";
    EXPECT_EQ(a.allocate({device, kS0}, 512).status().message(), expected);
    EXPECT_EQ(a.allocate({device, kS0}, 0).status().message(), expected);
    EXPECT_EQ(a.retire_stream({device, kS0}).message(), expected);
    EXPECT_EQ(a.empty_cache(device).message(), expected);
    EXPECT_EQ(a.set_memory_fraction(device, 0.5).message(), expected);
    EXPECT_EQ(a.get_memory_fraction(device).status().message(), expected);
    EXPECT_EQ(a.set_limit(device, 1).message(), expected);
    EXPECT_EQ(a.get_limit(device).status().message(), expected);
    EXPECT_EQ(a.get_stats(device).status().message(), expected);
    EXPECT_EQ(a.get_stream_caches(device).status().message(), expected);
    EXPECT_EQ(a.reset_peak_stats(device).message(), expected);
    EXPECT_EQ(a.reset_accumulated_stats(device).code(), StatusCode::kInvalidArgument);
  }
}

TEST(AllocatorTest, AWrongAlignmentIsNamedWithWhatIsAllowed) {
  Scenario s;
  for (const Bytes alignment : {Bytes{0}, Bytes{3}, Bytes{513}, Bytes{1536}, 2_GiB, kUnlimited}) {
    const auto result = s.allocator().allocate({0, kS0}, 512, alignment);
    EXPECT_EQ(result.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(result.status().message(), "alignment is " + std::to_string(alignment) +
                                             "; it must be a power of two, at most 1 GiB");
  }
  EXPECT_EQ(s.reserved(), 0u);
}

TEST(AllocatorTest, NoBytesIsAddressZeroAndChangesNothing) {
  Scenario s;
  const auto before = get_memory_figures(s);
  s.sim().reset_call_counts();
  const auto result = s.allocator().allocate({0, kS0}, 0);
  ASSERT_TRUE(result.is_ok());
  EXPECT_EQ(result.value(), 0u);
  EXPECT_TRUE(s.allocator().free(0).is_ok());
  EXPECT_TRUE(s.allocator().free_sized(0, 0).is_ok());
  EXPECT_TRUE(s.allocator().free_on_stream(0, kS0).is_ok());
  EXPECT_TRUE(s.allocator().record_stream(0, kS0).is_ok());
  EXPECT_EQ(s.sim().call_count(), 0u);
  expect_equal(get_memory_figures(s), before);
}

TEST(AllocatorTest, SizesNearTheTopFailCleanlyWithAndWithoutAlignment) {
  Scenario s;
  const Address kept = s.malloc(1024);
  for (const Bytes alignment : {Bytes{512}, 1_GiB}) {
    for (const Bytes bytes : {~0ull, ~0ull - 511, 1ull << 63, 1ull << 60, (1ull << 60) - 1,
                              (1ull << 60) - 512, 1ull << 59}) {
      EXPECT_EQ(s.malloc(bytes, kS0, alignment), 0u) << bytes;
      EXPECT_EQ(s.last_code(), StatusCode::kOutOfMemory);
    }
  }
  EXPECT_EQ(s.allocated(), 1024u);
  EXPECT_EQ(s.reserved(), 2_MiB);
  EXPECT_EQ(s.free(kept), StatusCode::kOk);
}

TEST(AllocatorTest, WrongPointersAreToldApart) {
  Scenario s;
  const Address p = s.malloc(4096);
  const Address q = s.malloc(4096);
  Allocator& a = s.allocator();

  const Status foreign = a.free(0xdead00);
  EXPECT_EQ(foreign.code(), StatusCode::kInvalidPointer);
  EXPECT_EQ(foreign.message(),
            "free: invalid device pointer: 0xdead00: no block of this allocator begins there");
  const Status interior = a.free(p + 512);
  EXPECT_EQ(interior.code(), StatusCode::kInvalidPointer);
  EXPECT_TRUE(contains(interior.message(), "512 bytes inside a live block of 4096 bytes"));
  EXPECT_EQ(a.free(p + 1).code(), StatusCode::kInvalidPointer);
  EXPECT_EQ(a.record_stream(0xdead00, kS0).code(), StatusCode::kInvalidPointer);

  EXPECT_EQ(s.free(p), StatusCode::kOk);
  const Status again = a.free(p);
  EXPECT_EQ(again.code(), StatusCode::kDoubleFree);
  EXPECT_TRUE(contains(again.message(), "it was freed already (the memory is free now)"));
  EXPECT_EQ(a.free_sized(p, 4096).code(), StatusCode::kDoubleFree);
  EXPECT_EQ(a.free_on_stream(p, kS0).code(), StatusCode::kDoubleFree);
  EXPECT_EQ(a.record_stream(p, kS0).code(), StatusCode::kInvalidPointer) << "it is no free";

  EXPECT_EQ(s.free(q), StatusCode::kOk);
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(a.free(p).code(), StatusCode::kInvalidPointer) << "the memory is not ours any more";
  EXPECT_EQ(s.stats().invalid_frees, 7) << "only frees are counted";
}

TEST(AllocatorTest, ADoubleFreeOfAPendingBlockIsOneToo) {
  Scenario s;
  const StreamHandle s1 = s.make_stream();
  const Address p = s.malloc(4096);
  s.record(p, s1);
  s.busy(s1);
  EXPECT_EQ(s.free(p), StatusCode::kOk);
  const Status again = s.allocator().free(p);
  EXPECT_EQ(again.code(), StatusCode::kDoubleFree);
  EXPECT_TRUE(contains(again.message(), "pending"));
}

TEST(AllocatorTest, ASizedFreeOfAnotherSizeFreesAndTells) {
  Scenario s;
  const Address right = s.allocator().allocate({0, kS0}, 1000).value();
  const Address wrong = s.allocator().allocate({0, kS0}, 1000).value();
  EXPECT_TRUE(s.allocator().free_sized(right, 1000).is_ok());
  const Status status = s.allocator().free_sized(wrong, 1024);
  EXPECT_EQ(status.code(), StatusCode::kSizeMismatch);
  EXPECT_EQ(status.message(),
            "sized free of 1024 bytes, but 1000 were allocated; the block was freed");
  EXPECT_EQ(s.allocated(), 0u);
  EXPECT_EQ(s.stats().size_mismatches, 1);
}

TEST(AllocatorTest, AFractionOutsideZeroToOneIsRefused) {
  Scenario s;
  for (const double fraction : {-0.1, 1.1, -1e300, HUGE_VAL, std::nan("")}) {
    const Status status = s.allocator().set_memory_fraction(0, fraction);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(status.message().starts_with("invalid fraction:"));
    EXPECT_TRUE(status.message().ends_with("Please set within [0, 1]"));
  }
  EXPECT_EQ(s.allocator().get_memory_fraction(0).value(), 1.0);
}

TEST(AllocatorTest, FindBlockKnowsEveryByteOfALiveBlockAndNoOther) {
  Scenario s;
  const StreamHandle s1 = s.make_stream();
  const Address p = s.malloc(5000, s1);
  for (const Address inside : {p, p + 1, p + 5119}) {
    const auto info = s.allocator().find_block(inside);
    ASSERT_TRUE(info.is_ok());
    EXPECT_EQ(info.value().address, p);
    EXPECT_EQ(info.value().bytes, 5120u);
    EXPECT_EQ(info.value().requested_bytes, 5000u);
    EXPECT_EQ(info.value().segment_bytes, 2_MiB);
    EXPECT_LE(info.value().segment_address, p);
    EXPECT_EQ(info.value().stream, (StreamRef{0, s1}));
  }
  for (const Address outside : {p + 5120, p - 1, Address{0}, Address{1}}) {
    EXPECT_EQ(s.allocator().find_block(outside).code(), StatusCode::kInvalidPointer);
  }
  s.free(p);
  EXPECT_EQ(s.allocator().find_block(p).code(), StatusCode::kInvalidPointer);
}

TEST(AllocatorTest, SettingsAreReadBackAndHoldFromTheNextRequest) {
  Scenario s;
  Config config = s.allocator().get_config();
  config.max_split_bytes = 64_MiB;
  config.large_segment_bytes = 32_MiB;
  s.allocator().configure(config);
  EXPECT_EQ(s.allocator().get_config(), config);
  EXPECT_EQ(s.stats().max_split_size, static_cast<std::int64_t>(64_MiB));
  s.malloc(2_MiB);
  EXPECT_EQ(s.reserved(), 32_MiB);
}

TEST(AllocatorTest, AForkedChildGetsErrorsAndMakesNoDriverCall) {
  SimDriver sim;
  {
    auto allocator = Allocator::create(sim, Config{}).value();
    const Address p = allocator->allocate({0, kS0}, 4096).value();
    sim.reset_call_counts();
    allocator->mark_forked();
    EXPECT_EQ(allocator->allocate({0, kS0}, 512).code(), StatusCode::kForked);
    EXPECT_EQ(allocator->free(p).code(), StatusCode::kForked);
    EXPECT_EQ(allocator->free_sized(p, 4096).code(), StatusCode::kForked);
    EXPECT_EQ(allocator->free_on_stream(p, kS0).code(), StatusCode::kForked);
    EXPECT_EQ(allocator->record_stream(p, kS0).code(), StatusCode::kForked);
    EXPECT_EQ(allocator->retire_stream({0, kS0}).code(), StatusCode::kForked);
    EXPECT_EQ(allocator->empty_cache(0).code(), StatusCode::kForked);
    EXPECT_EQ(allocator->get_stats(0).code(), StatusCode::kForked);
    EXPECT_EQ(allocator->find_block(p).code(), StatusCode::kForked);
    EXPECT_EQ(allocator->set_limit(0, 1).code(), StatusCode::kForked);
    allocator->retire_thread_streams();
    allocator->configure(Config{});
  }
  EXPECT_EQ(sim.call_count(), 0u) << "nor did the destructor";
  EXPECT_EQ(sim.get_holdings(0).plain_allocations, 1u) << "the parent's memory";
}

// A host function of a stream runs on a thread where the driver forbids every call.
class DriverCallbackTest : public testing::Test {
 protected:
  template <class Work>
  void in_callback(Work work) {
    scenario_.sim().set_callback_thread(true);
    {
      DriverCallbackScope scope;
      work();
    }
    scenario_.sim().set_callback_thread(false);
  }
  Scenario scenario_;  // at its end, a driver call from within in_callback is a failure
};

TEST_F(DriverCallbackTest, RequestsAreServedFromTheCacheOrRefused) {
  scenario_.free(scenario_.malloc(4096));
  in_callback([&] {
    EXPECT_TRUE(scenario_.allocator().allocate({0, kS0}, 4096).is_ok());
    EXPECT_EQ(scenario_.allocator().allocate({0, kS0}, 3_MiB).code(), StatusCode::kBusy);
  });
  EXPECT_TRUE(scenario_.allocator().allocate({0, kS0}, 3_MiB).is_ok());
}

TEST_F(DriverCallbackTest, FreesArePendingUntilTheNextOrdinaryCall) {
  const StreamHandle s1 = scenario_.make_stream();
  const Address plain = scenario_.malloc(4096);
  const Address shared = scenario_.malloc(8192);
  scenario_.record(shared, s1);
  in_callback([&] {
    EXPECT_EQ(scenario_.free(plain), StatusCode::kOk);
    EXPECT_EQ(scenario_.free(shared), StatusCode::kOk);
  });
  EXPECT_EQ(scenario_.allocated(), 0u);
  EXPECT_EQ(scenario_.active(), 4096u + 8192u);
  scenario_.allocator().validate();
  scenario_.malloc(512);
  EXPECT_EQ(scenario_.active(), 512u);
}

TEST_F(DriverCallbackTest, WhatNeedsTheDriverIsRefused) {
  const StreamHandle s1 = scenario_.make_stream();
  const Address shared = scenario_.malloc(8192);
  scenario_.malloc(4096, s1);
  scenario_.malloc(4096, StreamHandle::kPerThread);
  scenario_.record(shared, s1);
  scenario_.busy(s1);
  scenario_.free(shared);
  in_callback([&] {
    EXPECT_EQ(scenario_.empty_cache(), StatusCode::kBusy);
    EXPECT_EQ(scenario_.allocator().retire_stream({0, s1}).code(), StatusCode::kBusy);
    scenario_.allocator().retire_thread_streams();
  });
  EXPECT_EQ(scenario_.empty_cache(), StatusCode::kOk);
}

}  // namespace
}  // namespace quarry::test
