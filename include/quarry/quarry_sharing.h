// SPDX-License-Identifier: Apache-2.0
// Memory that others use too: other devices of this process, and whatever knows it by its address
// (a network card, a communication library, another process). C99 and C++; quarry_sharing.hpp has
// RAII. docs/sharing.md is the guide.
//
// The rules of quarry.h hold here: any thread, any time, no throw, a failure changes nothing.
#ifndef QUARRY_QUARRY_SHARING_H
#define QUARRY_QUARRY_SHARING_H

#include "quarry/quarry.h"

#ifdef __cplusplus
extern "C" {
#endif

// --- Peers ---

// From now on kernels and copies of `device` may use all memory of this allocator on `peer`,
// another device: what is there and what will be, in plain and in expandable segments. In this
// direction only. For plain segments it is cudaDeviceEnablePeerAccess, which does not cover the
// memory of expandable ones. All or nothing: QUARRY_ERROR_DRIVER if the driver refuses. QUARRY_OK
// if it was enabled before. There is no way back. QUARRY_ERROR_BUSY between
// quarry_driver_callback_begin and _end. May wait for other threads that are asking the driver for
// memory, never for a device.
//
// The caller orders the work of two devices: a block that a peer used is freed only after its own
// stream has been made to wait for that use.
QUARRY_API quarry_status quarry_enable_peer_access(int device, int peer);

// --- Pins ---

// [ptr, ptr + bytes), inside one block that the caller holds, is in use by its address: until it
// is unpinned it keeps its physical memory, also after the block is freed and whoever gets the
// memory next. Nothing gives it back to the driver (no quarry_empty_cache, no pool that is
// released, no shortage) but quarry_shutdown, and idle extents of expandable segments do not move
// from there. Kept are whole driver allocations and whole extents; pinned_bytes counts them.
//
// Pins of the same range add up. Pin before you register memory; unpin by the same range, as often
// as it was pinned, after you have deregistered it. Neither waits for the device or calls the
// driver. QUARRY_ERROR_INVALID_POINTER if the range is not inside one live block;
// QUARRY_ERROR_INVALID_ARGUMENT for 0 bytes, and from unpin for a range that is not pinned.
QUARRY_API quarry_status quarry_pin(const void* ptr, size_t bytes);
QUARRY_API quarry_status quarry_unpin(const void* ptr, size_t bytes);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // QUARRY_QUARRY_SHARING_H
