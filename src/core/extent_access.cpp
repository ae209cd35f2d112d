// SPDX-License-Identifier: Apache-2.0
// Which devices may use the memory of expandable segments. The driver's peer access does not cover
// mapped memory: each mapping says who may use it.
#include <algorithm>

#include "core/expandable_memory.hpp"

namespace quarry {
namespace {

// On all of them, or on none; what cannot be taken back again stays accessible, and is of no harm.
DriverCode open_to(Driver& driver, DeviceId peer, const std::vector<MappedRun>& runs) {
  const DeviceId devices[] = {peer};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const DriverCode code = driver.set_access(runs[i].address, runs[i].size, devices);
    if (code == DriverCode::kSuccess) continue;
    for (std::size_t done = 0; done < i; ++done)
      static_cast<void>(driver.revoke_access(runs[done].address, runs[done].size, peer));
    return code;
  }
  return DriverCode::kSuccess;
}

void close_to(Driver& driver, DeviceId peer, const std::vector<MappedRun>& runs) {
  for (const MappedRun& run : runs)
    static_cast<void>(driver.revoke_access(run.address, run.size, peer));
}

}  // namespace

// Where extents lie side by side, one run. Without addresses that extents have left: what was
// there is free.
std::vector<MappedRun> ExpandableMemory::list_mapped() const {
  std::vector<MappedRun> runs;
  for (const auto& [segment, range] : ranges_) {
    Address end = 0;
    for (const auto& [address, extent] : range->extents) {
      if (address == end) {
        runs.back().size += extent.size;
      } else {
        runs.push_back({address, extent.size});
      }
      end = address + extent.size;
    }
  }
  return runs;
}

// Nobody grows or moves meanwhile: whoever does later finds the peer among those that have access.
DriverCode ExpandableMemory::let_in(DeviceId peer) {
  assume_locked();
  wait_until_nobody_moves();
  const bool is_in = std::ranges::find(access_, peer) != access_.end();
  const std::vector<MappedRun> runs = is_in ? std::vector<MappedRun>{} : list_mapped();
  is_moving_ = true;
  const DriverCode code = device_.run_unlocked([&] {
    Driver& driver = device_.driver_;
    CaptureModeBracket bracket(driver);
    const DriverCode opened = open_to(driver, peer, runs);
    if (opened != DriverCode::kSuccess) return opened;
    // Of plain segments. Last, since there is no way back.
    const DriverCode enabled = driver.enable_peer_access(peer, device_.device_);
    if (enabled != DriverCode::kSuccess) close_to(driver, peer, runs);
    return enabled;
  });
  is_moving_ = false;
  device_.changed_.notify_all();
  if (code == DriverCode::kSuccess && !is_in) access_.push_back(peer);
  return code;
}

}  // namespace quarry
