// SPDX-License-Identifier: Apache-2.0
// The sentence of an out-of-memory error: PyTorch's, part by part, so that log scanners match.
// Ours says Quarry where theirs says PyTorch, and gives advice that fits the case.
#include <gtest/gtest.h>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

std::string get_sentence(const std::string& message) {
  return message.substr(0, message.find('\n'));
}

TEST(UpstreamOomText, EveryFigureStandsInItsPlace) {
  ScenarioOptions options = ScenarioOptions::with_cap(8_GiB);
  options.sim.external_bytes = 512_MiB;
  Scenario s(options);
  s.malloc(5_GiB);
  s.malloc(1_MiB + 512);  // reserves 20 MiB
  EXPECT_EQ(s.malloc(3_GiB), 0u);
  EXPECT_EQ(get_sentence(s.last_message()),
            "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 8.00 "
            "GiB of which 2.48 GiB is free. Of the allocated memory 5.00 GiB is allocated by "
            "Quarry, and 19.00 MiB is reserved by Quarry but unallocated. Live blocks fill the "
            "device: free some, or make requests smaller.");
}

TEST(UpstreamOomText, WhatWasTriedIsTheSegmentAndNotTheRequest) {
  Scenario s(20_MiB);
  s.malloc(15_MiB);
  EXPECT_EQ(s.malloc(3_MiB), 0u);
  EXPECT_EQ(s.last_message().find("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has"),
            0u);
  EXPECT_NE(s.last_message().find("requested=3145728"), std::string::npos)
      << "the request itself stands below";
}

TEST(UpstreamOomText, WhatIsAllowedIsSaidOnlyUnderAFraction) {
  Scenario s(8_GiB);
  EXPECT_TRUE(s.allocator().set_memory_fraction(0, 0.25).is_ok());
  s.malloc(1_GiB + 2_MiB);
  EXPECT_EQ(s.malloc(1_GiB), 0u);
  EXPECT_EQ(get_sentence(s.last_message()),
            "CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of "
            "8.00 GiB of which 7.00 GiB is free. 2.00 GiB allowed; Of the allocated memory 1.00 "
            "GiB is allocated by Quarry, and 0 bytes is reserved by Quarry but unallocated. The "
            "limit of this process refused it: raise it above 2.00 GiB, or free memory.");
}

TEST(UpstreamOomText, ObserversGetTheFiguresOfTheText) {
  Scenario s(1_GiB);
  std::string told;
  s.allocator().callbacks().add_oom_observer([&](const OomReport& r) { told = format(r); });
  s.malloc(600_MiB);
  EXPECT_EQ(s.malloc(500_MiB), 0u);
  EXPECT_EQ(told, s.last_message());
}

}  // namespace
}  // namespace quarry::test
