// SPDX-License-Identifier: Apache-2.0
// PyTorch's tests of settings, errors and observers, under their names; the texts of options are
// parsed as a user writes them.
#include <gtest/gtest.h>

#include <random>

#include "api/config_parser.hpp"
#include "api/pass_through.hpp"
#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

// As torch._C._accelerator_setAllocatorSettings.
StatusCode set_settings(Scenario& s, std::string_view text) {
  auto parsed = parse_config(text, make_config(), ParseMode::kStrict);
  if (parsed.is_ok()) s.allocator().configure(parsed.value().config);
  return parsed.code();
}

std::int64_t measure(Scenario& s, Bytes bytes) {
  const auto before = static_cast<std::int64_t>(s.allocated());
  const Address p = s.malloc(bytes);
  const auto after = static_cast<std::int64_t>(s.allocated());
  s.free(p);
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  return after - before;
}

TEST(TestCudaMallocAsync, test_allocator_settings) {
  Scenario s;
  const Bytes request = 21 * 1024 * 1024 * sizeof(float);  // 84 MiB
  EXPECT_EQ(measure(s, request), 88'080'384);
  EXPECT_EQ(set_settings(s, "roundup_power2_divisions:4"), StatusCode::kOk);
  EXPECT_EQ(measure(s, request), 100'663'296);
  EXPECT_EQ(set_settings(s, "roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:2]"),
            StatusCode::kOk);
  EXPECT_EQ(measure(s, request), 92'274'688);
  EXPECT_EQ(set_settings(s, "roundup_power2_divisions:[64:2,128:2,256:2]"), StatusCode::kOk);
  EXPECT_EQ(measure(s, 400_MiB), 536'870'912);

  for (const std::string_view wrong :
       {"foo:1,bar:2", "garbage_collection_threshold:1.2", "max_split_size_mb:2",
        "release_lock_on_cudamalloc:none", "pinned_num_register_threads:1024"}) {
    EXPECT_EQ(set_settings(s, wrong), StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(TestCuda, test_raises_oom) {
  for (const std::string_view settings : {"", "max_split_size_mb:1024"}) {
    Scenario s;
    EXPECT_EQ(set_settings(s, settings), StatusCode::kOk);
    for (int attempt = 1; attempt <= 3; ++attempt) {
      EXPECT_EQ(s.malloc(1024_GiB * 1024), 0u);
      EXPECT_EQ(s.last_code(), StatusCode::kOutOfMemory);
      EXPECT_EQ(s.stats().num_ooms, attempt);
    }
  }
}

TEST(TestCachingHostAndDevice, test_cachingAllocator_raw_alloc) {
  Scenario s;
  const Address p = s.malloc(1_MiB);
  EXPECT_EQ(s.allocated(), 1_MiB);
  s.free(p);
  EXPECT_EQ(s.reserved(), 2_MiB) << "cached";
  EXPECT_EQ(s.allocated(), 0u);

  // Caching off: straight to the driver and back. (PyTorch counts nothing then; we do.)
  SimDriver sim;
  auto uncached = PassThrough::create(sim, Config{}).value();
  const Address q = uncached->allocate({0, kS0}, 1_MiB).value();
  EXPECT_EQ(sim.get_holdings(0).plain_allocations, 1u);
  EXPECT_TRUE(uncached->free(q).is_ok());
  EXPECT_EQ(sim.get_holdings(0).physical_bytes, 0u);
  EXPECT_EQ(sim.call_count(DriverEntry::kFree), 1u);
}

TEST(TestCuda, test_notifies_oom) {
  Scenario s;
  int notified = 0;
  s.allocator().callbacks().add_oom_observer([&](const OomReport& report) {
    ++notified;
    EXPECT_EQ(report.device, 0);
    EXPECT_EQ(report.requested_bytes, 1024_GiB * 1024);
    EXPECT_EQ(report.segment_bytes, 1024_GiB * 1024);
    EXPECT_EQ(report.device_total_bytes, 150'109'880'320u);
    EXPECT_NE(s.allocator().allocate({0, kS0}, 4096).value(), 0u) << "no lock is held";
  });
  EXPECT_EQ(s.malloc(1024_GiB * 1024), 0u);
  EXPECT_EQ(notified, 1);
  EXPECT_EQ(s.last_code(), StatusCode::kOutOfMemory);
}

TEST(TestCuda, test_allocator_fuzz) {
  for (const bool with_side_stream : {false, true}) {
    Scenario s;
    const StreamHandle side = s.make_stream();
    std::mt19937 random(123);
    std::vector<std::pair<Address, Bytes>> live;
    Bytes live_bytes = 0;
    for (int op = 0; op < 10'000; ++op) {
      const bool is_full = live_bytes > 100_MiB;
      if (live.empty() || (!is_full && random() % 2 == 0)) {
        const Bytes bytes = 2_MiB + random() % (18_MiB + 1);
        const Address p = s.malloc(bytes);
        ASSERT_NE(p, 0u);
        live.emplace_back(p, bytes);
        live_bytes += bytes;
      } else {
        std::swap(live[random() % live.size()], live.back());
        if (with_side_stream && random() % 3 == 0) {
          s.record(live.back().first, side);
          static_cast<void>(s.sim().submit_work({0, side}, sim::WorkTime::lasting_us(20)));
        }
        s.free(live.back().first);
        live_bytes -= live.back().second;
        live.pop_back();
      }
      s.sim().advance_by_us(5);
      if (op % 1000 == 0) s.allocator().validate();
      ASSERT_EQ(s.sim().hazard_count(), 0u) << "op " << op;
    }
    EXPECT_EQ(s.stats().allocation.all.current, static_cast<std::int64_t>(live.size()));
    EXPECT_LE(s.reserved(), 500_MiB);
  }
}

}  // namespace
}  // namespace quarry::test
