// SPDX-License-Identifier: Apache-2.0
#include "core/pointer_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

namespace quarry {
namespace {

TEST(PointerMapTest, AnUnknownAddressIsNoBlockOfNoDevice) {
  const PointerMap map;
  EXPECT_EQ(map.find(0x7f0000000000).block, nullptr);
  EXPECT_EQ(map.find(0).block, nullptr);
}

TEST(PointerMapTest, ABlockIsFoundWithItsDeviceUntilItIsRemoved) {
  PointerMap map;
  Block block;
  map.insert(0x200, 3, block);
  EXPECT_EQ(map.find(0x200).block, &block);
  EXPECT_EQ(map.find(0x200).device, 3);
  EXPECT_EQ(map.find(0x400).block, nullptr);
  map.remove(0x200);
  EXPECT_EQ(map.find(0x200).block, nullptr);
  EXPECT_EQ(map.find(0x200).block, nullptr);
  map.insert(0x200, 1, block);
  EXPECT_EQ(map.find(0x200).device, 1);
}

TEST(PointerMapTest, AnInteriorAddressIsNotFound) {
  PointerMap map;
  Block block;
  map.insert(0x10000, 0, block);
  EXPECT_EQ(map.find(0x10001).block, nullptr);
  EXPECT_EQ(map.find(0x10100).block, nullptr);
}

TEST(PointerMapDeathTest, WrongInsertsAndRemovesEndTheProcess) {
  PointerMap map;
  Block block;
  map.insert(0x200, 0, block);
  EXPECT_DEATH(map.insert(0x200, 0, block), "invariant does not hold");
  map.insert(0x400, 0, block);
  map.remove(0x400);
  EXPECT_DEATH(map.remove(0x400), "invariant does not hold");
}

// Few keys keep the tables small and full, so that blocks are displaced across their ends again
// and again; many make them grow.
TEST(PointerMapTest, RandomOperationsEqualAHashMapWhateverTheRuns) {
  for (const Address keys : {Address{300}, Address{2000}, Address{50000}}) {
    std::mt19937_64 random(keys);
    PointerMap map;
    std::vector<Block> blocks(keys);
    std::unordered_map<Address, Block*> model;
    for (int step = 0; step < 60000; ++step) {
      const Address key = random() % keys;
      const Address address = (key + 1) * 512;
      if (model.count(address) == 0) {
        map.insert(address, static_cast<DeviceId>(key % 8), blocks[key]);
        model[address] = &blocks[key];
      } else {
        map.remove(address);
        model.erase(address);
      }
      const Address probe = (random() % keys + 1) * 512;
      const auto expected = model.find(probe);
      ASSERT_EQ(map.find(probe).block, expected == model.end() ? nullptr : expected->second);
    }
    for (Address key = 0; key < keys; ++key) {
      const Address address = (key + 1) * 512;
      const bool is_in = model.count(address) > 0;
      ASSERT_EQ(map.find(address).block, is_in ? &blocks[key] : nullptr);
      ASSERT_EQ(map.find(address).device, is_in ? static_cast<DeviceId>(key % 8) : 0);
    }
  }
}

// Blocks of 512 bytes only: the table grows until each has a place of its own.
TEST(PointerMapTest, ARegionHasRoomForAsManyBlocksAsFitIntoIt) {
  for (const auto use : {PointerMap::RegionUse::kAlone, PointerMap::RegionUse::kShared}) {
    PointerMap map;
    std::vector<Block> blocks(PointerMap::kRegion / 512);
    const auto get_address = [](std::size_t i) { return 7 * PointerMap::kRegion + i * 512; };
    std::vector<std::size_t> order(blocks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937(3));
    for (const std::size_t i : order)
      map.insert(get_address(i), PointerMap::kDeviceMax, blocks[i], use);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_EQ(map.find(get_address(i)).block, &blocks[i]);
      ASSERT_EQ(map.find(get_address(i)).device, PointerMap::kDeviceMax);
    }
    std::shuffle(order.begin(), order.end(), std::mt19937(4));
    for (const std::size_t i : order) {
      map.remove(get_address(i), use);
      ASSERT_EQ(map.find(get_address(i)).block, nullptr);
    }
  }
}

// Addresses that differ only in bits far up share a root, and places in their tables.
TEST(PointerMapTest, RegionsFarApartAreDifferent) {
  PointerMap map;
  std::vector<Block> blocks(40);
  for (std::size_t i = 0; i < blocks.size(); ++i)
    map.insert((Address{1} << 24) + (Address{i} << 41), 0, blocks[i]);
  for (std::size_t i = 0; i < blocks.size(); ++i)
    EXPECT_EQ(map.find((Address{1} << 24) + (Address{i} << 41)).block, &blocks[i]);
  EXPECT_EQ(map.find((Address{1} << 24) + (Address{40} << 41)).block, nullptr);
}

TEST(PointerMapTest, OnlyASegmentOfWholeRegionsHasThemAlone) {
  using Use = PointerMap::RegionUse;
  EXPECT_EQ(PointerMap::get_region_use(6_MiB, 2_MiB), Use::kAlone);
  EXPECT_EQ(PointerMap::get_region_use(6_MiB, 20_MiB), Use::kAlone);
  EXPECT_EQ(PointerMap::get_region_use(6_MiB, 21_MiB), Use::kShared);
  EXPECT_EQ(PointerMap::get_region_use(7_MiB, 2_MiB), Use::kShared);
  EXPECT_EQ(PointerMap::get_region_use(6_MiB + 512, 2_MiB), Use::kShared);
}

// In each region one.
TEST(PointerMapTest, RemovalInAnyOrderLosesNoOther) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    PointerMap map;
    std::vector<Block> blocks(500);
    std::vector<std::size_t> order(blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      order[i] = i;
      map.insert((i + 1) * 2_MiB, 0, blocks[i]);
    }
    std::shuffle(order.begin(), order.end(), random);
    for (std::size_t removed = 0; removed < order.size(); ++removed) {
      map.remove((order[removed] + 1) * 2_MiB);
      if (removed % 97 != 0) continue;
      for (std::size_t i = 0; i < order.size(); ++i) {
        ASSERT_EQ(map.find((order[i] + 1) * 2_MiB).block,
                  i > removed ? &blocks[order[i]] : nullptr);
      }
    }
  }
}

TEST(PointerMapTest, ThreadsOnDifferentBlocksDoNotDisturbEachOther) {
  PointerMap map;
  const auto work = [&map](Address first) {
    std::vector<Block> blocks(200);
    for (int round = 0; round < 50; ++round) {
      for (Address i = 0; i < blocks.size(); ++i)
        map.insert(first + i * 512, 0, blocks[i]);
      for (Address i = 0; i < blocks.size(); ++i) {
        ASSERT_EQ(map.find(first + i * 512).block, &blocks[i]);
        map.remove(first + i * 512);
      }
    }
  };
  std::vector<std::thread> threads;
  for (Address i = 1; i <= 4; ++i)
    threads.emplace_back(work, i * 1_GiB);
  for (std::thread& thread : threads)
    thread.join();
}

// A block that nobody removes is found at every moment, whatever moves around it.
TEST(PointerMapTest, ALookupNeverMissesWhileOthersInsertAndRemoveAroundIt) {
  PointerMap map;
  std::vector<Block> blocks(3000);
  for (Address i = 0; i < blocks.size(); i += 3)
    map.insert((i + 1) * 512, 0, blocks[i]);
  std::atomic<bool> is_done{false};
  std::thread writer([&] {
    for (int round = 0; round < 100; ++round) {
      for (Address i = 1; i < blocks.size(); i += 3)
        map.insert((i + 1) * 512, 0, blocks[i]);
      for (Address i = 1; i < blocks.size(); i += 3)
        map.remove((i + 1) * 512);
    }
    is_done = true;
  });
  std::size_t wrong = 0;
  do {
    for (Address i = 0; i < blocks.size(); ++i) {
      const Block* const found = map.find((i + 1) * 512).block;
      if (i % 3 == 0 && found != &blocks[i]) ++wrong;
      if (i % 3 == 1 && found != nullptr && found != &blocks[i]) ++wrong;
      if (i % 3 == 2 && found != nullptr) ++wrong;
    }
  } while (!is_done);
  writer.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace quarry
