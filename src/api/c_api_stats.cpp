// SPDX-License-Identifier: Apache-2.0
// The C API: statistics.
#include <algorithm>

#include "api/boundary.hpp"
#include "api/config_grammar.hpp"

using namespace quarry;

namespace {

quarry_stats summarize(const DeviceStats& from) {
  quarry_stats to = {};
  to.struct_size = sizeof(to);
  to.requested_bytes = from.requested_bytes.all.current;
  to.allocated_bytes = from.allocated_bytes.all.current;
  to.allocated_peak_bytes = from.allocated_bytes.all.peak;
  to.active_bytes = from.active_bytes.all.current;
  to.active_peak_bytes = from.active_bytes.all.peak;
  to.reserved_bytes = from.reserved_bytes.all.current;
  to.reserved_peak_bytes = from.reserved_bytes.all.peak;
  to.pending_bytes = from.pending_bytes;
  to.cached_bytes = from.cached_bytes;
  to.idle_bytes = from.idle_bytes;
  to.largest_free_block = from.largest_free_block;
  to.allocator_slack = from.allocator_slack;
  to.external_bytes = from.external_bytes;
  to.allocated_blocks = from.allocation.all.current;
  to.segments = from.segment.all.current;
  to.fences_outstanding = from.fences_outstanding;
  to.num_alloc_retries = from.num_alloc_retries;
  to.num_ooms = from.num_ooms;
  to.num_device_alloc = from.num_device_alloc;
  to.num_device_free = from.num_device_free;
  to.invalid_frees = from.invalid_frees;
  to.pinned_bytes = from.pinned_bytes;
  return to;
}

}  // namespace

quarry_status quarry_get_stats(int device, quarry_stats* stats) {
  return run_with_allocator([&](auto& allocator) -> Status {
    auto now = allocator.get_stats(device);
    if (!now.is_ok()) return std::move(now).status();
    return write_struct(summarize(now.value()), stats, "stats");
  });
}

quarry_status quarry_get_stat(int device, const char* key, int64_t* value) {
  return run_with_allocator([&](auto& allocator) -> Status {
    if (Status status = require(key, "key"); !status.is_ok()) return status;
    if (Status status = require(value, "value"); !status.is_ok()) return status;
    auto now = allocator.get_stats(device);
    if (!now.is_ok()) return std::move(now).status();
    const auto all = flatten(now.value());
    const auto found = std::ranges::find(all, std::string_view(key), &NamedValue::name);
    if (found == all.end()) {
      return {StatusCode::kInvalidArgument,
              "key is " + quote(key) + "; allowed: the keys of quarry_for_each_stat"};
    }
    *value = found->value;
    return {};
  });
}

quarry_status quarry_for_each_stat(int device, quarry_stat_visitor visitor, void* user) {
  return run_with_allocator([&](auto& allocator) -> Status {
    if (visitor == nullptr) return require(nullptr, "visitor");
    auto now = allocator.get_stats(device);
    if (!now.is_ok()) return std::move(now).status();
    for (const NamedValue& one : flatten(now.value())) {
      visitor(one.name.c_str(), one.value, user);
    }
    return {};
  });
}

quarry_status quarry_for_each_stream_cache(int device, quarry_stream_cache_visitor visitor,
                                           void* user) {
  return run_with_allocator([&](auto& allocator) -> Status {
    if (visitor == nullptr) return require(nullptr, "visitor");
    auto caches = allocator.get_stream_caches(device);
    if (!caches.is_ok()) return std::move(caches).status();
    for (const StreamCache& cache : caches.value()) {
      const quarry_stream_cache shown = to_c(cache);
      visitor(&shown, user);
    }
    return {};
  });
}

quarry_status quarry_reset_peak_stats(int device) {
  return run_with_allocator([&](auto& allocator) { return allocator.reset_peak_stats(device); });
}

quarry_status quarry_reset_accumulated_stats(int device) {
  return run_with_allocator(
      [&](auto& allocator) { return allocator.reset_accumulated_stats(device); });
}
