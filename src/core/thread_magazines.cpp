// SPDX-License-Identifier: Apache-2.0
#include "core/thread_magazines.hpp"

#include <pthread.h>

#include <atomic>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/check.hpp"

namespace quarry {
namespace internal {

constinit thread_local std::array<ThreadMagazinesSlot, kThreadSlots> thread_slots{};

}  // namespace internal

namespace {

// All that the calling thread has, also where two devices share a slot.
struct ThreadShare {
  std::vector<internal::ThreadMagazinesSlot> owned;
};

constinit thread_local ThreadShare* thread_share = nullptr;
constinit thread_local bool is_thread_ending = false;

void end_thread(void*) {
  is_thread_ending = true;
  internal::thread_slots.fill({});
  const std::unique_ptr<ThreadShare> share(std::exchange(thread_share, nullptr));
  for (const auto& slot : share->owned) {
    slot.magazines->mark_thread_ended();
    if (slot.magazines->give_back_share()) delete slot.magazines;
  }
}

// A key and not a thread_local object: the thread's C++ objects may free while they are destroyed,
// and one that is made later, by a free from the destructor of a key, would not be destroyed.
pthread_key_t get_end_key() {
  static const pthread_key_t made = [] {
    pthread_key_t key{};
    QUARRY_CHECK_EQ(pthread_key_create(&key, end_thread), 0);
    return key;
  }();
  return made;
}

ThreadShare& get_thread_share() {
  if (thread_share == nullptr) {
    auto share = std::make_unique<ThreadShare>();
    if (pthread_setspecific(get_end_key(), share.get()) != 0) throw std::bad_alloc();
    thread_share = share.release();
  }
  return *thread_share;
}

}  // namespace

std::uint64_t make_device_serials(int count) noexcept {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(static_cast<std::uint64_t>(count), std::memory_order_relaxed);
}

ThreadMagazines* internal::find_thread_magazines_slowly(std::uint64_t device_serial) noexcept {
  if (thread_share == nullptr) return nullptr;
  for (const ThreadMagazinesSlot& slot : thread_share->owned) {
    if (slot.device_serial != device_serial) continue;
    thread_slots[device_serial % kThreadSlots] = slot;
    return slot.magazines;
  }
  return nullptr;
}

ThreadMagazines* make_thread_magazines(std::uint64_t device_serial, const RoutingWord& routing,
                                       std::uint32_t number) {
  if (is_thread_ending) return nullptr;
  ThreadShare& share = get_thread_share();
  std::erase_if(share.owned, [](const internal::ThreadMagazinesSlot& slot) {
    if (slot.magazines->is_shared()) return false;
    delete slot.magazines;  // its device is gone, and with it the serial
    return true;
  });
  auto made = std::make_unique<ThreadMagazines>(routing, number);
  share.owned.push_back({device_serial, made.get()});
  internal::thread_slots[device_serial % internal::kThreadSlots] = share.owned.back();
  return made.release();
}

void give_back_device_share(ThreadMagazines* magazines) noexcept {
  if (magazines->give_back_share()) delete magazines;
}

OthersKeptOut::OthersKeptOut(std::span<ThreadMagazines* const> all,
                             std::uint64_t device_serial) noexcept QUARRY_NO_THREAD_SAFETY_ANALYSIS
    : all_(all) {
  const ThreadMagazines* const own = find_thread_magazines(device_serial);
  bool is_any = false;
  for (ThreadMagazines* magazines : all_) {
    if (magazines == own) continue;
    magazines->lock().ask();
    is_any = true;
  }
  if (!is_any) return;
  OwnerLock::order_owners();
  for (ThreadMagazines* magazines : all_) {
    if (magazines != own) magazines->lock().wait_for_owner();
  }
}

OthersKeptOut::~OthersKeptOut() {
  for (ThreadMagazines* magazines : all_)
    let_in(*magazines);
}

void OthersKeptOut::let_in(ThreadMagazines& magazines) noexcept QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  if (magazines.lock().is_asked()) magazines.lock().let_in();
}

}  // namespace quarry
