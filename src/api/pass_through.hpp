// SPDX-License-Identifier: Apache-2.0
// The kill switch (QUARRY_DISABLE=1): every request and every free goes straight to the driver.
// Answers the calls of Allocator under the same names with the same meaning, without a cache: what
// is reserved is what is allocated. Owned by Process.
//
// Thread safety and errors as Allocator. Driver calls are made with no lock held. A free that the
// driver must not see now (inside a driver callback, under the caller's driver-free guard) is kept
// for the next ordinary call.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "base/status.hpp"
#include "core/allocator.hpp"
#include "core/callbacks.hpp"
#include "core/config.hpp"
#include "core/free_gate.hpp"
#include "core/pins.hpp"
#include "driver/driver.hpp"
#include "stats/device_stats.hpp"

namespace quarry {

class PassThrough {
 public:
  static Result<std::unique_ptr<PassThrough>> create(Driver& driver, const Config& config);
  // Frees what is still held, without a look at the free gate: a holder might be gone.
  ~PassThrough();
  PassThrough(const PassThrough&) = delete;
  PassThrough& operator=(const PassThrough&) = delete;

  int device_count() const noexcept { return device_count_; }

  Result<Address> allocate(StreamRef stream, Bytes bytes, Bytes alignment = 512);
  Status free(Address address) noexcept;
  Status free_sized(Address address, Bytes bytes) noexcept;
  // The driver's free waits for all streams, so that these two have nothing to order.
  Status free_on_stream(Address address, StreamHandle stream) noexcept;
  Status record_stream(Address address, StreamHandle stream) noexcept;
  Status enable_peer_access(DeviceId device, DeviceId peer) noexcept;
  Status pin(Address address, Bytes bytes) noexcept;
  Status unpin(Address address, Bytes bytes) noexcept;
  Status retire_stream(StreamRef stream) noexcept;
  void retire_thread_streams() noexcept {}
  std::size_t end_thread_pools() noexcept { return 0; }
  Status empty_cache(DeviceId device);

  void configure(const Config& config);
  Config get_config() const;
  Status set_memory_fraction(DeviceId device, double fraction);
  Result<double> get_memory_fraction(DeviceId device) const;
  Status set_limit(DeviceId device, Bytes bytes);
  Result<Bytes> get_limit(DeviceId device) const;

  Result<DeviceStats> get_stats(DeviceId device);
  Result<std::vector<StreamCache>> get_stream_caches(DeviceId device);
  Status reset_peak_stats(DeviceId device);
  Status reset_accumulated_stats(DeviceId device);
  Result<BlockInfo> find_block(Address address) const;

  Callbacks& callbacks() noexcept { return callbacks_; }
  FreeGate& free_gate() noexcept { return free_gate_; }
  void mark_forked() noexcept { is_forked_.store(true, std::memory_order_relaxed); }

 private:
  struct Allocation {
    Address driver_address = 0;  // below the user's if the alignment asked for it
    Bytes driver_bytes = 0;
    Bytes requested_bytes = 0;
    StreamRef stream;
  };
  struct Device {
    Bytes total_bytes = 0;
    double fraction = 1.0;
    Bytes limit = kUnlimited;
    Bytes asked_bytes = 0;  // of the driver, not yet answered
    DeviceStats stats;
  };

  PassThrough(Driver& driver, const Config& config, std::vector<Device> devices);
  Status check_alive() const;
  Status check_device(DeviceId device) const;
  Device& at(DeviceId device) QUARRY_REQUIRES(mutex_) {
    return devices_[static_cast<std::size_t>(device)];
  }
  const Device& at(DeviceId device) const QUARRY_REQUIRES(mutex_) {
    return devices_[static_cast<std::size_t>(device)];
  }
  Result<Address> ask_driver(const Allocation& wanted);
  DriverResult<Address> try_allocate(const Allocation& wanted);
  // Counts the bytes before the driver is asked, so that threads cannot pass the limit together.
  bool try_reserve(const Allocation& wanted);
  Status fail_out_of_memory(const Allocation& wanted);
  Status take(Address address, Allocation& taken, const char* call);
  Status release(const Allocation& allocation);
  // Where the free gate was entered, or does not matter any more.
  Status free_in_driver(const Allocation& allocation);
  void release_queued();
  bool is_pinned(const Allocation& allocation) const QUARRY_REQUIRES(mutex_);
  std::int64_t calculate_pinned_bytes(DeviceId device) const QUARRY_REQUIRES(mutex_);
  Bytes calculate_allowed_bytes(DeviceId device) const QUARRY_REQUIRES(mutex_);

  Driver& driver_;
  const int device_count_;
  std::atomic<bool> is_forked_{false};
  std::atomic<bool> has_queued_{false};
  Callbacks callbacks_;
  FreeGate free_gate_;
  mutable Mutex mutex_{LockRank::kDevice};
  Config config_ QUARRY_GUARDED_BY(mutex_);
  std::vector<Device> devices_ QUARRY_GUARDED_BY(mutex_);  // by DeviceId; the length is fixed
  std::map<Address, Allocation> held_ QUARRY_GUARDED_BY(mutex_);
  std::vector<Allocation> queued_ QUARRY_GUARDED_BY(mutex_);  // freed by users, not by the driver
  std::vector<Allocation> kept_ QUARRY_GUARDED_BY(mutex_);    // likewise, because pinned
  Pins pins_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
