// SPDX-License-Identifier: Apache-2.0
#include "core/growth.hpp"

#include <span>

namespace quarry {
namespace {

// Of neighbours, one call.
DriverCode grant_access(Driver& driver, const std::vector<DeviceId>& devices,
                        const std::vector<Arrival>& arrivals) {
  for (auto first = arrivals.begin(); first != arrivals.end();) {
    Address end = first->address;
    auto last = first;
    for (; last != arrivals.end() && last->address == end; ++last)
      end += last->extent.size;
    const DriverCode code = driver.set_access(first->address, end - first->address, devices);
    if (code != DriverCode::kSuccess) return code;
    first = last;
  }
  return DriverCode::kSuccess;
}

void release(Driver& driver, ExtentHandle extent, UnreleasedExtents& unreleased) {
  if (driver.release_extent(extent) != DriverCode::kSuccess) unreleased.push_back(extent);
}

bool is_refusal(DriverCode code) {
  return code == DriverCode::kNotSupported || code == DriverCode::kNotPermitted;
}

DriverCode map_one(Driver& driver, const ExtentTerms& terms, Growth& growth, Arrival& arrival,
                   UnreleasedExtents& unreleased) {
  const bool is_new = !arrival.departure.has_value();
  if (is_new) {
    const auto made = driver.create_extent(terms.device, arrival.extent.size, terms.kind);
    growth.is_kind_refused = is_refusal(made.code) && terms.kind != ExtentKind{};
    if (!made.is_ok()) return made.code;
    arrival.extent.handle = made.value;
  }
  const DriverCode code = driver.map(arrival.address, arrival.extent.size, arrival.extent.handle);
  if (code != DriverCode::kSuccess && is_new) release(driver, arrival.extent.handle, unreleased);
  return code;
}

// Only if it has passed.
DriverCode unmap_one(Driver& driver, Departure& departure, UnreleasedExtents& unreleased) {
  if (!departure.has_passed || departure.is_unmapped) return DriverCode::kSuccess;
  const DriverCode code = driver.unmap(departure.address, departure.extent.size);
  departure.is_unmapped = code == DriverCode::kSuccess;
  if (departure.is_unmapped && departure.is_released) {
    release(driver, departure.extent.handle, unreleased);
  }
  return code;
}

// Nothing has been used there yet.
void undo(Driver& driver, std::span<Arrival> mapped, UnreleasedExtents& unreleased) {
  for (Arrival& arrival : mapped) {
    arrival.is_stuck = driver.unmap(arrival.address, arrival.extent.size) != DriverCode::kSuccess;
    if (!arrival.departure.has_value()) release(driver, arrival.extent.handle, unreleased);
  }
}

}  // namespace

Bytes Growth::get_created_bytes() const {
  Bytes bytes = 0;
  for (const Arrival& arrival : arrivals)
    bytes += arrival.departure.has_value() ? 0 : arrival.extent.size;
  return bytes;
}

DriverCode map_arrivals(Driver& driver, const ExtentTerms& terms, Growth& growth,
                        UnreleasedExtents& unreleased) {
  std::vector<Arrival>& arrivals = growth.arrivals;
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    const DriverCode code = map_one(driver, terms, growth, arrivals[i], unreleased);
    if (code == DriverCode::kSuccess) continue;
    undo(driver, std::span(arrivals).first(i), unreleased);
    return code;
  }
  const DriverCode code = grant_access(driver, terms.access, arrivals);
  if (code != DriverCode::kSuccess) undo(driver, arrivals, unreleased);
  return code;
}

DriverCode release_departures(Driver& driver, std::vector<Departure>& departures,
                              UnreleasedExtents& unreleased) {
  DriverCode failure = DriverCode::kSuccess;
  for (Departure& departure : departures) {
    if (!departure.is_released) continue;
    const DriverCode code = unmap_one(driver, departure, unreleased);
    if (failure == DriverCode::kSuccess) failure = code;
  }
  return failure;
}

DriverCode unmap_departures(Driver& driver, std::vector<Departure>& departures,
                            UnreleasedExtents& unreleased) {
  DriverCode failure = DriverCode::kSuccess;
  for (Departure& departure : departures) {
    const DriverCode code = unmap_one(driver, departure, unreleased);
    if (failure == DriverCode::kSuccess) failure = code;
  }
  return failure;
}

void DeviceDrain::make_ready() noexcept {
  constexpr Bytes kLeast = 512;
  if (held_ != 0) return;
  const auto address = driver_.allocate(device_, kLeast);
  if (address.is_ok()) held_ = address.value;
}

DriverCode DeviceDrain::wait() noexcept {
  make_ready();
  if (held_ == 0) return DriverCode::kOutOfMemory;
  const DriverCode code = driver_.free(device_, held_);
  if (code == DriverCode::kSuccess) held_ = 0;
  return code;
}

void DeviceDrain::release() noexcept {
  if (held_ != 0) static_cast<void>(driver_.free(device_, held_));
  held_ = 0;
}

}  // namespace quarry
