// SPDX-License-Identifier: Apache-2.0
// What every test of the allocator on the real device begins with: the driver, opened, perhaps
// behind a test driver, and an allocator on it. Device 0.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "core/allocator.hpp"
#include "cuda/cuda_driver.hpp"
#include "tests/gpu/gpu_support.hpp"
#include "tests/support/forwarding_driver.hpp"

namespace quarry::gpu {

inline Stream get_handle(StreamRef stream) {
  return static_cast<Stream>(stream.handle);
}
inline StreamRef make_stream(bool is_blocking = false) {
  return {0, StreamHandle{create_stream(is_blocking)}};
}

// The driver of this process. A test program without a GPU never gets here (gpu_main.cpp).
inline std::unique_ptr<Driver> open_driver() {
  auto opened = cuda::open_cuda_driver();
  EXPECT_TRUE(opened.is_ok()) << opened.status().message();
  return std::move(opened).value();
}

inline Config make_config(bool thread_cache, bool is_expandable = false) {
  Config config;
  config.thread_cache = thread_cache;
  config.expandable_segments = is_expandable;
  return config;
}

// `Watcher`: a ForwardingDriver that stands between the allocator and the driver.
template <class Watcher>
class WatchedDevice {
 public:
  explicit WatchedDevice(bool thread_cache, bool is_expandable = false)
      : driver_(open_driver()),
        watcher_(*driver_),
        allocator_(Allocator::create(watcher_, make_config(thread_cache, is_expandable)).value()) {
  }

  Driver& driver() { return *driver_; }
  Watcher& watcher() { return watcher_; }
  Allocator& allocator() { return *allocator_; }
  DeviceStats stats() { return allocator_->get_stats(0).value(); }
  Bytes reserved() { return static_cast<Bytes>(stats().reserved_bytes.all.current); }
  Bytes driver_free_bytes() { return driver_->get_memory_info(0).value.free_bytes; }

  // The block's words are filled by work on its stream.
  Address allocate_filled(StreamRef stream, Bytes bytes, std::uint32_t value) {
    const auto address = allocator_->allocate(stream, bytes);
    EXPECT_TRUE(address.is_ok()) << address.status().message();
    if (!address.is_ok()) return 0;
    fill(address.value(), bytes, value, get_handle(stream));
    return address.value();
  }
  void free(Address address) { EXPECT_TRUE(allocator_->free(address).is_ok()); }
  // Retires and destroys it.
  void end_stream(StreamRef stream) {
    EXPECT_TRUE(allocator_->retire_stream(stream).is_ok());
    destroy_stream(get_handle(stream));
  }

 private:
  std::unique_ptr<Driver> driver_;
  Watcher watcher_;
  std::unique_ptr<Allocator> allocator_;
};

using Device = WatchedDevice<test::ForwardingDriver>;

}  // namespace quarry::gpu
