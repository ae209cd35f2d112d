// SPDX-License-Identifier: Apache-2.0
// The size policy against its rules written down a second time, in another way, for every
// combination of option values and for sizes on both sides of every boundary.
#include "core/size_policy.hpp"

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <vector>

namespace quarry {
namespace {

RoundupDivisions all_of(std::uint32_t divisions) {
  RoundupDivisions all;
  all.fill(divisions);
  return all;
}

// Rising intervals with different values, as `[1:1,2:2,4:4,...]` would give.
RoundupDivisions mixed() {
  RoundupDivisions divisions{};
  for (std::size_t i = 0; i < divisions.size(); ++i)
    divisions[i] = 1u << (i % 7);
  return divisions;
}

std::vector<Config> make_configs() {
  std::vector<Config> configs;
  for (const Bytes large_segment : {12_MiB, 20_MiB, 64_MiB}) {
    for (const Bytes max_split : {20_MiB, 64_MiB, 1_GiB, kUnlimited}) {
      for (const Bytes slack : {20_MiB, 256_MiB}) {
        for (const RoundupDivisions& divisions :
             {all_of(0), all_of(1), all_of(2), all_of(4), all_of(64), mixed()}) {
          for (const bool upstream_quirks : {true, false}) {
            Config config;
            config.large_segment_bytes = large_segment;
            config.max_split_bytes = max_split;
            config.max_non_split_rounding_bytes = slack;
            config.roundup_power2_divisions = divisions;
            config.upstream_quirks = upstream_quirks;
            configs.push_back(config);
          }
        }
      }
    }
  }
  return configs;
}

std::vector<Bytes> make_sizes() {
  std::set<Bytes> sizes;
  const auto add_around = [&sizes](Bytes n) {
    for (const Bytes distance : {0, 1, 2, 511, 512, 513}) {
      if (n > distance) sizes.insert(n - distance);
      if (n + distance < kRequestMax) sizes.insert(n + distance);
    }
  };
  for (int log = 0; log < 60; ++log) {
    for (const int quarters : {4, 5, 6, 7})
      add_around((Bytes{1} << log) / 4 * static_cast<Bytes>(quarters));
  }
  for (const Bytes n : {10_MiB, 11_MiB, 12_MiB, 20_MiB, 32_KiB, 64_MiB, 256_MiB, kRequestMax - 1})
    add_around(n);
  sizes.erase(0);
  return {sizes.begin(), sizes.end()};
}

std::string describe_case(const Config& config, Bytes size) {
  std::ostringstream text;
  text << "size " << size << " large_segment " << config.large_segment_bytes << " max_split "
       << config.max_split_bytes << " divisions " << config.roundup_power2_divisions[0] << ","
       << config.roundup_power2_divisions[1] << " quirks " << config.upstream_quirks;
  return text.str();
}

Bytes ceil_to(Bytes n, Bytes step) {
  return (n + step - 1) / step * step;
}

// The rounding rule in words: below 512 is 512; a size that is large beside its divisions goes to
// the next of `divisions` steps above the power of two below it; all others to 512 bytes.
Bytes round_by_the_rule(Bytes size, const Config& config) {
  if (size < 512) return 512;
  Bytes power = 1;
  std::size_t log = 0;
  while (power <= size / 2) {
    power *= 2;
    ++log;
  }
  const std::size_t interval = log < 20 ? 0 : std::min<std::size_t>(log - 20, 15);
  const Bytes divisions = config.roundup_power2_divisions[interval];
  const bool rounds = divisions > (config.upstream_quirks ? 1 : 0);
  if (!rounds || size <= 512 * divisions) return ceil_to(size, 512);
  return power + ceil_to(size - power, power / divisions);
}

TEST(SizePolicyTest, BlockSizesFollowTheRuleForEveryPairOfOptions) {
  const std::vector<Bytes> sizes = make_sizes();
  for (const Config& config : make_configs()) {
    for (const Bytes size : sizes) {
      ASSERT_EQ(calculate_block_size(size, config), round_by_the_rule(size, config))
          << describe_case(config, size);
    }
  }
}

TEST(SizePolicyTest, BlockSizesAreMultiplesNeverSmallerMonotoneAndStable) {
  const std::vector<Bytes> sizes = make_sizes();
  for (const Config& config : make_configs()) {
    Bytes before = 0;
    for (const Bytes size : sizes) {
      const Bytes block = calculate_block_size(size, config);
      ASSERT_TRUE(block >= size && block % 512 == 0) << describe_case(config, size);
      ASSERT_GE(block, before) << describe_case(config, size);
      if (block < kRequestMax) {
        ASSERT_EQ(calculate_block_size(block, config), block) << describe_case(config, size);
      }
      before = block;
    }
  }
}

TEST(SizePolicyTest, SegmentSizesFollowTheTableForEveryPairOfOptions) {
  const std::vector<Bytes> sizes = make_sizes();
  for (const Config& config : make_configs()) {
    for (const Bytes size : sizes) {
      const Bytes block = calculate_block_size(size, config);
      const Bytes expected = block <= 1_MiB   ? 2_MiB
                             : block < 10_MiB ? config.large_segment_bytes
                                              : ceil_to(block, 2_MiB);
      ASSERT_EQ(calculate_segment_size(block, config), expected) << describe_case(config, size);
      ASSERT_GE(expected, block) << describe_case(config, size);
      ASSERT_EQ(get_family(block), block > 1_MiB ? StatFamily::kLarge : StatFamily::kSmall);
    }
  }
}

TEST(SizePolicyTest, SplitsFollowTheRuleForEveryPairOfOptions) {
  const std::vector<Bytes> sizes = make_sizes();
  const Bytes rests[] = {0,           512,   1024,         1_MiB - 512, 1_MiB,
                         1_MiB + 512, 2_MiB, 20_MiB - 512, 20_MiB,      1_GiB};
  for (const Config& config : make_configs()) {
    for (const Bytes size : sizes) {
      const Bytes need = calculate_block_size(size, config);
      for (const Bytes rest : rests) {
        ASSERT_EQ(should_split(need + rest, need, StatFamily::kSmall, config), rest > 0);
        ASSERT_EQ(should_split(need + rest, need, StatFamily::kLarge, config),
                  need < config.max_split_bytes && rest > 1_MiB)
            << describe_case(config, size) << " rest " << rest;
      }
    }
  }
}

TEST(SizePolicyTest, WhoMayServeFollowsTheOversizeRulesForEveryPairOfOptions) {
  const std::vector<Bytes> sizes = make_sizes();
  for (const Config& config : make_configs()) {
    for (const Bytes size : sizes) {
      const Bytes need = calculate_block_size(size, config);
      for (const Bytes rest :
           {Bytes{0}, Bytes{512}, 20_MiB - 512, 20_MiB, 256_MiB - 512, 256_MiB, 2_GiB}) {
        const Bytes have = need + rest;
        const bool is_oversize_need = need >= config.max_split_bytes;
        const bool is_oversize_have = have >= config.max_split_bytes;
        const bool expected = is_oversize_need ? have < need + config.max_non_split_rounding_bytes
                                               : !is_oversize_have;
        ASSERT_EQ(may_serve(have, need, config), expected)
            << describe_case(config, size) << " have " << have;
        ASSERT_EQ(is_oversize(have, config), is_oversize_have);
      }
    }
  }
}

// Without a split limit there is no oversize, and every block may serve what it can hold.
TEST(SizePolicyTest, WithoutASplitLimitEveryBlockMayServe) {
  const Config config;
  for (const Bytes size : make_sizes()) {
    const Bytes need = calculate_block_size(size, config);
    EXPECT_TRUE(may_serve(need, need, config));
    EXPECT_TRUE(may_serve(kRequestMax, need, config));
    EXPECT_FALSE(is_oversize(need, config));
  }
}

// What rounding to n divisions may waste: less than one step, that is 1/n of the power below.
TEST(SizePolicyTest, TheWasteOfDivisionsIsLessThanOneStep) {
  for (const std::uint32_t divisions : {2u, 4u, 8u, 64u}) {
    Config config;
    config.roundup_power2_divisions = all_of(divisions);
    for (const Bytes size : make_sizes()) {
      if (size <= 512 * divisions) continue;
      const Bytes waste = calculate_block_size(size, config) - size;
      ASSERT_LT(waste, std::max<Bytes>(size / divisions, 1)) << size << " / " << divisions;
    }
  }
}

// The two ways to read a division of 1: PyTorch ignores it, we round to the next power of two.
TEST(SizePolicyTest, ADivisionOfOneIsNothingUpstreamAndAPowerOfTwoHere) {
  Config config;
  config.roundup_power2_divisions = all_of(1);
  EXPECT_EQ(calculate_block_size(150_MiB, config), 150_MiB);
  config.upstream_quirks = false;
  EXPECT_EQ(calculate_block_size(150_MiB, config), 256_MiB);
  EXPECT_EQ(calculate_block_size(128_MiB, config), 128_MiB);
  EXPECT_EQ(calculate_block_size(512, config), 512u);
  EXPECT_EQ(calculate_block_size(513, config), 1024u);
}

}  // namespace
}  // namespace quarry
