// SPDX-License-Identifier: Apache-2.0
// The C API over checkpoints of pools: what a restore tells, who frees what, and every way to get
// it wrong, a shutdown between included. The layouts themselves are
// tests/conformance/upstream/checkpoint_test.cpp.
#include <set>
#include <vector>

#include "quarry/quarry_pool.h"
#include "quarry/quarry_torch.h"
#include "tests/unit/api/api_fixture.hpp"

namespace quarry {
namespace {

using testing_support::ApiTest;
using testing_support::error_says;
using testing_support::make_stream;

struct Told {
  std::vector<void*> stale, kept, revived;
};

void note(void* ptr, quarry_pool_restored what, void* user) {
  Told& told = *static_cast<Told*>(user);
  if (what == QUARRY_POOL_BLOCK_STALE) told.stale.push_back(ptr);
  if (what == QUARRY_POOL_BLOCK_KEPT) told.kept.push_back(ptr);
  if (what == QUARRY_POOL_BLOCK_REVIVED) told.revived.push_back(ptr);
}

using Pointers = std::vector<void*>;

class CheckpointApi : public ApiTest {
 protected:
  void SetUp() override {
    ApiTest::SetUp();
    pool_ = make_pool();
  }
  void TearDown() override {
    for (quarry_pool_checkpoint* checkpoint : made_)
      quarry_pool_checkpoint_destroy(checkpoint);  // after the shutdown in some tests
    ApiTest::TearDown();
  }
  static quarry_pool make_pool(int device = 0) {
    quarry_pool pool = QUARRY_POOL_DEFAULT;
    EXPECT_EQ(quarry_pool_create(device, nullptr, &pool), QUARRY_OK) << quarry_get_last_error();
    return pool;
  }
  void* take(std::size_t bytes = 4_MiB) {
    void* ptr = nullptr;
    EXPECT_EQ(quarry_pool_malloc(pool_, &ptr, bytes, nullptr), QUARRY_OK)
        << quarry_get_last_error();
    return ptr;
  }
  quarry_pool_checkpoint* save() {
    quarry_pool_checkpoint* checkpoint = nullptr;
    EXPECT_EQ(quarry_pool_save(pool_, &checkpoint), QUARRY_OK) << quarry_get_last_error();
    made_.insert(checkpoint);
    return checkpoint;
  }
  static Told restore(const quarry_pool_checkpoint* checkpoint, std::uint32_t flags = 0) {
    Told told;
    EXPECT_EQ(quarry_pool_restore(checkpoint, flags, note, &told), QUARRY_OK)
        << quarry_get_last_error();
    return told;
  }
  quarry_pool_stats stats() {
    quarry_pool_stats found = {};
    found.struct_size = sizeof(found);
    EXPECT_EQ(quarry_pool_get_stats(pool_, &found), QUARRY_OK) << quarry_get_last_error();
    return found;
  }
  std::int64_t blocks() { return stats().allocated_blocks; }
  static void expect_refused(const quarry_pool_checkpoint* checkpoint, quarry_status status,
                             const char* why) {
    Told told;
    EXPECT_EQ(quarry_pool_restore(checkpoint, 0, note, &told), status);
    EXPECT_TRUE(error_says(why));
    EXPECT_TRUE(told.stale.empty() && told.kept.empty() && told.revived.empty());
  }

  quarry_pool pool_ = QUARRY_POOL_DEFAULT;
  std::set<quarry_pool_checkpoint*> made_;
};

TEST_F(CheckpointApi, ARestoreTellsWhatBecameOfEachBlock) {
  void* kept = take();
  void* freed = take();
  quarry_pool_checkpoint* checkpoint = save();
  quarry_free(freed);
  void* later = take(1000);
  const Told told = restore(checkpoint);
  EXPECT_EQ(told.stale, Pointers{later});
  EXPECT_EQ(told.kept, Pointers{kept});
  EXPECT_EQ(told.revived, Pointers{freed});
  EXPECT_EQ(blocks(), 2);
  EXPECT_EQ(quarry_free_checked(freed), QUARRY_OK);
  EXPECT_EQ(quarry_free_checked(kept), QUARRY_OK);
  EXPECT_EQ(quarry_free_checked(later), QUARRY_OK);  // does nothing
  EXPECT_EQ(quarry_free_checked(later), QUARRY_ERROR_DOUBLE_FREE);
  EXPECT_EQ(blocks(), 0);
}

TEST_F(CheckpointApi, EachBranchGetsTheSameMemory) {
  void* shared = take();
  quarry_pool_checkpoint* checkpoint = save();
  void* first = take(8_MiB);
  restore(checkpoint);
  void* second = take(8_MiB);
  EXPECT_EQ(second, first);
  quarry_free(first);  // by the holder of the first branch
  EXPECT_EQ(blocks(), 2);
  EXPECT_EQ(restore(checkpoint).stale, Pointers{second});  // as often as one likes
  quarry_free(second);
  quarry_free(shared);
  EXPECT_EQ(blocks(), 0);
  EXPECT_EQ(sim().hazard_count(), 0u);
}

TEST_F(CheckpointApi, AHolderWhoWillNotFreeCanSaySo) {
  quarry_pool_checkpoint* checkpoint = save();
  void* stale = take();
  restore(checkpoint);
  EXPECT_EQ(take(), stale);
  EXPECT_EQ(quarry_pool_forget_stale(stale), QUARRY_OK);
  EXPECT_EQ(quarry_pool_forget_stale(stale), QUARRY_ERROR_INVALID_POINTER);
  EXPECT_TRUE(error_says("is no stale block"));
  EXPECT_EQ(blocks(), 1);
  quarry_free(stale);  // by the holder of now
  EXPECT_EQ(blocks(), 0);
}

TEST_F(CheckpointApi, WithTheFlagNobodysFreeIsWaitedFor) {
  quarry_pool_checkpoint* checkpoint = save();
  void* stale = take();
  EXPECT_EQ(restore(checkpoint, QUARRY_POOL_NO_STALE_FREES).stale, Pointers{stale});
  EXPECT_EQ(quarry_pool_forget_stale(stale), QUARRY_ERROR_INVALID_POINTER);
  EXPECT_EQ(take(), stale);
  EXPECT_EQ(quarry_free_checked(stale), QUARRY_OK);
  EXPECT_EQ(blocks(), 0);
}

// Else the address could come again, and the free would be that of somebody else's block.
TEST_F(CheckpointApi, AStaleBlockKeepsItsSegment) {
  quarry_pool_checkpoint* checkpoint = save();
  void* stale = take();
  restore(checkpoint);
  ASSERT_EQ(quarry_pool_trim(pool_), QUARRY_OK);
  EXPECT_EQ(stats().segments, 1);
  ASSERT_EQ(quarry_pool_release(pool_), QUARRY_OK);
  ASSERT_EQ(quarry_empty_cache(0), QUARRY_OK);
  EXPECT_EQ(sim().get_holdings(0).plain_allocations, 1u);
  EXPECT_EQ(quarry_free_checked(stale), QUARRY_OK);
  ASSERT_EQ(quarry_empty_cache(0), QUARRY_OK);
  EXPECT_EQ(sim().get_holdings(0).plain_allocations, 0u);
}

TEST_F(CheckpointApi, NoVisitorIsNeeded) {
  quarry_pool_checkpoint* checkpoint = save();
  take();
  EXPECT_EQ(quarry_pool_restore(checkpoint, 0, nullptr, nullptr), QUARRY_OK);
  EXPECT_EQ(blocks(), 0);
}

TEST_F(CheckpointApi, AVisitorMayCallTheLibrary) {
  void* ptr = take();
  quarry_pool_checkpoint* checkpoint = save();
  quarry_free(ptr);
  const auto free_revived = [](void* block, quarry_pool_restored what, void*) {
    if (what == QUARRY_POOL_BLOCK_REVIVED) quarry_free(block);
  };
  EXPECT_EQ(quarry_pool_restore(checkpoint, 0, free_revived, nullptr), QUARRY_OK);
  EXPECT_EQ(blocks(), 0);
}

// --- Errors ---

TEST_F(CheckpointApi, ArgumentsAreChecked) {
  quarry_pool_checkpoint* checkpoint = save();
  EXPECT_EQ(quarry_pool_save(pool_, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("checkpoint is NULL"));
  EXPECT_EQ(quarry_pool_restore(nullptr, 0, note, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("checkpoint is NULL"));
  EXPECT_EQ(quarry_pool_restore(checkpoint, 6, note, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("flags is 6"));
  EXPECT_EQ(quarry_pool_forget_stale(nullptr), QUARRY_ERROR_INVALID_POINTER);
  quarry_pool_checkpoint_destroy(nullptr);
  auto* failed = reinterpret_cast<quarry_pool_checkpoint*>(&pool_);
  EXPECT_EQ(quarry_pool_save(QUARRY_POOL_DEFAULT, &failed), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(failed, nullptr);
}

TEST_F(CheckpointApi, APoolThatIsGoneIsAnError) {
  quarry_pool_checkpoint* checkpoint = save();
  ASSERT_EQ(quarry_pool_release(pool_), QUARRY_OK);
  expect_refused(checkpoint, QUARRY_ERROR_INVALID_ARGUMENT, "does not exist");
  quarry_pool_checkpoint* none = nullptr;
  EXPECT_EQ(quarry_pool_save(pool_, &none), QUARRY_ERROR_INVALID_ARGUMENT);
}

TEST_F(CheckpointApi, ATrimMakesACheckpointUseless) {
  void* ptr = take();
  quarry_pool_checkpoint* checkpoint = save();
  quarry_free(ptr);
  ASSERT_EQ(quarry_pool_trim(pool_), QUARRY_OK);
  void* later = take();
  expect_refused(checkpoint, QUARRY_ERROR_INVALID_ARGUMENT, "was given back since");
  EXPECT_EQ(blocks(), 1);
  EXPECT_EQ(quarry_free_checked(later), QUARRY_OK);
}

TEST_F(CheckpointApi, ACaptureUnderWayIsInTheWay) {
  quarry_pool_checkpoint* checkpoint = save();
  const StreamRef side = sim().create_stream(0, sim::StreamKind::kNonBlocking);
  const quarry_stream stream = make_stream(static_cast<std::uint64_t>(side.handle));
  ASSERT_EQ(quarry_pool_begin_capture(pool_, stream), QUARRY_OK);
  ASSERT_EQ(sim().begin_capture(side, CaptureMode::kThreadLocal), DriverCode::kSuccess);
  void* ptr = nullptr;
  ASSERT_EQ(quarry_malloc(&ptr, 4_MiB, 0, stream), QUARRY_OK);
  expect_refused(checkpoint, QUARRY_ERROR_BUSY, "capture");
  quarry_pool_checkpoint* none = nullptr;
  EXPECT_EQ(quarry_pool_save(pool_, &none), QUARRY_ERROR_BUSY);
  EXPECT_TRUE(sim().end_capture(side).is_ok());
  ASSERT_EQ(quarry_pool_end(pool_), QUARRY_OK);
  EXPECT_EQ(restore(checkpoint).stale, Pointers{ptr});
}

TEST_F(CheckpointApi, ADriverCallbackIsNoPlaceForIt) {
  quarry_pool_checkpoint* checkpoint = save();
  ASSERT_EQ(quarry_driver_callback_begin(), QUARRY_OK);
  expect_refused(checkpoint, QUARRY_ERROR_BUSY, "driver callback");
  ASSERT_EQ(quarry_driver_callback_end(), QUARRY_OK);
}

// --- After a shutdown ---

TEST_F(CheckpointApi, OutlivesTheAllocatorAsAnError) {
  quarry_pool_checkpoint* checkpoint = save();
  ASSERT_EQ(quarry_shutdown(), QUARRY_OK);
  expect_refused(checkpoint, QUARRY_ERROR_SHUT_DOWN, "quarry_shutdown was called");
  start({}, 1);
  expect_refused(checkpoint, QUARRY_ERROR_INVALID_ARGUMENT, "was shut down since");
}

// The same name, the same addresses: laid out, its blocks would be somebody else's.
TEST_F(CheckpointApi, AnAllocatorThatLooksTheSameIsAnother) {
  constexpr quarry_torch_pool_id kName = {0, 3};
  const auto take_one = [&] {
    quarry_torch_retain_pool(0, kName, nullptr);
    auto made = peek_allocator()->allocate_in_pool({0, StreamHandle::kLegacy}, 4_MiB, 512,
                                                   {kName.first, kName.second});
    return made.value();
  };
  const Address before = take_one();
  quarry_pool_checkpoint* checkpoint = quarry_torch_save_pool(0, kName);
  made_.insert(checkpoint);
  ASSERT_EQ(quarry_shutdown(), QUARRY_OK);
  start({});
  ASSERT_EQ(take_one(), before);
  expect_refused(checkpoint, QUARRY_ERROR_INVALID_ARGUMENT, "was shut down since");
  EXPECT_EQ(quarry_free_checked(reinterpret_cast<void*>(before)), QUARRY_OK);
}

TEST_F(CheckpointApi, TheKillSwitchHasNone) {
  quarry_pool_checkpoint* checkpoint = save();
  ASSERT_EQ(quarry_shutdown(), QUARRY_OK);
  ProcessOptions disabled;
  disabled.is_disabled = true;
  start(disabled);
  expect_refused(checkpoint, QUARRY_ERROR_NOT_SUPPORTED, "kill switch");
  EXPECT_EQ(quarry_pool_forget_stale(&pool_), QUARRY_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(quarry_pool_save(pool_, &checkpoint), QUARRY_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(checkpoint, nullptr);
}

}  // namespace
}  // namespace quarry
