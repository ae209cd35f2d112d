// SPDX-License-Identifier: Apache-2.0
#include "tests/model/ledger.hpp"

#include <algorithm>

namespace quarry::model {
namespace {

std::string describe(const char* figure, std::int64_t is, std::int64_t should_be) {
  return std::string(figure) + " is " + std::to_string(is) + ", should be " +
         std::to_string(should_be);
}

}  // namespace

void DeviceLedger::add(Bytes block_bytes, Bytes requested) {
  ++count;
  bytes += static_cast<std::int64_t>(block_bytes);
  risen_bytes += static_cast<std::int64_t>(block_bytes);
  requested_bytes += static_cast<std::int64_t>(requested);
  peak_bytes = std::max(peak_bytes, bytes);
}

void DeviceLedger::remove(Bytes block_bytes, Bytes requested) {
  --count;
  bytes -= static_cast<std::int64_t>(block_bytes);
  fallen_bytes += static_cast<std::int64_t>(block_bytes);
  requested_bytes -= static_cast<std::int64_t>(requested);
}

std::string Ledger::compare(DeviceId device, const DeviceStats& stats,
                            const IsRunning& is_running) {
  DeviceLedger& own = devices[static_cast<std::size_t>(device)];
  const struct {
    const char* name;
    std::int64_t is;
    std::int64_t should_be;
  } exact[] = {
      {"allocation.current", stats.allocation.all.current, own.count},
      {"allocated_bytes.current", stats.allocated_bytes.all.current, own.bytes},
      {"allocated_bytes.peak", is_peak_exact ? stats.allocated_bytes.all.peak : own.peak_bytes,
       own.peak_bytes},
      {"allocated_bytes.allocated", stats.allocated_bytes.all.allocated, own.risen_bytes},
      {"allocated_bytes.freed", stats.allocated_bytes.all.freed, own.fallen_bytes},
      {"allocator_slack", stats.allocator_slack, own.bytes - own.requested_bytes},
      {"num_ooms", stats.num_ooms, own.ooms},
      {"size_mismatches", stats.size_mismatches, own.size_mismatches},
      {"cached_bytes + parked_bytes + active_bytes",
       stats.cached_bytes + stats.parked_bytes + stats.active_bytes.all.current,
       stats.reserved_bytes.all.current},
  };
  for (const auto& figure : exact) {
    if (figure.is != figure.should_be) return describe(figure.name, figure.is, figure.should_be);
  }
  std::int64_t most = 0;
  std::int64_t least = 0;
  for (const PendingBlock& block : own.pending) {
    most += static_cast<std::int64_t>(block.bytes);
    // It may have been reused already by a stream that was made to wait for those uses.
    if (!may_wait_on_device && std::any_of(block.uses.begin(), block.uses.end(), is_running)) {
      least += static_cast<std::int64_t>(block.bytes);
    }
  }
  if (stats.pending_bytes < least || stats.pending_bytes > most) {
    return describe("pending_bytes", stats.pending_bytes, least) + " to " + std::to_string(most);
  }
  if (stats.pending_bytes == 0) own.pending.clear();
  return {};
}

}  // namespace quarry::model
