// SPDX-License-Identifier: Apache-2.0
// PyTorch's plug-in, called as PyTorch calls it: what each function returns, does and throws, over
// the simulated device and its oracle. That Python sees torch.OutOfMemoryError is shown by
// examples/pytorch/compare.py, which needs PyTorch and a GPU.
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "quarry/quarry.hpp"
#include "quarry/quarry_torch.h"
#include "tests/unit/api/api_fixture.hpp"

namespace quarry {
namespace {

using testing_support::ApiTest;
using testing_support::make_stream;

// What PyTorch casts the addresses to.
using MallocFunction = void*(std::size_t, int, quarry_stream);
using FreeFunction = void(void*, std::size_t, int, quarry_stream);
static_assert(std::is_same_v<decltype(quarry_torch_malloc), MallocFunction>);
static_assert(std::is_same_v<decltype(quarry_torch_free), FreeFunction>);

quarry_stream to_c(StreamRef stream) {
  return make_stream(static_cast<std::uint64_t>(stream.handle));
}

// The text of the exception of this class that `body` throws.
template <class Exception, class Body>
std::string catch_text(Body&& body) {
  try {
    body();
  } catch (const Exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of another class";
  }
  return "no exception";
}

bool says(const std::string& text, const std::string& piece) {
  return text.find(piece) != std::string::npos;
}

class TorchPlugin : public ApiTest {
 protected:
  void TearDown() override {
    quarry_torch_set_oom_thrower(nullptr);
    ApiTest::TearDown();
  }
};

TEST_F(TorchPlugin, AFreedBlockComesBackToItsStreamWithoutADriverCall) {
  const quarry_stream stream = to_c(sim().create_stream(0, sim::StreamKind::kNonBlocking));
  void* ptr = quarry_torch_malloc(4 << 20, 0, stream);
  quarry_torch_free(ptr, 4 << 20, 0, stream);
  const auto calls = sim().call_count();
  EXPECT_EQ(quarry_torch_malloc(4 << 20, 0, stream), ptr);
  EXPECT_EQ(sim().call_count(), calls);
}

TEST_F(TorchPlugin, ABlockIsOfTheNamedDeviceAndStream) {
  const quarry_stream stream = to_c(sim().create_stream(1, sim::StreamKind::kNonBlocking));
  void* ptr = quarry_torch_malloc(1000, 1, stream);
  quarry_block_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_EQ(quarry_get_block_info(ptr, &info), QUARRY_OK);
  EXPECT_EQ(info.device, 1);
  EXPECT_EQ(info.stream, stream);
  EXPECT_EQ(info.requested_bytes, 1000u);
  quarry_torch_free(ptr, 1000, 1, stream);
  EXPECT_EQ(stat("allocated_bytes.all.current", 1), 0);
}

TEST_F(TorchPlugin, ZeroBytesAreNullAndNullIsFreed) {
  void* ptr = quarry_torch_malloc(0, 0, nullptr);
  EXPECT_EQ(ptr, nullptr);
  quarry_torch_free(ptr, 0, 0, nullptr);
  EXPECT_EQ(stat("allocation.all.allocated"), 0);
  EXPECT_EQ(stat("invalid_frees"), 0);
}

TEST_F(TorchPlugin, ARefusedRequestThrowsTheReportAndTheNextOneWorks) {
  void* kept = quarry_torch_malloc(700_MiB, 0, nullptr);
  for (const std::size_t bytes : {std::size_t{900_MiB}, std::numeric_limits<std::size_t>::max()}) {
    const auto refused = [&] { quarry_torch_malloc(bytes, 0, nullptr); };
    const std::string text = catch_text<OutOfMemory>(refused);
    EXPECT_TRUE(text.starts_with("CUDA out of memory. Tried to allocate")) << text;
    EXPECT_EQ(catch_text<std::exception>(refused), text);  // what PyTorch catches
  }
  EXPECT_EQ(stat("allocated_bytes.all.current"), static_cast<std::int64_t>(700_MiB));
  void* next = quarry_torch_malloc(100_MiB, 0, nullptr);
  EXPECT_NE(next, nullptr);
  quarry_torch_free(next, 100_MiB, 0, nullptr);
  quarry_torch_free(kept, 700_MiB, 0, nullptr);
}

struct ForeignOutOfMemory : std::logic_error {
  using std::logic_error::logic_error;
};

TEST_F(TorchPlugin, TheThrowerDecidesWhatARefusedRequestThrows) {
  const auto refused = [] { quarry_torch_malloc(2_GiB, 0, nullptr); };
  quarry_torch_set_oom_thrower([](const char* text) { throw ForeignOutOfMemory(text); });
  const std::string text = catch_text<ForeignOutOfMemory>(refused);
  EXPECT_TRUE(text.starts_with("CUDA out of memory. Tried to allocate 2.00 GiB")) << text;
  quarry_torch_set_oom_thrower([](const char*) {});  // one that does not keep its word
  EXPECT_EQ(catch_text<OutOfMemory>(refused), text);
  quarry_torch_set_oom_thrower(nullptr);
  EXPECT_EQ(catch_text<OutOfMemory>(refused), text);
}

TEST_F(TorchPlugin, OnlyOutOfMemoryIsOutOfMemory) {
  quarry_torch_set_oom_thrower([](const char* text) { throw ForeignOutOfMemory(text); });
  const std::string text = catch_text<Error>([] { quarry_torch_malloc(512, 7, nullptr); });
  EXPECT_TRUE(says(text, "Quarry: device is 7")) << text;
}

TEST_F(TorchPlugin, AWrongFreeIsCountedAndChangesNothing) {
  void* ptr = quarry_torch_malloc(1000, 0, nullptr);
  int on_the_host = 0;
  quarry_torch_free(&on_the_host, 4, 0, nullptr);
  EXPECT_EQ(stat("invalid_frees"), 1);
  EXPECT_EQ(stat("allocation.all.current"), 1);
  quarry_torch_free(ptr, 1000, 0, nullptr);
  quarry_torch_free(ptr, 1000, 0, nullptr);
  EXPECT_EQ(stat("invalid_frees"), 2);
  EXPECT_EQ(stat("allocation.all.current"), 0);
}

// A tensor of the default stream is used on a side stream and dropped while that still runs.
class TorchRecordStream : public TorchPlugin {
 protected:
  static constexpr std::size_t kBytes = 4 << 20;

  void* use_on_side_stream_and_free(bool is_recorded) {
    const StreamRef main{0, StreamHandle::kLegacy};
    void* ptr = quarry_torch_malloc(kBytes, 0, nullptr);
    const auto address = reinterpret_cast<Address>(ptr);
    const auto tensor = sim().begin_lifetime(0, address, kBytes, main);
    sim().user_orders(main, side_);
    if (is_recorded) quarry_torch_record_stream(ptr, to_c(side_));
    const sim::LifetimeId uses[] = {tensor};
    sim().submit_work(side_, sim::WorkTime::endless(), uses);
    sim().end_lifetime(tensor);
    quarry_torch_free(ptr, kBytes, 0, nullptr);
    return ptr;
  }
  void* take() {
    void* ptr = quarry_torch_malloc(kBytes, 0, nullptr);
    sim().begin_lifetime(0, reinterpret_cast<Address>(ptr), kBytes, {0, StreamHandle::kLegacy});
    return ptr;
  }
  void SetUp() override {
    TorchPlugin::SetUp();
    side_ = sim().create_stream(0, sim::StreamKind::kNonBlocking);
  }

  StreamRef side_;
};

TEST_F(TorchRecordStream, TheMemoryIsReusedOnlyWhenTheSideStreamIsDone) {
  void* ptr = use_on_side_stream_and_free(true);
  EXPECT_NE(take(), ptr);
  EXPECT_EQ(sim().hazard_count(), 0u);
  sim().complete(side_);
  EXPECT_EQ(take(), ptr);
  EXPECT_EQ(sim().hazard_count(), 0u);
}

TEST_F(TorchRecordStream, WithoutItTheMemoryIsReusedTooEarlyAndTheOracleSeesIt) {
  void* ptr = use_on_side_stream_and_free(false);
  EXPECT_EQ(take(), ptr);
  EXPECT_EQ(sim().hazard_count(), 1u);
  sim().complete(side_);
}

TEST_F(TorchRecordStream, MemoryOfOthersIsIgnored) {
  int on_the_host = 0;
  quarry_torch_record_stream(&on_the_host, to_c(side_));
  quarry_torch_record_stream(nullptr, to_c(side_));
  EXPECT_EQ(stat("invalid_frees"), 0);
}

TEST_F(TorchPlugin, InitAcceptsAsManyDevicesAsThereAreAndRefusesMore) {
  quarry_torch_init(0);
  quarry_torch_init(2);
  const std::string text = catch_text<Error>([] { quarry_torch_init(3); });
  EXPECT_TRUE(says(text, "PyTorch has 3 devices, this allocator 2")) << text;
}

TEST_F(TorchPlugin, ResetEmptiesTheCacheOfEveryDeviceOnce) {
  for (const int device : {0, 1})
    quarry_torch_free(quarry_torch_malloc(30_MiB, device, nullptr), 30_MiB, device, nullptr);
  quarry_torch_reset();
  for (const int device : {0, 1}) {
    EXPECT_EQ(stat("reserved_bytes.all.current", device), 0);
    EXPECT_EQ(stat("num_sync_all_streams", device), 1);
  }
}

TEST_F(TorchPlugin, AResetThatIsRefusedThrows) {
  quarry_torch_free(quarry_torch_malloc(30_MiB, 0, nullptr), 30_MiB, 0, nullptr);
  ASSERT_EQ(quarry_driver_free_guard_lock(), QUARRY_OK);
  const std::string text = catch_text<Error>([] { quarry_torch_reset(); });
  EXPECT_TRUE(says(text, "driver-free guard")) << text;
  ASSERT_EQ(quarry_driver_free_guard_unlock(), QUARRY_OK);
}

TEST_F(TorchPlugin, TheMemoryFractionBoundsTheProcess) {
  quarry_torch_memory_fraction(0.5, 0);
  double fraction = 0;
  EXPECT_EQ(quarry_get_memory_fraction(0, &fraction), QUARRY_OK);
  EXPECT_EQ(fraction, 0.5);
  EXPECT_TRUE(catch_text<OutOfMemory>([] {
                quarry_torch_malloc(600_MiB, 0, nullptr);
              }).starts_with("CUDA out of memory."));
  quarry_torch_free(quarry_torch_malloc(500_MiB, 0, nullptr), 500_MiB, 0, nullptr);
  EXPECT_TRUE(says(catch_text<Error>([] { quarry_torch_memory_fraction(1.5, 0); }), "1.5"));
}

TEST_F(TorchPlugin, TheBaseOfABlockIsItsSegment) {
  void* first = quarry_torch_malloc(3 << 20, 0, nullptr);
  auto* second = static_cast<char*>(quarry_torch_malloc(3 << 20, 0, nullptr));
  std::size_t bytes = 0;
  EXPECT_EQ(quarry_torch_base_alloc(second + 5, &bytes), first);
  EXPECT_EQ(bytes, 20_MiB);
  EXPECT_EQ(quarry_torch_base_alloc(first, nullptr), first);
  int on_the_host = 0;
  EXPECT_TRUE(says(catch_text<Error>([&] { quarry_torch_base_alloc(&on_the_host, &bytes); }),
                   "is not inside a live block"));
}

}  // namespace
}  // namespace quarry
