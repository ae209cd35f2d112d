// SPDX-License-Identifier: Apache-2.0
// PyTorch's plug-in: pools, begun and ended as torch.cuda.graph and torch.cuda.MemPool do, over
// the simulated device. The same with PyTorch's own classes is
// tests/unit/torch/python_pools_test.py.
#include <array>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "quarry/quarry.hpp"
#include "quarry/quarry_torch.h"
#include "tests/unit/api/api_fixture.hpp"

namespace quarry {
namespace {

using testing_support::ApiTest;
using testing_support::make_stream;

// What PyTorch's C++ side casts the addresses to that Python gave it as numbers.
using MempoolId = std::pair<std::uint64_t, std::uint64_t>;
using Filter = std::function<bool(quarry_stream)>;
using BeginFunction = void(int, MempoolId, Filter);
using EndFunction = void(int, MempoolId);

template <class Wanted, class Given>
Wanted* from_address(Given* function) {
  return reinterpret_cast<Wanted*>(reinterpret_cast<void*>(function));
}
const auto begin = from_address<BeginFunction>(&quarry_torch_begin_allocate_to_pool);
const auto end = from_address<EndFunction>(&quarry_torch_end_allocate_to_pool);
const auto release = from_address<EndFunction>(&quarry_torch_release_pool);

template <class Body>
std::string catch_text(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no exception";
}

bool says(const std::string& text, const std::string& piece) {
  return text.find(piece) != std::string::npos;
}

class TorchPools : public ApiTest {
 protected:
  static constexpr MempoolId kGraphPool{5, 0};   // of a graph without pool=
  static constexpr MempoolId kSharedPool{0, 3};  // torch.cuda.graph_pool_handle()

  void SetUp() override {
    ApiTest::SetUp();
    side_ = sim().create_stream(0, sim::StreamKind::kNonBlocking);
    stream_ = make_stream(static_cast<std::uint64_t>(side_.handle));
  }
  // As CUDAGraph::capture_begin: the filter asks for the capture that the graph will learn of.
  void capture_begin(MempoolId pool) {
    begin(0, pool, [this](quarry_stream stream) {
      const auto info =
          sim().get_capture_info({0, StreamHandle{reinterpret_cast<Address>(stream)}});
      return info.is_ok() && info.value.status == CaptureStatus::kActive &&
             info.value.id == capture_;
    });
    ASSERT_EQ(sim().begin_capture(side_, CaptureMode::kGlobal), DriverCode::kSuccess);
    capture_ = sim().get_capture_info(side_).value.id;
  }
  void capture_end(MempoolId pool) {
    EXPECT_TRUE(sim().end_capture(side_).is_ok());
    end(0, pool);
  }
  void* take(std::size_t bytes) { return quarry_torch_malloc(bytes, 0, stream_); }
  void give(void* ptr) { quarry_torch_free(ptr, 0, 0, stream_); }
  static PoolReport report(MempoolId pool) {
    return peek_allocator()->get_pool_report(0, {pool.first, pool.second}).value();
  }
  static int use_count(MempoolId pool) {
    return quarry_torch_get_pool_use_count(0, {pool.first, pool.second});
  }

  StreamRef side_;
  quarry_stream stream_ = nullptr;
  CaptureId capture_{};
};

TEST_F(TorchPools, ACapturesMemoryIsItsOwnUntilTheGraphIsReset) {
  capture_begin(kGraphPool);
  EXPECT_EQ(use_count(kGraphPool), 1);
  void* input = take(4_MiB);
  void* temporary = take(4_MiB);
  give(temporary);
  EXPECT_EQ(take(4_MiB), temporary);  // inside, memory is reused at once
  give(temporary);
  void* elsewhere = quarry_torch_malloc(4_MiB, 0, nullptr);
  capture_end(kGraphPool);
  EXPECT_EQ(report(kGraphPool).stats.allocations.current, 1);
  EXPECT_NE(take(4_MiB), temporary);  // the graph uses it at every launch
  quarry_torch_reset();
  EXPECT_EQ(report(kGraphPool).stats.reserved_bytes.current, static_cast<std::int64_t>(20_MiB));
  give(input);
  release(0, kGraphPool);
  quarry_torch_reset();
  EXPECT_EQ(use_count(kGraphPool), 0);
  quarry_torch_free(elsewhere, 4_MiB, 0, nullptr);
  EXPECT_EQ(sim().hazard_count(), 0u);
}

TEST_F(TorchPools, ManyBatchSizesShareOnePool) {
  constexpr std::array<std::size_t, 3> kSizes = {32_MiB, 16_MiB, 8_MiB};  // largest first
  for (const std::size_t bytes : kSizes) {
    capture_begin(kSharedPool);
    give(take(bytes));
    capture_end(kSharedPool);
  }
  EXPECT_EQ(use_count(kSharedPool), 3);
  EXPECT_EQ(report(kSharedPool).stats.reserved_bytes.current, static_cast<std::int64_t>(32_MiB));
  for (std::size_t i = 0; i < kSizes.size(); ++i)
    release(0, kSharedPool);
  EXPECT_EQ(use_count(kSharedPool), 0);
}

TEST_F(TorchPools, AThreadsPoolIsOnlyThatThreads) {
  quarry_torch_retain_pool(0, {0, 4}, nullptr);  // torch.cuda.MemPool()
  const auto self = std::this_thread::get_id();
  const auto is_self = [self](quarry_stream) { return std::this_thread::get_id() == self; };
  begin(0, {0, 4}, is_self);  // with torch.cuda.use_mem_pool(pool):
  EXPECT_EQ(use_count({0, 4}), 2);
  void* ptr = quarry_torch_malloc(4_MiB, 0, nullptr);
  std::thread([] {
    quarry_torch_free(quarry_torch_malloc(4_MiB, 0, nullptr), 4_MiB, 0, nullptr);
  }).join();
  end(0, {0, 4});
  release(0, {0, 4});
  EXPECT_EQ(use_count({0, 4}), 1);
  EXPECT_EQ(report({0, 4}).stats.allocations.allocated, 1);
  quarry_torch_free(ptr, 4_MiB, 0, nullptr);
  quarry_torch_set_pool_use_on_oom(0, {0, 4}, 0);  // the destructor
  release(0, {0, 4});
  quarry_torch_trim_pool({0, 4});
  EXPECT_EQ(use_count({0, 4}), 0);
  EXPECT_TRUE(peek_allocator()->get_pool_reports(0).value().empty());
}

TEST_F(TorchPools, TheFilterIsCopiedAndGoesAtTheEnd) {
  const auto alive = std::make_shared<int>(0);
  begin(0, kSharedPool, [alive](quarry_stream) { return alive != nullptr; });
  EXPECT_EQ(alive.use_count(), 2);
  give(take(4_MiB));
  EXPECT_EQ(report(kSharedPool).stats.allocations.allocated, 1);
  end(0, kSharedPool);
  EXPECT_EQ(alive.use_count(), 1);
  release(0, kSharedPool);
}

TEST_F(TorchPools, AFilterThatThrowsAccepts) {
  begin(0, kSharedPool, [](quarry_stream) -> bool { throw std::runtime_error("CUDA error"); });
  testing::internal::CaptureStderr();
  give(take(4_MiB));
  EXPECT_TRUE(says(testing::internal::GetCapturedStderr(), "CUDA error"));
  EXPECT_EQ(report(kSharedPool).stats.allocations.allocated, 1);
  end(0, kSharedPool);
  release(0, kSharedPool);
}

TEST_F(TorchPools, WhatCannotBeginLeavesTheHoldersAsTheyWere) {
  const Filter all = [](quarry_stream) { return true; };
  begin(0, kSharedPool, all);
  EXPECT_TRUE(says(catch_text([&] { begin(0, kSharedPool, all); }), "is begun already"));
  EXPECT_EQ(use_count(kSharedPool), 1);
  EXPECT_TRUE(says(catch_text([&] { begin(0, {0, 9}, Filter()); }), "filter is NULL"));
  EXPECT_EQ(use_count({0, 9}), 0);
  EXPECT_TRUE(says(catch_text([&] { begin(0, {0, 0}, all); }), "the default pool"));
  EXPECT_TRUE(says(catch_text([&] { begin(7, kSharedPool, all); }), "device is 7"));
  end(0, kSharedPool);
  EXPECT_TRUE(says(catch_text([&] { end(0, kSharedPool); }), "is not begun"));
  release(0, kSharedPool);
}

// PyTorch does not end what it began if the driver loses the capture: the pool stays, as its own.
TEST_F(TorchPools, ALostCaptureCanBeEndedAndReleased) {
  capture_begin(kGraphPool);
  void* ptr = take(4_MiB);
  ASSERT_NE(sim().destroy_stream(side_), DriverCode::kSuccess);  // loses the capture
  EXPECT_FALSE(sim().end_capture(side_).is_ok());
  void* after = take(4_MiB);
  EXPECT_EQ(report(kGraphPool).stats.allocations.current, 1);
  end(0, kGraphPool);
  release(0, kGraphPool);
  give(ptr);
  give(after);
  quarry_torch_reset();
  EXPECT_EQ(sim().get_holdings(0).plain_allocations, 0u);
}

TEST_F(TorchPools, WhatIsCalledInDestructorsLogsAndDoesNotThrow) {
  testing::internal::CaptureStderr();
  release(0, {0, 77});
  quarry_torch_set_pool_use_on_oom(0, {0, 77}, 0);
  quarry_torch_trim_pool({0, 77});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(says(log, "event=pool_release_failed pool=0,77")) << log;
  EXPECT_TRUE(says(log, "event=pool_change_failed pool=0,77")) << log;
  EXPECT_FALSE(says(log, "pool_trim_failed")) << log;
  quarry_torch_retain_pool(0, {0, 78}, nullptr);
  ASSERT_EQ(quarry_driver_callback_begin(), QUARRY_OK);
  testing::internal::CaptureStderr();
  quarry_torch_trim_pool({0, 78});
  ASSERT_EQ(quarry_driver_callback_end(), QUARRY_OK);
  EXPECT_TRUE(says(testing::internal::GetCapturedStderr(), "event=pool_trim_failed pool=0,78"));
}

TEST_F(TorchPools, FlagsAndOptionsReachThePool) {
  quarry_pool_options options = {};
  options.struct_size = sizeof(options);
  options.limit_bytes = 20_MiB;
  quarry_torch_retain_pool(0, {0, 5}, &options);
  quarry_torch_set_pool_no_split(0, {0, 5});
  quarry_torch_set_pool_use_on_oom(0, {0, 5}, 1);
  EXPECT_EQ(report({0, 5}).limit_bytes, 20_MiB);
  options.flags = 64;
  EXPECT_TRUE(says(catch_text([&] {
                     quarry_torch_retain_pool(0, {0, 6}, &options);
                   }),
                   "options->flags is 64"));
  EXPECT_TRUE(says(catch_text([] {
                     quarry_torch_set_pool_use_on_oom(0, {0, 6}, 1);
                   }),
                   "pool (0, 6) of device 0 does not exist"));
  EXPECT_TRUE(says(catch_text([] {
                     quarry_torch_set_pool_no_split(0, {0, 6});
                   }),
                   "does not exist"));
  EXPECT_TRUE(says(catch_text([] { quarry_torch_get_pool_use_count(9, {0, 6}); }), "device is 9"));
}

// As torch.compile's graph trees: a graph is captured, the pool saved; a branch is captured; the
// pool goes back, and another branch is captured over the first.
TEST_F(TorchPools, GraphTreesGoBackToABranch) {
  constexpr quarry_torch_pool_id kTree = {0, 3};
  static_assert(kTree.second == kSharedPool.second);
  capture_begin(kSharedPool);
  void* output = take(4_MiB);
  give(take(8_MiB));
  capture_end(kSharedPool);
  quarry_pool_checkpoint* const state = quarry_torch_save_pool(0, kTree);
  void* expected[] = {output, nullptr};
  EXPECT_EQ(quarry_torch_pool_has_exactly(0, kTree, expected, 1), 1);
  EXPECT_EQ(quarry_torch_pool_has_exactly(0, kTree, expected, 2), 0);
  EXPECT_EQ(quarry_torch_pool_has_exactly(0, kTree, nullptr, 0), 0);
  capture_begin(kSharedPool);
  void* first = take(8_MiB);
  capture_end(kSharedPool);
  EXPECT_EQ(quarry_torch_pool_has_exactly(0, kTree, expected, 1), 0);
  give(output);  // its tensor died; the graph writes it at the next launch

  using Told = std::vector<std::pair<void*, quarry_pool_restored>>;
  Told told;
  const auto note = [](void* ptr, quarry_pool_restored what, void* user) {
    static_cast<Told*>(user)->emplace_back(ptr, what);
  };
  quarry_torch_restore_pool(0, state, note, &told);
  EXPECT_EQ(told, (Told{{first, QUARRY_POOL_BLOCK_STALE}, {output, QUARRY_POOL_BLOCK_REVIVED}}));
  EXPECT_EQ(quarry_torch_pool_has_exactly(0, kTree, expected, 1), 1);
  capture_begin(kSharedPool);
  void* second = take(8_MiB);
  capture_end(kSharedPool);
  EXPECT_EQ(second, first);
  give(second);  // nobody else frees it: PyTorch took the deleter of the first away
  EXPECT_EQ(quarry_torch_pool_has_exactly(0, kTree, expected, 1), 1);
  give(output);
  quarry_pool_checkpoint_destroy(state);
  for (int graph = 0; graph < 3; ++graph)
    release(0, kSharedPool);
  EXPECT_EQ(use_count(kSharedPool), 0);
  EXPECT_EQ(sim().hazard_count(), 0u);
}

TEST_F(TorchPools, CheckpointsSayWhatIsWrong) {
  EXPECT_TRUE(says(catch_text([] { quarry_torch_save_pool(0, {0, 9}); }), "does not exist"));
  EXPECT_TRUE(says(catch_text([] { quarry_torch_save_pool(0, {0, 0}); }), "the default pool"));
  EXPECT_TRUE(says(catch_text([] {
                     quarry_torch_pool_has_exactly(0, {0, 9}, nullptr, 0);
                   }),
                   "does not exist"));
  quarry_torch_retain_pool(0, {0, 4}, nullptr);
  quarry_pool_checkpoint* const state = quarry_torch_save_pool(0, {0, 4});
  const auto restore_on = [state](int device) {
    return catch_text([&] { quarry_torch_restore_pool(device, state, nullptr, nullptr); });
  };
  EXPECT_TRUE(says(restore_on(1), "the checkpoint is of device 0"));
  EXPECT_EQ(restore_on(0), "no exception");
  release(0, {0, 4});
  EXPECT_TRUE(says(restore_on(0), "does not exist"));
  quarry_pool_checkpoint_destroy(state);
}

TEST_F(TorchPools, TheKillSwitchRefusesToCapture) {
  ASSERT_EQ(quarry_shutdown(), QUARRY_OK);
  ProcessOptions disabled;
  disabled.is_disabled = true;
  start(disabled);
  const std::string text = catch_text([] {
    begin(0, {5, 0}, [](quarry_stream) { return true; });
  });
  EXPECT_TRUE(says(text, "kill switch")) << text;
}

}  // namespace
}  // namespace quarry
