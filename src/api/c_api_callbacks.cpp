// SPDX-License-Identifier: Apache-2.0
// The C API: callbacks of the user, and the two guards. User functions get C structs that are
// built for the call, and nothing that they throw gets into the core.
#include <optional>
#include <string>
#include <vector>

#include "api/boundary.hpp"
#include "api/user_call.hpp"
#include "core/thread_state.hpp"

using namespace quarry;

static_assert(QUARRY_OOM_DEVICE_FULL == static_cast<int>(OomReport::Reason::kDeviceFull));
static_assert(QUARRY_OOM_FRAGMENTATION == static_cast<int>(OomReport::Reason::kFragmentation));
static_assert(QUARRY_OOM_STRANDED == static_cast<int>(OomReport::Reason::kStranded));
static_assert(QUARRY_OOM_LIMIT == static_cast<int>(OomReport::Reason::kLimit));
static_assert(QUARRY_OOM_FREE_FORBIDDEN == static_cast<int>(OomReport::Reason::kFreeForbidden));
static_assert(QUARRY_OOM_IMPOSSIBLE == static_cast<int>(OomReport::Reason::kImpossible));

namespace {

void call_observer(quarry_oom_callback callback, void* user, const OomReport& report) {
  std::vector<quarry_stream_cache> caches;
  for (const StreamCache& cache : report.caches)
    caches.push_back(to_c(cache));
  std::vector<const quarry_stream_cache*> pointers;
  for (const quarry_stream_cache& cache : caches)
    pointers.push_back(&cache);
  const std::string text = format(report);

  quarry_oom_report shown = {};
  shown.struct_size = sizeof(shown);
  shown.device = report.device;
  shown.stream = to_stream(report.stream);
  shown.reason = static_cast<quarry_oom_reason>(report.reason);
  shown.requested_bytes = report.requested_bytes;
  shown.rounded_bytes = report.rounded_bytes;
  shown.segment_bytes = report.segment_bytes;
  shown.reserved_bytes = report.reserved_bytes;
  shown.allocated_bytes = report.allocated_bytes;
  shown.pending_bytes = report.pending_bytes;
  shown.cached_bytes = report.cached_bytes;
  shown.largest_free_block = report.largest_free_block;
  shown.limit_bytes = report.limit_bytes;
  shown.device_total_bytes = report.device_total_bytes;
  shown.device_free_bytes = report.device_free_bytes;
  shown.external_bytes = report.external_bytes;
  shown.caches = pointers.data();
  shown.cache_count = pointers.size();
  shown.text = text.c_str();
  callback(&shown, user);
}

Status keep_id(CallbackId id, quarry_callback_id* out) {
  if (out != nullptr) *out = static_cast<quarry_callback_id>(id);
  return {};
}

// The scope that quarry_driver_callback_begin opened on this thread, and how often.
thread_local std::optional<DriverCallbackScope> callback_scope;
constinit thread_local unsigned callback_depth = 0;

}  // namespace

quarry_status quarry_add_oom_callback(quarry_oom_callback callback, void* user,
                                      quarry_callback_id* id) {
  return run_with_allocator([&](auto& allocator) -> Status {
    if (callback == nullptr) return require(nullptr, "callback");
    return keep_id(allocator.callbacks().add_oom_observer([=](const OomReport& report) {
      call_safely([&] { call_observer(callback, user, report); });
    }),
                   id);
  });
}

quarry_status quarry_add_free_memory_callback(quarry_free_memory_callback callback, void* user,
                                              quarry_callback_id* id) {
  return run_with_allocator([&](auto& allocator) -> Status {
    if (callback == nullptr) return require(nullptr, "callback");
    const auto call = [=](DeviceId device, Bytes needed_bytes) {
      return call_safely([&] { return callback(device, needed_bytes, user) != 0; });
    };
    return keep_id(allocator.callbacks().add_free_memory_callback(call), id);
  });
}

quarry_status quarry_remove_callback(quarry_callback_id id) {
  return run_with_allocator([&](auto& allocator) -> Status {
    if (allocator.callbacks().remove(CallbackId{id})) return {};
    return {StatusCode::kInvalidArgument,
            "id is " + std::to_string(id) + "; there is no callback of that id"};
  });
}

quarry_status quarry_driver_free_guard_lock(void) {
  return run_with_allocator([](auto& allocator) -> Status {
    if (is_driver_callback_thread()) {
      return {StatusCode::kBusy,
              "the driver-free guard may not be taken inside a driver callback: a driver free "
              "under way may wait for that callback"};
    }
    note_thread_exit_duty();
    allocator.free_gate().lock();
    return {};
  });
}

quarry_status quarry_driver_free_guard_unlock(void) {
  return run_with_allocator([](auto& allocator) -> Status {
    if (allocator.free_gate().unlock()) return {};
    return {StatusCode::kInvalidArgument,
            "the calling thread does not hold the driver-free guard"};
  });
}

quarry_status quarry_driver_callback_begin(void) {
  if (callback_depth++ == 0) callback_scope.emplace();
  return QUARRY_OK;
}

quarry_status quarry_driver_callback_end(void) {
  return run([]() -> Status {
    if (callback_depth == 0) {
      return {StatusCode::kInvalidArgument,
              "quarry_driver_callback_end without a quarry_driver_callback_begin on this thread"};
    }
    if (--callback_depth == 0) callback_scope.reset();
    return {};
  });
}
