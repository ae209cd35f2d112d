// SPDX-License-Identifier: Apache-2.0
// Replaying a long trace needs no more host memory than replaying its beginning: a program of its
// own, because it counts every byte that operator new hands out. (The resident size that the
// system reports is no measure here: a child's includes that of the test that started it.)
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/unit/trace/trace_text.hpp"
#include "tools/replayer.hpp"

namespace {

std::atomic<std::size_t> live_bytes{0};
std::atomic<std::size_t> peak_bytes{0};

}  // namespace

// The library's own aligned forms of new call malloc on their own; nothing measured here uses
// them. Never inlined: a compiler that sees into one of a pair warns of malloc met by delete.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  const std::size_t live = live_bytes += malloc_usable_size(memory);
  if (live > peak_bytes) peak_bytes = live;
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory != nullptr) live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}

namespace quarry::tools {
namespace {

// A steady program as CSV text, made row by row: every cycle of 40 allocations is like the one
// before it, on three streams, with ids that are never used again.
class SteadyProgram {
 public:
  explicit SteadyProgram(std::uint64_t rows) : rows_(rows) {}

  // Little at a time, so that the text's own memory is the same for every length.
  Result<std::size_t> read(std::span<char> out) {
    while (text_.size() < kTextBytes && row_ < rows_)
      add_row();
    const std::size_t count = std::min(out.size(), text_.size());
    text_.copy(out.data(), count);
    text_.erase(0, count);
    return count;
  }

 private:
  void add_row() {
    if (row_ == 0) text_ += "t_us,op,id,bytes,stream\n";
    const std::uint64_t step = row_ / 3;
    std::string row = std::to_string(row_) + ",";
    if (row_ % 3 == 0) {
      const std::uint64_t bytes = 1000 + step % 40 * 100'000;
      row += "a," + std::to_string(step) + "," + std::to_string(bytes) + "," +
             std::to_string(step % 2) + "\n";
    } else if (row_ % 3 == 1) {
      row += "r," + std::to_string(step) + ",,2\n";
    } else {
      if (step < kLive) return void(++row_);
      row += "f," + std::to_string(step - kLive) + ",,\n";
    }
    text_ += row;
    ++row_;
  }

  static constexpr std::uint64_t kLive = 80;
  static constexpr std::size_t kTextBytes = 4096;
  std::uint64_t rows_;
  std::uint64_t row_ = 0;
  std::string text_;
};

std::size_t measure_peak(std::uint64_t rows, const ReplayOptions& options) {
  const std::size_t before = live_bytes;
  peak_bytes = before;
  auto program = std::make_shared<SteadyProgram>(rows);
  auto reader =
      TraceReader::open([program](std::span<char> out) { return program->read(out); }, "steady");
  auto replayer = Replayer::create(options);
  EXPECT_TRUE(reader.is_ok() && replayer.is_ok());
  std::vector<TraceEvent> events(4096);
  for (;;) {
    const Result<std::size_t> count = reader.value()->read(events);
    EXPECT_TRUE(count.is_ok()) << count.status().message();
    if (!count.is_ok() || count.value() == 0) break;
    const Status status = replayer.value()->replay({events.data(), count.value()});
    EXPECT_TRUE(status.is_ok()) << status.message();
    if (!status.is_ok()) break;
  }
  const Result<ReplayResult> result = replayer.value()->finish();
  EXPECT_TRUE(result.is_ok()) << result.status().message();
  EXPECT_EQ(result.value().hazards, 0u);
  return peak_bytes - before;
}

class ReplayMemory : public testing::TestWithParam<std::uint64_t> {};

TEST_P(ReplayMemory, DoesNotGrowWithTheTrace) {
  for (const bool oracle : {false, true}) {
    ReplayOptions options;
    options.oracle = oracle;
    options.gpu_lag_us = GetParam();
    const std::size_t beginning = measure_peak(4'000, options);
    const std::size_t whole = measure_peak(200'000, options);
    EXPECT_LT(whole, beginning + beginning / 20) << (oracle ? "oracle on" : "oracle off");
  }
}

INSTANTIATE_TEST_SUITE_P(GpuLag, ReplayMemory, testing::Values(0, 100));

// The same measure sees memory that does grow.
TEST(ReplayMemoryMeasure, SeesWhatGrows) {
  const std::size_t before = live_bytes;
  peak_bytes = before;
  std::vector<int> grown(250'000);
  EXPECT_GE(peak_bytes - before, grown.size() * sizeof(int));
}

}  // namespace
}  // namespace quarry::tools
