// SPDX-License-Identifier: Apache-2.0
// Which magazines are the calling thread's for a device: found through thread-local storage in two
// loads. A ThreadMagazines is shared by its device, which empties it, and its thread, which uses
// it; the later of the two to end deletes it. The thread's end itself touches no device: the
// device finds the mark when it empties magazines next.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/magazine.hpp"

namespace quarry {

// The first of `count` serials in a row, never the same for two devices of any allocators of this
// process; never 0.
std::uint64_t make_device_serials(int count) noexcept;

namespace internal {

struct ThreadMagazinesSlot {
  std::uint64_t device_serial = 0;
  ThreadMagazines* magazines = nullptr;
};
inline constexpr std::size_t kThreadSlots = 16;
// Direct-mapped by the serial. initial-exec: no call to find it, also in a shared library.
extern constinit thread_local std::array<ThreadMagazinesSlot, kThreadSlots> thread_slots
    __attribute__((tls_model("initial-exec")));

ThreadMagazines* find_thread_magazines_slowly(std::uint64_t device_serial) noexcept;

}  // namespace internal

// Where the calling thread's magazines for the device are, if anywhere: those of the slot may be
// another device's.
inline const internal::ThreadMagazinesSlot& get_thread_slot(std::uint64_t device_serial) noexcept {
  return internal::thread_slots[device_serial % internal::kThreadSlots];
}
// Null if the thread has none for this device (yet, or any more).
inline ThreadMagazines* find_thread_magazines(std::uint64_t device_serial) noexcept {
  const internal::ThreadMagazinesSlot& slot = get_thread_slot(device_serial);
  if (slot.device_serial == device_serial) [[likely]]
    return slot.magazines;
  return internal::find_thread_magazines_slowly(device_serial);
}

// Makes them; null if the thread is ending. Throws std::bad_alloc. The device then holds a share.
ThreadMagazines* make_thread_magazines(std::uint64_t device_serial, const RoutingWord& routing,
                                       std::uint32_t number);

// The device's share ends: it is gone, or the thread is.
void give_back_device_share(ThreadMagazines* magazines) noexcept;

// Keeps the other threads out of their magazines of one device, for a scope or until they are let
// in. Those of the calling thread, whose device's mutex is held throughout, need no more than
// that. Costs one OwnerLock::order_owners for all of them, if there are any.
class OthersKeptOut {
 public:
  // `all` are those of the device, and stay so.
  OthersKeptOut(std::span<ThreadMagazines* const> all, std::uint64_t device_serial) noexcept;
  ~OthersKeptOut();
  OthersKeptOut(const OthersKeptOut&) = delete;
  OthersKeptOut& operator=(const OthersKeptOut&) = delete;

  // The thread of these, the calling one or another, may go on.
  static void let_in(ThreadMagazines& magazines) noexcept;

 private:
  const std::span<ThreadMagazines* const> all_;
};

}  // namespace quarry
