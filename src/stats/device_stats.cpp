// SPDX-License-Identifier: Apache-2.0
#include "stats/device_stats.hpp"

#include <algorithm>
#include <utility>

namespace quarry {
namespace {

using FamilyStatMember = std::pair<std::string_view, FamilyStat DeviceStats::*>;
using StatMember = std::pair<std::string_view, Stat DeviceStats::*>;
using ScalarMember = std::pair<std::string_view, std::int64_t DeviceStats::*>;

constexpr FamilyStatMember kFamilyStats[] = {
    {"allocation", &DeviceStats::allocation},
    {"segment", &DeviceStats::segment},
    {"active", &DeviceStats::active},
    {"inactive_split", &DeviceStats::inactive_split},
    {"allocated_bytes", &DeviceStats::allocated_bytes},
    {"reserved_bytes", &DeviceStats::reserved_bytes},
    {"active_bytes", &DeviceStats::active_bytes},
    {"inactive_split_bytes", &DeviceStats::inactive_split_bytes},
    {"requested_bytes", &DeviceStats::requested_bytes},
};
constexpr StatMember kStats[] = {
    {"oversize_allocations", &DeviceStats::oversize_allocations},
    {"oversize_segments", &DeviceStats::oversize_segments},
};
// Counters of events, which a reset of the accumulated figures sets to zero ...
constexpr ScalarMember kCounters[] = {
    {"num_alloc_retries", &DeviceStats::num_alloc_retries},
    {"num_ooms", &DeviceStats::num_ooms},
    {"num_oom_rejections", &DeviceStats::num_oom_rejections},
    {"num_sync_all_streams", &DeviceStats::num_sync_all_streams},
    {"num_device_alloc", &DeviceStats::num_device_alloc},
    {"num_device_free", &DeviceStats::num_device_free},
    {"fences_failed", &DeviceStats::fences_failed},
    {"invalid_frees", &DeviceStats::invalid_frees},
    {"size_mismatches", &DeviceStats::size_mismatches},
    {"driver_free_failures", &DeviceStats::driver_free_failures},
    {"extents_created", &DeviceStats::extents_created},
    {"extents_released", &DeviceStats::extents_released},
    {"extents_moved", &DeviceStats::extents_moved},
    {"stream_waits", &DeviceStats::stream_waits},
};
// ... and states, which it leaves.
constexpr ScalarMember kGauges[] = {
    {"max_split_size", &DeviceStats::max_split_size},
    {"allocator_slack", &DeviceStats::allocator_slack},
    {"external_bytes", &DeviceStats::external_bytes},
    {"largest_free_block", &DeviceStats::largest_free_block},
    {"pending_bytes", &DeviceStats::pending_bytes},
    {"cached_bytes", &DeviceStats::cached_bytes},
    {"parked_bytes", &DeviceStats::parked_bytes},
    {"idle_bytes", &DeviceStats::idle_bytes},
    {"pinned_bytes", &DeviceStats::pinned_bytes},
    {"fences_outstanding", &DeviceStats::fences_outstanding},
};

void append(std::vector<NamedValue>& out, const std::string& prefix, const Stat& stat) {
  out.push_back({prefix + ".current", stat.current});
  out.push_back({prefix + ".peak", stat.peak});
  out.push_back({prefix + ".allocated", stat.allocated});
  out.push_back({prefix + ".freed", stat.freed});
}

}  // namespace

void Stat::add_many(std::int64_t rises, std::int64_t falls, std::int64_t high) noexcept {
  peak = std::max(peak, current + high);
  current += rises - falls;
  allocated += rises;
  freed += falls;
}

void DeviceStats::reset_peak() noexcept {
  for (const auto& [name, member] : kFamilyStats) {
    (this->*member).all.reset_peak();
    for (Stat& stat : (this->*member).family)
      stat.reset_peak();
  }
  for (const auto& [name, member] : kStats)
    (this->*member).reset_peak();
}

void DeviceStats::reset_accumulated() noexcept {
  for (const auto& [name, member] : kFamilyStats) {
    (this->*member).all.reset_accumulated();
    for (Stat& stat : (this->*member).family)
      stat.reset_accumulated();
  }
  for (const auto& [name, member] : kStats)
    (this->*member).reset_accumulated();
  for (const auto& [name, member] : kCounters)
    this->*member = 0;
}

std::vector<NamedValue> flatten(const DeviceStats& stats) {
  std::vector<NamedValue> out;
  for (const auto& [name, member] : kFamilyStats) {
    const FamilyStat& stat = stats.*member;
    append(out, std::string(name) + ".all", stat.all);
    append(out, std::string(name) + ".small_pool", stat.family[0]);
    append(out, std::string(name) + ".large_pool", stat.family[1]);
  }
  for (const auto& [name, member] : kStats)
    append(out, std::string(name), stats.*member);
  for (const auto& [name, member] : kCounters)
    out.push_back({std::string(name), stats.*member});
  for (const auto& [name, member] : kGauges)
    out.push_back({std::string(name), stats.*member});
  std::sort(out.begin(), out.end(),
            [](const NamedValue& a, const NamedValue& b) { return a.name < b.name; });
  return out;
}

}  // namespace quarry
