// SPDX-License-Identifier: Apache-2.0
// A Driver that passes every call on and then, after those that may be slow, lets a test act: in
// the moment when the allocator has let go of its lock. Set the hook before other threads call.
#pragma once

#include <functional>
#include <utility>

#include "tests/support/forwarding_driver.hpp"

namespace quarry::stress {

class HookedDriver final : public test::ForwardingDriver {
 public:
  using Hook = std::function<void(DriverEntry)>;
  using ForwardingDriver::ForwardingDriver;

  // Called after allocate, free, synchronize_event and what changes mappings, on the calling
  // thread.
  void set_hook(Hook hook) { hook_ = std::move(hook); }

  enum class RecordMoment { kBefore, kAfter };
  // Called around each record_event.
  void set_record_hook(std::function<void(RecordMoment, StreamRef)> hook) {
    record_hook_ = std::move(hook);
  }

  DriverCode record_event(EventHandle event, StreamRef stream) noexcept override {
    if (record_hook_) record_hook_(RecordMoment::kBefore, stream);
    const DriverCode code = next().record_event(event, stream);
    if (record_hook_) record_hook_(RecordMoment::kAfter, stream);
    return code;
  }

 protected:
  void after(DriverEntry entry) noexcept override {
    switch (entry) {
      case DriverEntry::kAllocate:
      case DriverEntry::kFree:
      case DriverEntry::kSynchronizeEvent:
      case DriverEntry::kCreateExtent:
      case DriverEntry::kReleaseExtent:
      case DriverEntry::kMap:
      case DriverEntry::kUnmap:
      case DriverEntry::kSetAccess:
        break;
      default:
        return;
    }
    const Hook hook = hook_;  // it may set another one
    if (hook) hook(entry);
  }

 private:
  Hook hook_;
  std::function<void(RecordMoment, StreamRef)> record_hook_;
};

}  // namespace quarry::stress
