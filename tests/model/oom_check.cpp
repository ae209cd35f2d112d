// SPDX-License-Identifier: Apache-2.0
// No false out-of-memory: when the allocator says that nothing was left, this looks for what was.
// Asks the simulated device itself, and rebuilds the free gaps from the blocks that are held.
#include <map>
#include <vector>

#include "core/size_policy.hpp"
#include "tests/model/state.hpp"

namespace quarry::model {
namespace {

struct Demand {
  Bytes needed_bytes = 0;
  Bytes segment_bytes = 0;
  StatFamily family{};
};

Demand make_demand(const Allocate& request, const Config& config) {
  Demand demand;
  demand.needed_bytes = calculate_block_size(request.bytes, config) +
                        std::max(request.alignment, kMinBlock) - kMinBlock;
  demand.segment_bytes = calculate_segment_size(demand.needed_bytes, config);
  demand.family = get_family(demand.needed_bytes);
  return demand;
}

bool does_limit_refuse(State& state, DeviceId device, Bytes segment_bytes) {
  const Bytes allowed = state.calculate_allowed_bytes(device);
  const auto reserved = static_cast<Bytes>(state.stats(device).reserved_bytes.all.current);
  return segment_bytes > allowed || reserved > allowed - segment_bytes;
}

// Whether the device itself has room for the segment.
bool has_device_room(State& state, DeviceId device, Bytes segment_bytes) {
  CaptureModeBracket bracket(state.sim());
  const auto probe = state.sim().allocate(device, segment_bytes);
  if (!probe.is_ok()) return false;
  static_cast<void>(state.sim().free(device, probe.value));
  return true;
}

// With one stream, never retired, every gap between held blocks is a free block of that stream.
bool is_gap_fitting(State& state, DeviceId device, const Demand& demand, const Config& config) {
  struct Extent {
    Bytes segment_bytes = 0;
    std::map<Address, Bytes> held;
  };
  std::map<Address, Extent> segments;
  for (int slot = 0; slot < kSlots; ++slot) {
    const std::optional<UserBlock>& block = state.block(slot);
    if (!block || block->device != device) continue;
    const auto info = state.allocator().find_block(block->address);
    if (!info.is_ok()) continue;
    Extent& extent = segments[info.value().segment_address];
    extent.segment_bytes = info.value().segment_bytes;
    extent.held[block->address] = block->bytes;
  }
  for (const auto& [address, extent] : segments) {
    const bool is_small = extent.segment_bytes == kSmallSegment;
    if (is_small != (demand.family == StatFamily::kSmall)) continue;
    Address at = address;
    std::map<Address, Bytes> held = extent.held;
    held[address + extent.segment_bytes] = 0;
    for (const auto& [begin, bytes] : held) {
      const Bytes gap = begin - at;
      if (gap >= demand.needed_bytes && may_serve(gap, demand.needed_bytes, config)) return true;
      at = begin + bytes;
    }
  }
  return false;
}

// With several streams: a large free block of this stream, or of nobody, by the report of caches.
bool is_cache_fitting(State& state, const UserStream& stream, const Demand& demand,
                      const Config& config) {
  constexpr std::uint64_t kIdle = ~0ull;
  if (demand.family == StatFamily::kSmall) return false;
  const auto caches = state.allocator().get_stream_caches(stream.ref.device);
  for (const StreamCache& cache : caches.value()) {
    const bool is_usable =
        cache.stream == kIdle || cache.stream == static_cast<std::uint64_t>(stream.handle);
    // Two threads' default streams, or a retired one and its successor, share a handle.
    const bool is_unique = cache.stream == kIdle || stream.name.generation == 0;
    if (!is_usable || !is_unique || stream.thread) continue;
    const Bytes largest = cache.largest_free_block;
    const bool is_large = largest > kSmallSegment;
    if (is_large && largest >= demand.needed_bytes &&
        may_serve(largest, demand.needed_bytes, config)) {
      return true;
    }
  }
  return false;
}

}  // namespace

void check_out_of_memory(State& state, const Allocate& request, Caller caller,
                         const UserStream& stream, const DeviceStats& before) {
  const DeviceId device = stream.ref.device;
  const Config config = state.allocator().get_config();
  const Demand demand = make_demand(request, config);
  const DeviceStats now = state.stats(device);
  const bool is_only_stream = state.options().made_streams == 0 && stream.name.generation == 0;
  if (is_only_stream && is_gap_fitting(state, device, demand, config)) {
    state.fail("false out-of-memory: a free block of the stream fitted");
  }
  if (is_cache_fitting(state, stream, demand, config)) {
    state.fail("false out-of-memory: a cached block of the stream fitted");
  }
  const bool was_rejected = now.num_oom_rejections > before.num_oom_rejections;
  if (was_rejected) {
    if (!does_limit_refuse(state, device, demand.segment_bytes)) {
      state.fail("a request within the limits was rejected");
    }
    return;
  }
  if (state.is_gate_held) return;
  // As the thread that asked: only it can look at fences of its own default streams.
  const bool is_emptied =
      state.call_as(caller, [&] { return state.allocator().empty_cache(device).is_ok(); });
  if (!is_emptied) state.fail("empty_cache failed");
  if (state.stats(device).reserved_bytes.all.current != now.reserved_bytes.all.current) {
    state.fail("false out-of-memory: vacant segments could still be released");
  }
  if (does_limit_refuse(state, device, demand.segment_bytes)) return;
  if (has_device_room(state, device, demand.segment_bytes)) {
    state.fail("false out-of-memory: the device has room for the segment");
  }
}

}  // namespace quarry::model
