// SPDX-License-Identifier: Apache-2.0
// Case C74 on the real device: each driver call that a malloc makes fails once, for every way
// through the allocator that reaches the driver. Whatever fails, no memory is lost (the driver's
// own figure says so), other blocks keep their words, and the next healthy request is served. The
// same sweep over every call of longer programs, on the simulated device, is model_fault_test.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/thread_state.hpp"
#include "tests/gpu/gpu_device.hpp"
#include "tests/support/failing_driver.hpp"

namespace quarry::gpu {
namespace {

constexpr Bytes kRequest = 33'554'432;
// Of the driver's own doing, between two looks at its figure. Below what one lost request costs.
constexpr Bytes kSlack = 16_MiB;
// Rounds without a failed call after which all of a malloc's calls have failed once.
constexpr int kEnough = 3;

class C74 : public testing::TestWithParam<bool> {
 protected:
  C74() {
    kept_ = device_.allocate_filled(stream_, 4_MiB, 74);
    // The first rounds of everything: kernels are loaded, events made.
    prepare_pending();
    device_.free(device_.allocate_filled(stream_, kRequest, 1));
    clean_up();
    free_at_start_ = device_.driver_free_bytes();
  }
  ~C74() override {
    check(kept_, 4_MiB, 74, get_handle(stream_));
    EXPECT_EQ(take_wrong_words(), 0u);
    device_.free(kept_);
    device_.end_stream(stream_);
    device_.end_stream(side_);
    EXPECT_TRUE(device_.allocator().empty_cache(0).is_ok());
    EXPECT_EQ(device_.reserved(), 0u);
  }

  // A block that waits for an event; long enough that every round of a sweep finds it waiting.
  void prepare_pending() {
    const Address block = device_.allocate_filled(stream_, 24_MiB, 2);
    spin(get_handle(side_), 2'000);
    ASSERT_TRUE(device_.allocator().record_stream(block, side_.handle).is_ok());
    device_.free(block);
  }
  // A block whose event the next ordinary call has to record.
  void prepare_queued() {
    const Address block = device_.allocate_filled(stream_, 24_MiB, 3);
    ASSERT_TRUE(device_.allocator().record_stream(block, side_.handle).is_ok());
    const DriverCallbackScope scope;
    device_.free(block);
  }
  // A limit that leaves room for the request only when what is cached and pending went back.
  void prepare_full() {
    prepare_pending();
    device_.free(device_.allocate_filled(side_, 24_MiB, 4));
    ASSERT_TRUE(device_.allocator().set_limit(0, device_.reserved()).is_ok());
  }

  // Served or refused for a reason; then, with nothing failing, served.
  void request_with_failure(std::uint64_t k, DriverCode code) {
    device_.watcher().fail_call(k, code);
    const auto address = device_.allocator().allocate(stream_, kRequest);
    device_.watcher().stop();
    if (address.is_ok()) {
      use(address.value());
    } else {
      ++refused_;
      EXPECT_TRUE(address.code() == StatusCode::kDriverError ||
                  address.code() == StatusCode::kOutOfMemory)
          << address.status().message();
      EXPECT_FALSE(address.status().message().empty());
    }
    device_.allocator().validate();
    const auto again = device_.allocator().allocate(stream_, kRequest);
    ASSERT_TRUE(again.is_ok()) << again.status().message();
    use(again.value());
  }
  void use(Address address) {
    fill(address, kRequest, 9, get_handle(stream_));
    check(address, kRequest, 9, get_handle(stream_));
    device_.free(address);
  }
  // Afterwards only `kept_` holds memory.
  void clean_up() {
    static_cast<void>(device_.allocator().set_limit(0, kUnlimited));
    synchronize_device();
    EXPECT_TRUE(device_.allocator().empty_cache(0).is_ok());
    EXPECT_EQ(device_.stats().pending_bytes, 0);
    EXPECT_EQ(device_.reserved(), 20_MiB);
    device_.allocator().validate();
  }
  void expect_no_leak() {
    EXPECT_GE(device_.driver_free_bytes() + kSlack, free_at_start_) << "device memory was lost";
  }

  void fail_every_call(const char* path, const std::function<void()>& prepare) {
    std::map<std::string_view, int> entries;
    for (const DriverCode code : {DriverCode::kUnknown, DriverCode::kOutOfMemory}) {
      // A round that the kernel was too quick for makes fewer calls: one such does not end a
      // sweep.
      int in_vain = 0;
      for (std::uint64_t k = 1; in_vain < kEnough; ++k) {
        SCOPED_TRACE(std::string(path) + ": call " + std::to_string(k) + " fails with " +
                     describe(code));
        prepare();
        ASSERT_NO_FATAL_FAILURE(request_with_failure(k, code));
        const auto failed = device_.watcher().failed();
        clean_up();
        expect_no_leak();
        if (failed) ++entries[get_name(*failed)];
        in_vain = failed ? 0 : in_vain + 1;
        ASSERT_LT(k, 200u);
      }
    }
    std::printf("C74 path=%s refused=%d failed:", path, refused_);
    for (const auto& [name, count] : entries)
      std::printf(" %s=%d", std::string(name).c_str(), count);
    std::printf("\n");
    EXPECT_GT(entries.count("allocate"), 0u);
    EXPECT_GT(refused_, 0);
  }

  WatchedDevice<test::FailingDriver> device_{GetParam()};
  const StreamRef stream_ = make_stream();
  const StreamRef side_ = make_stream();
  Address kept_ = 0;
  Bytes free_at_start_ = 0;
  int refused_ = 0;
};

TEST_P(C74, NoFailedCallOfAMallocThatGrowsLosesMemory) {
  fail_every_call("grow", [] {});
}

TEST_P(C74, NoFailedCallOfAMallocThatCollectsEventsLosesMemory) {
  fail_every_call("pending", [this] { prepare_pending(); });
}

TEST_P(C74, NoFailedCallOfAMallocThatRecordsEventsLosesMemory) {
  fail_every_call("queued", [this] { prepare_queued(); });
}

TEST_P(C74, NoFailedCallOfAMallocThatGivesMemoryBackLosesMemory) {
  fail_every_call("full", [this] { prepare_full(); });
}

// The n-th call of a whole program fails, whichever call of the user's it is in.
TEST_P(C74, NoFailedCallOfAProgramLosesMemory) {
  Allocator& allocator = device_.allocator();
  for (std::uint64_t n = 1; n <= 50; ++n) {
    SCOPED_TRACE("call " + std::to_string(n) + " fails");
    const StreamRef stream = make_stream();
    std::vector<Address> live;
    const auto allocate = [&](Bytes bytes) {
      const auto address = allocator.allocate(stream, bytes);
      if (!address.is_ok()) return;
      fill(address.value(), bytes, 5, get_handle(stream));
      live.push_back(address.value());
    };
    device_.watcher().fail_call(n, DriverCode::kUnknown);
    for (const Bytes bytes : {kRequest, 1_MiB, 4_MiB, 64_MiB}) {
      allocate(bytes);
      allocate(bytes);
      if (live.empty()) continue;
      order(get_handle(stream), get_handle(side_));
      static_cast<void>(allocator.record_stream(live.back(), side_.handle));
      device_.free(live.back());
      live.pop_back();
      static_cast<void>(allocator.empty_cache(0));
    }
    const bool is_retired = allocator.retire_stream(stream).is_ok();
    device_.watcher().stop();
    for (const Address address : live)
      device_.free(address);
    if (!is_retired) {
      EXPECT_TRUE(allocator.retire_stream(stream).is_ok());
    }
    destroy_stream(get_handle(stream));
    clean_up();
    expect_no_leak();
    EXPECT_TRUE(device_.watcher().failed().has_value()) << "the program makes too few calls";
  }
}

INSTANTIATE_TEST_SUITE_P(OnTheDevice, C74, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& tested) {
                           return tested.param ? "Magazines" : "NoMagazines";
                         });

}  // namespace
}  // namespace quarry::gpu
