// SPDX-License-Identifier: Apache-2.0
// The C API's memory functions: what each returns for good, null, zero, huge and wrong arguments.
#include <cstdint>
#include <limits>
#include <set>
#include <thread>
#include <vector>

#include "tests/unit/api/api_fixture.hpp"

namespace quarry {
namespace {

using testing_support::ApiTest;
using testing_support::error_says;
using testing_support::make_stream;

class MemoryApi : public ApiTest {};

TEST_F(MemoryApi, ABlockComesFromTheNamedDeviceAndGoesBack) {
  void* ptr = allocate(1000, 1);
  EXPECT_NE(ptr, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % 512, 0u);
  EXPECT_EQ(stat("allocated_bytes.all.current", 1), 1024);
  EXPECT_EQ(stat("allocated_bytes.all.current", 0), 0);
  EXPECT_EQ(quarry_free_checked(ptr), QUARRY_OK);
  EXPECT_EQ(stat("allocated_bytes.all.current", 1), 0);
}

TEST_F(MemoryApi, ACachedBlockIsServedWithoutADriverCall) {
  void* first = allocate(4 << 20);
  quarry_free(first);
  const auto calls = sim().call_count();
  EXPECT_EQ(allocate(4 << 20), first);
  EXPECT_EQ(sim().call_count(), calls);
}

TEST_F(MemoryApi, C20ZeroBytesIsNullAndCountsNothing) {
  void* ptr = reinterpret_cast<void*>(1);
  EXPECT_EQ(quarry_malloc(&ptr, 0, 0, nullptr), QUARRY_OK);
  EXPECT_EQ(ptr, nullptr);
  EXPECT_EQ(stat("allocation.all.allocated"), 0);
  EXPECT_EQ(quarry_free_checked(ptr), QUARRY_OK);
  EXPECT_EQ(stat("allocation.all.freed"), 0);
}

TEST_F(MemoryApi, C20SizesNearTheTopFailCleanly) {
  quarry_free(allocate(1024));
  constexpr auto kTop = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t bytes :
       {kTop, kTop - 1, kTop - 510, kTop - 511, kTop - 7, std::uint64_t{1} << 63,
        (std::uint64_t{1} << 63) - 1, std::uint64_t{18446744073708433663u}}) {
    void* ptr = reinterpret_cast<void*>(1);
    EXPECT_EQ(quarry_malloc(&ptr, bytes, 0, nullptr), QUARRY_ERROR_OUT_OF_MEMORY) << bytes;
    EXPECT_EQ(ptr, nullptr) << bytes;
    EXPECT_EQ(quarry_malloc_aligned(&ptr, bytes, 4096, 0, nullptr), QUARRY_ERROR_OUT_OF_MEMORY);
  }
  EXPECT_EQ(stat("allocation.all.current"), 0);
  auto* a = static_cast<char*>(allocate(512));
  auto* b = static_cast<char*>(allocate(512));
  EXPECT_GE(std::max(a, b) - std::min(a, b), 512);
}

TEST_F(MemoryApi, C18OutOfMemoryIsACodeWithNullAndTheNextRequestWorks) {
  std::vector<void*> kept;
  for (int i = 0; i < 3; ++i)
    kept.push_back(allocate(256_MiB));
  for (int i = 0; i < 3; ++i) {
    void* ptr = reinterpret_cast<void*>(1);
    EXPECT_EQ(quarry_malloc(&ptr, 1_GiB, 0, nullptr), QUARRY_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(ptr, nullptr);
    EXPECT_TRUE(error_says("CUDA out of memory. Tried to allocate 1024.00 MiB"));
  }
  EXPECT_EQ(stat("num_ooms"), 3);
  EXPECT_EQ(stat("allocated_bytes.all.current"), static_cast<std::int64_t>(768_MiB));
  for (void* ptr : kept)
    quarry_free(ptr);
  EXPECT_NE(allocate(1_GiB), nullptr);
  EXPECT_EQ(stat("reserved_bytes.all.current"), static_cast<std::int64_t>(1_GiB));
}

TEST_F(MemoryApi, NullOutPointersAreRefusedByName) {
  EXPECT_EQ(quarry_malloc(nullptr, 512, 0, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("ptr is NULL"));
  EXPECT_EQ(quarry_malloc_aligned(nullptr, 512, 512, 0, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_get_device_count(nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_get_limit(0, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_get_memory_fraction(0, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
}

TEST_F(MemoryApi, AnUnknownDeviceIsRefusedByEveryFunctionThatNamesOne) {
  void* ptr = nullptr;
  double fraction = 0;
  std::uint64_t bytes = 0;
  for (const int device : {-1, 2, std::numeric_limits<int>::max()}) {
    EXPECT_EQ(quarry_malloc(&ptr, 512, device, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(error_says("device is " + std::to_string(device)));
    EXPECT_TRUE(error_says("0 to 1"));
    EXPECT_EQ(quarry_malloc_aligned(&ptr, 512, 512, device, nullptr),
              QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(quarry_stream_retire(device, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(quarry_empty_cache(device), QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(quarry_set_limit(device, 1), QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(quarry_get_limit(device, &bytes), QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(quarry_set_memory_fraction(device, 0.5), QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(quarry_get_memory_fraction(device, &fraction), QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(quarry_reset_peak_stats(device), QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(quarry_reset_accumulated_stats(device), QUARRY_ERROR_INVALID_ARGUMENT);
  }
  int count = 0;
  EXPECT_EQ(quarry_get_device_count(&count), QUARRY_OK);
  EXPECT_EQ(count, 2);
}

TEST_F(MemoryApi, AlignmentIsKeptAndMustBeAPowerOfTwo) {
  allocate(512);  // so that the next block does not begin a segment
  for (const std::size_t alignment : {512u, 4096u, 65536u, 2u << 20}) {
    void* ptr = nullptr;
    ASSERT_EQ(quarry_malloc_aligned(&ptr, 3000, alignment, 0, nullptr), QUARRY_OK);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % alignment, 0u) << alignment;
    EXPECT_EQ(quarry_free_sized(ptr, 3000), QUARRY_OK);
  }
  void* ptr = nullptr;
  for (const std::size_t alignment : {0u, 3u, 513u}) {
    EXPECT_EQ(quarry_malloc_aligned(&ptr, 3000, alignment, 0, nullptr),
              QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(error_says("alignment is " + std::to_string(alignment)));
  }
}

TEST_F(MemoryApi, FreeOfNullDoesNothing) {
  quarry_free(nullptr);
  EXPECT_EQ(quarry_free_checked(nullptr), QUARRY_OK);
  EXPECT_EQ(quarry_free_sized(nullptr, 5), QUARRY_OK);
  EXPECT_EQ(quarry_free_on_stream(nullptr, nullptr), QUARRY_OK);
  EXPECT_EQ(quarry_record_stream(nullptr, nullptr), QUARRY_OK);
  EXPECT_EQ(stat("invalid_frees"), 0);
}

TEST_F(MemoryApi, C70ASizedFreeWithAnotherSizeSaysSoAndFrees) {
  EXPECT_EQ(quarry_free_sized(allocate(1000), 2000), QUARRY_ERROR_SIZE_MISMATCH);
  EXPECT_TRUE(error_says("2000"));
  EXPECT_TRUE(error_says("1000"));
  EXPECT_EQ(quarry_free_sized(allocate(1000), 0), QUARRY_ERROR_SIZE_MISMATCH);
  EXPECT_EQ(stat("allocated_bytes.all.current"), 0);
  EXPECT_EQ(stat("size_mismatches"), 2);
}

TEST_F(MemoryApi, C70InteriorAndForeignPointersAreRefusedAndChangeNothing) {
  auto* ptr = static_cast<char*>(allocate(1000));
  int on_the_host = 0;
  EXPECT_EQ(quarry_free_checked(ptr + 256), QUARRY_ERROR_INVALID_POINTER);
  EXPECT_TRUE(error_says("invalid device pointer"));
  EXPECT_EQ(quarry_free_checked(&on_the_host), QUARRY_ERROR_INVALID_POINTER);
  quarry_free(&on_the_host);
  EXPECT_EQ(stat("invalid_frees"), 3);
  EXPECT_EQ(stat("allocated_bytes.all.current"), 1024);
  EXPECT_EQ(quarry_free_checked(ptr), QUARRY_OK);
}

TEST_F(MemoryApi, RecordStreamOfABadPointerIsAnInvalidPointerAndNoFree) {
  auto* held = static_cast<char*>(allocate(1000));
  void* freed = allocate(1000);
  quarry_free(freed);
  int on_the_host = 0;
  const quarry_stream other = make_stream(2);
  EXPECT_EQ(quarry_record_stream(&on_the_host, other), QUARRY_ERROR_INVALID_POINTER);
  EXPECT_EQ(quarry_record_stream(held + 256, other), QUARRY_ERROR_INVALID_POINTER);
  EXPECT_TRUE(error_says("256 bytes inside a live block"));
  EXPECT_EQ(quarry_record_stream(freed, other), QUARRY_ERROR_INVALID_POINTER);
  EXPECT_TRUE(error_says("record_stream: invalid device pointer"));
  EXPECT_TRUE(error_says("it was freed already"));
  EXPECT_EQ(stat("invalid_frees"), 0);
  EXPECT_EQ(quarry_free_checked(freed), QUARRY_ERROR_DOUBLE_FREE);
  EXPECT_EQ(stat("invalid_frees"), 1);
}

TEST_F(MemoryApi, C88ASecondFreeIsADoubleFreeAndChangesNothing) {
  void* x = allocate(512);
  EXPECT_EQ(quarry_free_checked(x), QUARRY_OK);
  EXPECT_EQ(quarry_free_checked(x), QUARRY_ERROR_DOUBLE_FREE);
  void* y = allocate(512);
  void* z = allocate(512);
  EXPECT_NE(y, z);
  EXPECT_EQ(quarry_free_checked(y), QUARRY_OK);
  EXPECT_EQ(quarry_free_checked(z), QUARRY_OK);
}

TEST_F(MemoryApi, C88OfTwoRacingFreesExactlyOneSucceeds) {
  for (int round = 0; round < 200; ++round) {
    void* ptr = allocate(512);
    quarry_status results[2] = {};
    std::thread other([&] { results[0] = quarry_free_checked(ptr); });
    results[1] = quarry_free_checked(ptr);
    other.join();
    EXPECT_EQ((results[0] == QUARRY_OK) + (results[1] == QUARRY_OK), 1);
  }
}

TEST_F(MemoryApi, ARecordedStreamKeepsTheBlockFromOthersUntilItsWorkIsDone) {
  const StreamRef side = sim().create_stream(0, sim::StreamKind::kNonBlocking);
  const auto side_stream = make_stream(static_cast<std::uint64_t>(side.handle));
  void* ptr = allocate(4 << 20);
  EXPECT_EQ(sim().submit_work(side, sim::WorkTime::endless()), DriverCode::kSuccess);
  ASSERT_EQ(quarry_record_stream(ptr, side_stream), QUARRY_OK);
  EXPECT_EQ(quarry_free_checked(ptr), QUARRY_OK);
  EXPECT_EQ(quarry_free_checked(ptr), QUARRY_ERROR_DOUBLE_FREE);  // pending counts as freed
  EXPECT_GT(stat("pending_bytes"), 0);
  void* other = allocate(4 << 20);
  EXPECT_NE(other, ptr);
  sim().complete(side);
  EXPECT_EQ(allocate(4 << 20), ptr);
}

TEST_F(MemoryApi, FreeOnStreamGivesTheBlockToThatStream) {
  const auto stream = [&] {
    return make_stream(
        static_cast<std::uint64_t>(sim().create_stream(0, sim::StreamKind::kNonBlocking).handle));
  };
  const quarry_stream from = stream();
  const quarry_stream to = stream();
  void* ptr = allocate(20 << 20, 0, from);
  ASSERT_EQ(quarry_free_on_stream(ptr, to), QUARRY_OK) << quarry_get_last_error();
  EXPECT_EQ(allocate(20 << 20, 0, to), ptr);
}

TEST_F(MemoryApi, ARetiredStreamsMemoryServesOthers) {
  const StreamRef once = sim().create_stream(0, sim::StreamKind::kNonBlocking);
  const auto once_stream = make_stream(static_cast<std::uint64_t>(once.handle));
  quarry_free(allocate(20 << 20, 0, once_stream));
  ASSERT_EQ(quarry_stream_retire(0, once_stream), QUARRY_OK) << quarry_get_last_error();
  EXPECT_EQ(sim().destroy_stream(once), DriverCode::kSuccess);
  const auto segments = stat("segment.all.allocated");
  allocate(20 << 20);
  EXPECT_EQ(stat("segment.all.allocated"), segments);
  EXPECT_EQ(sim().misuse_count(), 0u);
}

TEST_F(MemoryApi, AThreadsOwnDefaultStreamIsRetiredWhenItEnds) {
  std::thread([&] {
    void* ptr = nullptr;
    ASSERT_EQ(quarry_malloc(&ptr, 20 << 20, 0, make_stream(2)), QUARRY_OK);
    quarry_free(ptr);
  }).join();
  const auto segments = stat("segment.all.allocated");
  allocate(20 << 20);
  EXPECT_EQ(stat("segment.all.allocated"), segments);
}

TEST_F(MemoryApi, TheCallersCurrentDeviceDoesNotMatterAndStays) {
  sim().set_current_device(1);
  void* ptr = allocate(4 << 20, 0);
  EXPECT_EQ(sim().get_current_device(), 1);
  quarry_block_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_EQ(quarry_get_block_info(ptr, &info), QUARRY_OK);
  EXPECT_EQ(info.device, 0);
  quarry_free(ptr);
  EXPECT_EQ(quarry_empty_cache(0), QUARRY_OK);
  EXPECT_EQ(sim().get_current_device(), 1);
  sim().set_current_device(0);
}

TEST_F(MemoryApi, BlockInfoTellsOfTheBlockAroundAPointer) {
  auto* ptr = static_cast<char*>(allocate(3000, 1, make_stream(2)));
  quarry_block_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_EQ(quarry_get_block_info(ptr + 100, &info), QUARRY_OK) << quarry_get_last_error();
  EXPECT_EQ(info.address, ptr);
  EXPECT_EQ(info.bytes, 3072u);
  EXPECT_EQ(info.requested_bytes, 3000u);
  EXPECT_EQ(info.segment_bytes, 2_MiB);
  EXPECT_LE(info.segment_address, ptr);
  EXPECT_EQ(info.device, 1);
  EXPECT_EQ(info.stream, make_stream(2));
  EXPECT_EQ(quarry_get_block_info(ptr + 3072, &info), QUARRY_ERROR_INVALID_POINTER);
  quarry_free(ptr);
  EXPECT_EQ(quarry_get_block_info(ptr, &info), QUARRY_ERROR_INVALID_POINTER);
  EXPECT_EQ(quarry_get_block_info(nullptr, &info), QUARRY_ERROR_INVALID_POINTER);
}

TEST_F(MemoryApi, StructsAreFilledAsFarAsTheirSizeSays) {
  void* ptr = allocate(3000);
  struct {
    quarry_block_info info;
    std::uint64_t after;
  } larger = {};
  larger.after = 77;
  larger.info.struct_size = sizeof(larger);  // a caller from the future
  ASSERT_EQ(quarry_get_block_info(ptr, &larger.info), QUARRY_OK);
  EXPECT_EQ(larger.info.bytes, 3072u);
  EXPECT_EQ(larger.after, 77u);
  EXPECT_EQ(larger.info.struct_size, sizeof(larger));

  quarry_block_info smaller = {};
  smaller.struct_size = offsetof(quarry_block_info, requested_bytes);  // one from the past
  smaller.requested_bytes = 77;
  ASSERT_EQ(quarry_get_block_info(ptr, &smaller), QUARRY_OK);
  EXPECT_EQ(smaller.bytes, 3072u);
  EXPECT_EQ(smaller.requested_bytes, 77u);

  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{1} << 40}) {
    quarry_block_info unset = {};
    unset.struct_size = size;
    EXPECT_EQ(quarry_get_block_info(ptr, &unset), QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(error_says("info->struct_size is"));
  }
  EXPECT_EQ(quarry_get_block_info(ptr, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
}

TEST_F(MemoryApi, LimitsAreReadBackAndHold) {
  ASSERT_EQ(quarry_set_limit(0, 64_MiB), QUARRY_OK);
  std::uint64_t limit = 0;
  EXPECT_EQ(quarry_get_limit(0, &limit), QUARRY_OK);
  EXPECT_EQ(limit, 64_MiB);
  void* ptr = nullptr;
  EXPECT_EQ(quarry_malloc(&ptr, 128_MiB, 0, nullptr), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(allocate(128_MiB, 1), nullptr);
  ASSERT_EQ(quarry_set_limit(0, QUARRY_UNLIMITED), QUARRY_OK);
  EXPECT_NE(allocate(128_MiB), nullptr);
}

TEST_F(MemoryApi, FractionsAreReadBackAndHold) {
  ASSERT_EQ(quarry_set_memory_fraction(0, 0.5), QUARRY_OK);
  double fraction = 0;
  EXPECT_EQ(quarry_get_memory_fraction(0, &fraction), QUARRY_OK);
  EXPECT_EQ(fraction, 0.5);
  void* ptr = nullptr;
  EXPECT_EQ(quarry_malloc(&ptr, 600_MiB, 0, nullptr), QUARRY_ERROR_OUT_OF_MEMORY);
  for (const double bad : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(quarry_set_memory_fraction(0, bad), QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(error_says("raction"));
  }
  EXPECT_EQ(quarry_get_memory_fraction(0, &fraction), QUARRY_OK);
  EXPECT_EQ(fraction, 0.5);
}

TEST_F(MemoryApi, C65EmptyCacheGivesEverythingFreeBackAndReportsAFailure) {
  quarry_free(allocate(128));
  ASSERT_EQ(quarry_empty_cache(0), QUARRY_OK);
  EXPECT_EQ(stat("segment.all.current"), 0);
  EXPECT_EQ(stat("reserved_bytes.all.current"), 0);
  EXPECT_EQ(sim().get_holdings(0).plain_allocations, 0u);

  quarry_free(allocate(4 << 20));
  sim().fail_call(DriverEntry::kFree, 1, DriverCode::kIllegalAddress);
  EXPECT_EQ(quarry_empty_cache(0), QUARRY_ERROR_DRIVER);
  EXPECT_TRUE(error_says("CUDA_ERROR_ILLEGAL_ADDRESS"));
  quarry_status from_other_thread = QUARRY_ERROR_INTERNAL;
  std::thread([&] {
    void* ptr = nullptr;
    from_other_thread = quarry_malloc(&ptr, 512, 0, nullptr);
  }).join();
  EXPECT_EQ(from_other_thread, QUARRY_OK);
}

TEST_F(MemoryApi, TheLastErrorIsTheThreadsOwnAndSurvivesSuccess) {
  EXPECT_EQ(quarry_malloc(nullptr, 1, 0, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  const std::string mine = quarry_get_last_error();
  EXPECT_NE(mine, "");
  std::thread([] {
    EXPECT_STREQ(quarry_get_last_error(), "");
    EXPECT_EQ(quarry_empty_cache(-1), QUARRY_ERROR_INVALID_ARGUMENT);
  }).join();
  allocate(512);
  EXPECT_EQ(quarry_get_last_error(), mine);
}

TEST_F(MemoryApi, EveryStatusHasAName) {
  std::set<std::string> names;
  for (int code = QUARRY_OK; code <= QUARRY_ERROR_SHUT_DOWN; ++code) {
    names.insert(quarry_get_status_name(static_cast<quarry_status>(code)));
  }
  EXPECT_EQ(names.size(), 12u);
  EXPECT_EQ(names.count("unknown status"), 0u);
  EXPECT_STREQ(quarry_get_status_name(static_cast<quarry_status>(99)), "unknown status");
}

}  // namespace
}  // namespace quarry
