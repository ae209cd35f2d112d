// SPDX-License-Identifier: Apache-2.0
// The routing word: one load that tells a call whether anything out of the ordinary holds. Each
// reason not to take the short way through the thread's magazines, or the way through the stream's
// lane, is a bit. Changes under the device's mutex only (but for kForked).
#pragma once

#include <atomic>
#include <cstdint>

namespace quarry {

enum class RoutingReason : std::uint32_t {
  kForked = 1u << 0,      // the child of a fork: no call may reach the driver or wait for a lock
  kNoCache = 1u << 1,     // thread_cache:False
  kRoundup = 1u << 2,     // sizes are not simply rounded to 512
  kLastRung = 1u << 3,    // memory is short: every free must be seen
  kValidating = 1u << 4,  // somebody walks over all blocks
  // Requests alone are concerned by these; blocks may be freed the short way.
  kPools = 1u << 7,  // a request may belong to a private pool: its route is looked for first
  // These two concern requests in lanes only.
  kUnsettled = 1u << 5,  // frees wait for fences, or for a thread that may call the driver
  kAges = 1u << 6,       // garbage is collected by age: every search of a pool is counted
};

class RoutingWord {
 public:
  // Both acquire, as `clear` releases: who finds a way open again writes only after what was read
  // while it was shut.
  bool is_clear() const noexcept { return bits_.load(std::memory_order_acquire) == 0; }
  // Blocks may park and be taken from magazines, and be freed in lanes.
  bool allows_parking() const noexcept {
    constexpr auto kLanesOnly = static_cast<std::uint32_t>(RoutingReason::kUnsettled) |
                                static_cast<std::uint32_t>(RoutingReason::kAges);
    return (bits_.load(std::memory_order_acquire) & ~kLanesOnly) == 0;
  }
  bool has(RoutingReason reason) const noexcept {
    return (bits_.load(std::memory_order_relaxed) & static_cast<std::uint32_t>(reason)) != 0;
  }
  // Async-signal-safe.
  void set(RoutingReason reason) noexcept {
    bits_.fetch_or(static_cast<std::uint32_t>(reason), std::memory_order_relaxed);
  }
  void clear(RoutingReason reason) noexcept {
    bits_.fetch_and(~static_cast<std::uint32_t>(reason), std::memory_order_release);
  }
  void set_to(RoutingReason reason, bool is_set) noexcept { is_set ? set(reason) : clear(reason); }

 private:
  std::atomic<std::uint32_t> bits_{0};
};

}  // namespace quarry
