// SPDX-License-Identifier: Apache-2.0
#include "bench/driver_facts/device_objects.hpp"

namespace quarry::facts {

CUmemAllocationProp make_extent_properties(CUmemAllocationHandleType handle_type) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = handle_type;
  return properties;
}

CUmemAccessDesc make_read_write_access() {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

Extent::Extent(std::uint64_t bytes, CUmemAllocationHandleType handle_type) : bytes_(bytes) {
  const CUmemAllocationProp properties = make_extent_properties(handle_type);
  require(cu().mem_create(&handle_, bytes, &properties, 0), "cuMemCreate");
}
Extent::~Extent() {
  if (handle_ != 0) static_cast<void>(cu().mem_release(handle_));
}

AddressRange::AddressRange(std::uint64_t bytes) : bytes_(bytes) {
  require(cu().mem_address_reserve(&address_, bytes, 0, 0, 0), "cuMemAddressReserve");
}
AddressRange::~AddressRange() {
  static_cast<void>(cu().mem_address_free(address_, bytes_));
}

void map_extent(CUdeviceptr address, const Extent& extent) {
  require(cu().mem_map(address, extent.bytes(), 0, extent.handle(), 0), "cuMemMap");
  const CUmemAccessDesc access = make_read_write_access();
  require(cu().mem_set_access(address, extent.bytes(), &access, 1), "cuMemSetAccess");
}
void unmap_extent(CUdeviceptr address, std::uint64_t bytes) {
  require(cu().mem_unmap(address, bytes), "cuMemUnmap");
}

MappedExtent::MappedExtent(std::uint64_t bytes, CUmemAllocationHandleType handle_type)
    : extent_(bytes, handle_type), range_(bytes) {
  map_extent(range_.address(), extent_);
}
MappedExtent::~MappedExtent() {
  static_cast<void>(cu().mem_unmap(range_.address(), extent_.bytes()));
}

PlainMemory::PlainMemory(std::uint64_t bytes) {
  require(cu().mem_alloc(&address_, bytes), "cuMemAlloc");
}
PlainMemory::~PlainMemory() {
  static_cast<void>(cu().mem_free(address_));
}

OwnStream::OwnStream(unsigned flags) {
  require(cu().stream_create(&stream_, flags), "cuStreamCreate");
}
OwnStream::~OwnStream() {
  static_cast<void>(cu().stream_destroy(stream_));
}

OwnEvent::OwnEvent(unsigned flags) {
  require(cu().event_create(&event_, flags), "cuEventCreate");
}
OwnEvent::~OwnEvent() {
  static_cast<void>(cu().event_destroy(event_));
}

void order_streams(CUstream before, CUstream after) {
  const OwnEvent event;
  require(cu().event_record(event.get(), before), "cuEventRecord");
  require(cu().stream_wait_event(after, event.get(), 0), "cuStreamWaitEvent");
}

}  // namespace quarry::facts
