// SPDX-License-Identifier: Apache-2.0
// Data integrity on the real device: kernels fill each block with a pattern of its own and check
// it before it is freed, over several streams and threads, with foreign uses, trims and full
// memory. A block that is handed out while somebody still uses it shows as wrong words.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/allocator.hpp"
#include "cuda/cuda_driver.hpp"
#include "tests/gpu/gpu_support.hpp"

namespace quarry {
namespace {

std::uint64_t get_block_count() {
  const char* const text = std::getenv("QUARRY_GPU_BLOCKS");
  return text == nullptr ? 1'000'000 : std::stoull(text);
}

gpu::Stream get_handle(StreamRef stream) {
  return static_cast<gpu::Stream>(stream.handle);
}
StreamRef make_stream(bool is_blocking) {
  return {0, StreamHandle{gpu::create_stream(is_blocking)}};
}

struct LiveBlock {
  Address address;
  Bytes bytes;
  std::uint32_t value;
  StreamRef stream;
};

// One thread's random program over streams of its own and one that all share.
class Program {
 public:
  Program(Allocator& allocator, std::uint64_t seed, StreamRef shared)
      : allocator_(allocator), random_(seed), shared_(shared) {
    for (StreamRef& stream : own_)
      stream = make_stream(false);
  }
  ~Program() {
    for (StreamRef stream : own_) {
      EXPECT_TRUE(allocator_.retire_stream(stream).is_ok());
      gpu::destroy_stream(get_handle(stream));
    }
  }

  void run(std::uint64_t blocks) {
    for (std::uint64_t made = 0; made < blocks;) {
      if (live_.size() >= kLiveMax || (!live_.empty() && draw(5) == 0)) {
        give_up(draw(live_.size()));
        continue;
      }
      made += make_block() ? 1 : 0;
      if (draw(20'000) == 0) {
        EXPECT_TRUE(allocator_.empty_cache(0).is_ok());
      }
    }
    while (!live_.empty())
      give_up(live_.size() - 1);
  }

  std::uint64_t ooms() const { return ooms_; }

 private:
  static constexpr std::size_t kLiveMax = 256;

  std::uint64_t draw(std::uint64_t below) { return random_() % below; }

  // Log-uniform: mostly small, sometimes up to 64 MiB.
  Bytes draw_bytes() { return (Bytes{4} << draw(draw(50) == 0 ? 25 : 17)) * (1 + draw(4)); }

  bool make_block() {
    const StreamRef stream = draw(8) == 0 ? shared_ : own_[draw(own_.size())];
    const Bytes bytes = draw_bytes();
    const auto address = allocator_.allocate(stream, bytes);
    if (!address.is_ok()) {
      EXPECT_EQ(address.code(), StatusCode::kOutOfMemory) << address.status().message();
      ++ooms_;
      if (!live_.empty()) give_up(draw(live_.size()));
      return false;
    }
    const auto value = static_cast<std::uint32_t>(random_());
    gpu::fill(address.value(), bytes, value, get_handle(stream));
    live_.push_back({address.value(), bytes, value, stream});
    return true;
  }

  // Checks the block once more, sometimes on another stream, and frees it.
  void give_up(std::size_t index) {
    const LiveBlock block = live_[index];
    live_[index] = live_.back();
    live_.pop_back();
    gpu::check(block.address, block.bytes, block.value, get_handle(block.stream));
    if (draw(4) == 0) {
      const StreamRef other = own_[draw(own_.size())];
      gpu::order(get_handle(block.stream), get_handle(other));
      gpu::check(block.address, block.bytes, block.value, get_handle(other));
      EXPECT_TRUE(allocator_.record_stream(block.address, other.handle).is_ok());
    }
    EXPECT_TRUE(allocator_.free(block.address).is_ok());
  }

  Allocator& allocator_;
  std::mt19937_64 random_;
  StreamRef shared_;
  std::array<StreamRef, 3> own_;
  std::vector<LiveBlock> live_;
  std::uint64_t ooms_ = 0;
};

void run_programs(Allocator& allocator, int threads, std::uint64_t blocks) {
  const StreamRef shared = make_stream(true);
  std::atomic<std::uint64_t> ooms{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      Program program(allocator, static_cast<std::uint64_t>(t) + 1, shared);
      program.run(blocks / static_cast<std::uint64_t>(threads));
      ooms += program.ooms();
    });
  }
  for (std::thread& worker : workers)
    worker.join();
  EXPECT_EQ(gpu::count_wrong_words(), 0u);
  EXPECT_TRUE(allocator.retire_stream(shared).is_ok());
  gpu::destroy_stream(get_handle(shared));
  allocator.validate();
  EXPECT_TRUE(allocator.empty_cache(0).is_ok());
  const DeviceStats stats = allocator.get_stats(0).value();
  EXPECT_EQ(stats.reserved_bytes.all.current, 0);
  std::printf("blocks=%llu threads=%d ooms=%llu retries=%lld segments=%lld peak_reserved=%lld\n",
              static_cast<unsigned long long>(blocks), threads,
              static_cast<unsigned long long>(ooms.load()),
              static_cast<long long>(stats.num_alloc_retries),
              static_cast<long long>(stats.num_device_alloc),
              static_cast<long long>(stats.reserved_bytes.all.peak));
}

struct Device {
  Device() {
    auto opened = cuda::open_cuda_driver();
    driver = std::move(opened).value();
    allocator = Allocator::create(*driver, Config{}).value();
  }
  std::unique_ptr<Driver> driver;
  std::unique_ptr<Allocator> allocator;
};

TEST(GpuIntegrity, RandomBlocksKeepTheirWordsOnOneThread) {
  Device device;
  run_programs(*device.allocator, 1, get_block_count() / 5);
}

TEST(GpuIntegrity, RandomBlocksKeepTheirWordsOnEightThreads) {
  Device device;
  run_programs(*device.allocator, 8, get_block_count());
}

TEST(GpuIntegrity, RandomBlocksKeepTheirWordsWithLittleMemory) {
  Device device;
  ASSERT_TRUE(device.allocator->set_limit(0, 1_GiB).is_ok());
  run_programs(*device.allocator, 4, get_block_count() / 5);
}

}  // namespace
}  // namespace quarry
