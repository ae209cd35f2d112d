// SPDX-License-Identifier: Apache-2.0
// Plain and virtual memory of the real driver.
#include "cuda_driver_class.hpp"

namespace quarry::cuda {

DriverResult<Address> CudaDriver::allocate(DeviceId device, Bytes bytes) noexcept {
  const Current current(*this, device);
  if (!current.is_ok()) return current.code();
  CUdeviceptr address = 0;
  const CUresult code = entries_.mem_alloc(&address, bytes);
  if (code != CUDA_SUCCESS) return to_code(code);
  return Address{address};
}

DriverCode CudaDriver::free(DeviceId device, Address address) noexcept {
  const Current current(*this, device);
  if (!current.is_ok()) return current.code();
  return to_code(entries_.mem_free(address));
}

DriverResult<Address> CudaDriver::reserve_addresses(Bytes bytes, Bytes alignment) noexcept {
  CUdeviceptr address = 0;
  const CUresult code = entries_.mem_address_reserve(&address, bytes, alignment, 0, 0);
  if (code != CUDA_SUCCESS) return to_code(code);
  return Address{address};
}

DriverCode CudaDriver::free_addresses(Address address, Bytes bytes) noexcept {
  return to_code(entries_.mem_address_free(address, bytes));
}

DriverResult<ExtentHandle> CudaDriver::create_extent(DeviceId device, Bytes bytes,
                                                     ExtentKind kind) noexcept {
  const Current current(*this, device);
  if (!current.is_ok()) return current.code();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  properties.requestedHandleTypes =
      static_cast<CUmemAllocationHandleType>(static_cast<int>(kind.handle_type));
  properties.allocFlags.gpuDirectRDMACapable = kind.gpu_direct_rdma ? 1 : 0;
  CUmemGenericAllocationHandle extent = 0;
  const CUresult code = entries_.mem_create(&extent, bytes, &properties, 0);
  if (code != CUDA_SUCCESS) return to_code(code);
  return ExtentHandle{extent};
}

DriverCode CudaDriver::release_extent(ExtentHandle extent) noexcept {
  return to_code(entries_.mem_release(static_cast<CUmemGenericAllocationHandle>(extent)));
}

DriverCode CudaDriver::map(Address address, Bytes bytes, ExtentHandle extent) noexcept {
  const auto handle = static_cast<CUmemGenericAllocationHandle>(extent);
  return to_code(entries_.mem_map(address, bytes, 0, handle, 0));
}

DriverCode CudaDriver::unmap(Address address, Bytes bytes) noexcept {
  return to_code(entries_.mem_unmap(address, bytes));
}

DriverCode CudaDriver::set_access(Address address, Bytes bytes,
                                  std::span<const DeviceId> devices) noexcept {
  std::vector<CUmemAccessDesc> access;
  for (DeviceId device : devices) {
    access.push_back(
        {{CU_MEM_LOCATION_TYPE_DEVICE, {device}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  return to_code(entries_.mem_set_access(address, bytes, access.data(), access.size()));
}

DriverCode CudaDriver::revoke_access(Address address, Bytes bytes, DeviceId device) noexcept {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {device}},
                               CU_MEM_ACCESS_FLAGS_PROT_NONE};
  return to_code(entries_.mem_set_access(address, bytes, &access, 1));
}

}  // namespace quarry::cuda
