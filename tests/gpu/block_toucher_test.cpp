// SPDX-License-Identifier: Apache-2.0
// The kernels that touch blocks, on the real device: they find every word that is not the block's
// own, and no other.
#include "cuda/block_toucher.hpp"

#include <gtest/gtest.h>

#include "cuda/cuda_driver.hpp"
#include "tests/gpu/gpu_support.hpp"

namespace quarry {
namespace {

class BlockToucherTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = cuda::open_cuda_driver();
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    driver_ = std::move(opened).value();
    auto made = cuda::make_block_toucher(0);
    ASSERT_TRUE(made.is_ok()) << made.status().message();
    toucher_ = std::move(made).value();
    memory_ = driver_->allocate(0, kBytes).value;
    ASSERT_NE(memory_, 0u);
    stream_ = toucher_->create_stream().value;
  }
  void TearDown() override {
    toucher_.reset();
    if (memory_ != 0) {
      EXPECT_EQ(driver_->free(0, memory_), DriverCode::kSuccess);
    }
  }

  cuda::TouchedBlock make_block(Bytes bytes, std::uint64_t number, Bytes offset = 0) const {
    return {memory_ + offset, bytes, number};
  }
  void fill(const cuda::TouchedBlock& block) {
    EXPECT_EQ(toucher_->fill(block, stream_), DriverCode::kSuccess);
  }
  void check(const cuda::TouchedBlock& block) {
    EXPECT_EQ(toucher_->check(block, stream_), DriverCode::kSuccess);
  }
  cuda::WrongWords count() {
    const auto words = toucher_->count_wrong_words();
    EXPECT_EQ(words.code, DriverCode::kSuccess) << describe(words.code);
    return words.value;
  }

  static constexpr Bytes kBytes = 256_MiB;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<cuda::BlockToucher> toucher_;
  Address memory_ = 0;
  StreamRef stream_;
};

TEST_F(BlockToucherTest, FindsEveryWordThatItWrote) {
  std::uint64_t number = 0;
  for (const Bytes bytes : {Bytes{1}, Bytes{4}, Bytes{513}, 2_MiB + 12, kBytes}) {
    fill(make_block(bytes, number));
    check(make_block(bytes, number));
    ++number;
  }
  EXPECT_EQ(count().count, 0u);
}

TEST_F(BlockToucherTest, CountsAllWordsOfAnotherBlockAndNamesTheFirst) {
  fill(make_block(1_MiB, 41));
  check(make_block(1_MiB, 42));
  check(make_block(1_MiB, 43));
  EXPECT_EQ(count().count, 2 * 1_MiB / 4);
  EXPECT_EQ(count().first_number, 42u);
}

TEST_F(BlockToucherTest, SeesWhatAnotherBlockWroteIntoItsMiddle) {
  fill(make_block(kBytes, 0));
  fill(make_block(4, 1, 128_MiB));
  fill(make_block(512, 2, kBytes - 512));
  check(make_block(kBytes, 0));
  EXPECT_EQ(count().count, 1u + 128u);
  EXPECT_EQ(count().first_number, 0u);
}

TEST_F(BlockToucherTest, OrdersStreams) {
  const StreamRef other = toucher_->create_stream().value;
  for (std::uint64_t number = 0; number < 200; ++number) {
    fill(make_block(64_MiB, number));
    EXPECT_EQ(toucher_->order(stream_, other), DriverCode::kSuccess);
    EXPECT_EQ(toucher_->check(make_block(64_MiB, number), other), DriverCode::kSuccess);
    EXPECT_EQ(toucher_->order(other, stream_), DriverCode::kSuccess);
  }
  EXPECT_EQ(toucher_->synchronize(other), DriverCode::kSuccess);
  EXPECT_EQ(count().count, 0u);
}

}  // namespace
}  // namespace quarry
