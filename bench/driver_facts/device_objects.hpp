// SPDX-License-Identifier: Apache-2.0
// RAII for what the facts make most: physical extents, reserved addresses, mappings, streams,
// events, and plain memory, of device 0. Thin owners over the driver's calls: they throw
// DriverError when a call fails, ignore failures of the release, and measure nothing.
#pragma once

#include <cstdint>
#include <utility>

#include "bench/driver_facts/driver_calls.hpp"

namespace quarry::facts {

constexpr std::uint64_t kMiB = 1024 * 1024;
constexpr std::uint64_t kGiB = 1024 * kMiB;

// What an extent of device 0 is asked with, and the access that a mapping gets.
CUmemAllocationProp make_extent_properties(
    CUmemAllocationHandleType handle_type = CU_MEM_HANDLE_TYPE_NONE);
CUmemAccessDesc make_read_write_access();

class Extent {
 public:
  explicit Extent(std::uint64_t bytes,
                  CUmemAllocationHandleType handle_type = CU_MEM_HANDLE_TYPE_NONE);
  ~Extent();
  Extent(Extent&& other) noexcept
      : handle_(std::exchange(other.handle_, 0)), bytes_(other.bytes_) {}
  Extent& operator=(Extent&&) = delete;
  CUmemGenericAllocationHandle handle() const { return handle_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  CUmemGenericAllocationHandle handle_ = 0;
  std::uint64_t bytes_ = 0;
};

// Reserved addresses. Whatever is mapped in it must be unmapped before it goes.
class AddressRange {
 public:
  explicit AddressRange(std::uint64_t bytes);
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  CUdeviceptr address() const { return address_; }

 private:
  CUdeviceptr address_ = 0;
  std::uint64_t bytes_ = 0;
};

// Maps with read and write access; unmaps.
void map_extent(CUdeviceptr address, const Extent& extent);
void unmap_extent(CUdeviceptr address, std::uint64_t bytes);

// An extent and one mapping of it.
class MappedExtent {
 public:
  explicit MappedExtent(std::uint64_t bytes,
                        CUmemAllocationHandleType handle_type = CU_MEM_HANDLE_TYPE_NONE);
  ~MappedExtent();
  MappedExtent(const MappedExtent&) = delete;
  MappedExtent& operator=(const MappedExtent&) = delete;
  CUdeviceptr address() const { return range_.address(); }
  const Extent& extent() const { return extent_; }

 private:
  Extent extent_;
  AddressRange range_;
};

// Of one cuMemAlloc.
class PlainMemory {
 public:
  explicit PlainMemory(std::uint64_t bytes);
  ~PlainMemory();
  PlainMemory(const PlainMemory&) = delete;
  PlainMemory& operator=(const PlainMemory&) = delete;
  CUdeviceptr address() const { return address_; }

 private:
  CUdeviceptr address_ = 0;
};

class OwnStream {
 public:
  explicit OwnStream(unsigned flags = CU_STREAM_NON_BLOCKING);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  CUstream get() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

class OwnEvent {
 public:
  explicit OwnEvent(unsigned flags = CU_EVENT_DISABLE_TIMING);
  ~OwnEvent();
  OwnEvent(const OwnEvent&) = delete;
  OwnEvent& operator=(const OwnEvent&) = delete;
  CUevent get() const { return event_; }

 private:
  CUevent event_ = nullptr;
};

// Work submitted to `after` from now on waits for all that is on `before` now.
void order_streams(CUstream before, CUstream after);

}  // namespace quarry::facts
