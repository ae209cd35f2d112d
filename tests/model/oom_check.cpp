// SPDX-License-Identifier: Apache-2.0
// No false out-of-memory: when the allocator says that nothing was left, this looks for what was.
// Asks the simulated device itself, and rebuilds the free gaps from the blocks that are held.
#include <map>
#include <vector>

#include "core/extent_policy.hpp"
#include "core/size_policy.hpp"
#include "tests/model/state.hpp"

namespace quarry::model {
namespace {

struct Demand {
  Bytes needed_bytes = 0;
  Bytes segment_bytes = 0;
  StatFamily family{};
};

Demand make_demand(const Allocate& request, const Config& config, bool is_expandable) {
  Demand demand;
  demand.needed_bytes = calculate_block_size(request.bytes, config) +
                        std::max(request.alignment, kMinBlock) - kMinBlock;
  demand.segment_bytes = calculate_segment_size(demand.needed_bytes, config);
  // Where it begins and ends it may touch an extent that others use.
  if (is_expandable) {
    demand.segment_bytes = round_up(demand.needed_bytes, kExtentPage) + kExtentPage;
  }
  demand.family = get_family(demand.needed_bytes);
  return demand;
}

Bytes get_reserved(State& state, DeviceId device) {
  return static_cast<Bytes>(state.stats(device).reserved_bytes.all.current);
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

// Whether the pool's own memory could serve the request, or memory that another lends.
bool may_serve_from(State& state, int wanted, int pool) {
  if (pool != kDefaultPool && state.pools().at(pool).has_idle_memory) return false;
  if (wanted == pool) return true;
  if (wanted != kDefaultPool) return false;
  const UserPool& lender = state.pools().at(pool);
  return lender.options.use_on_oom && lender.use_count > 0;
}

// With one stream, never retired, every gap between held blocks is a free block of that stream.
bool is_gap_fitting(State& state, DeviceId device, int pool, const Demand& demand,
                    const Config& config) {
  struct Extent {
    Bytes segment_bytes = 0;
    std::map<Address, Bytes> held;
  };
  std::map<Address, Extent> segments;
  for (int slot = 0; slot < kSlots; ++slot) {
    const std::optional<UserBlock>& block = state.block(slot);
    if (!block || block->device != device || !may_serve_from(state, pool, block->pool)) continue;
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

// Pools that somebody holds keep what captures were given, and all of it where that was wished.
void check_pools_are_trimmed(State& state, DeviceId device, Caller caller) {
  const Bytes reserved = get_reserved(state, device);
  for (int i = 0; i < state.pools().count(); ++i) {
    const UserPool& pool = state.pools().at(i);
    if (pool.device != device || pool.use_count == 0 || pool.options.no_recycle) continue;
    const bool is_trimmed = state.call_as(
        caller, [&] { return state.allocator().trim_pool(device, pool.id).is_ok(); });
    if (!is_trimmed) state.fail("trim_pool failed");
  }
  if (get_reserved(state, device) != reserved) {
    state.fail("false out-of-memory: a pool could still be trimmed");
  }
}

// What a pool lends fits: then the request for the default pool had to be served with it.
void check_lenders(State& state, const Allocate& request, Caller caller,
                   const UserStream& stream) {
  const DeviceId device = stream.ref.device;
  for (int i = 0; i < state.pools().count(); ++i) {
    UserPool& pool = state.pools().at(i);
    if (pool.device != device || pool.use_count == 0 || !pool.options.use_on_oom) continue;
    const auto result = state.call_as(caller, [&] {
      return state.allocator().allocate_in_pool({device, stream.handle}, request.bytes,
                                                request.alignment, pool.id);
    });
    if (result.is_ok()) return state.fail("false out-of-memory: a pool that lends had a block");
    ++state.ledger_of(device).ooms;
    ++pool.ooms;
  }
}

// Whether the pool itself may have had no more.
bool does_pool_refuse(State& state, const Before& before, Bytes segment_bytes) {
  if (before.pool == kDefaultPool) return false;
  const UserPool& pool = state.pools().at(before.pool);
  if (pool.functions != nullptr && pool.functions->refusal_count() > before.refusal_count) {
    return true;
  }
  const auto report = state.allocator().get_pool_report(pool.device, pool.id);
  const Bytes limit = pool.options.limit_bytes;
  const auto reserved = static_cast<Bytes>(report.value().stats.reserved_bytes.current);
  return segment_bytes > limit || reserved > limit - segment_bytes;
}

}  // namespace

void check_out_of_memory(State& state, const Allocate& request, Caller caller,
                         const UserStream& stream, const Before& before) {
  const DeviceId device = stream.ref.device;
  const Config config = state.allocator().get_config();
  const bool is_pools_own =
      before.pool != kDefaultPool && (state.pools().at(before.pool).functions != nullptr ||
                                      state.pools().at(before.pool).options.no_split);
  const Demand demand = make_demand(request, config, config.expandable_segments && !is_pools_own);
  const DeviceStats now = state.stats(device);
  const bool is_plain = !config.expandable_segments;
  const bool is_only_stream = state.options().made_streams == 0 && stream.name.generation == 0;
  if (is_plain && is_only_stream && is_gap_fitting(state, device, before.pool, demand, config)) {
    state.fail("false out-of-memory: a free block of the stream fitted");
  }
  if (is_plain && before.pool == kDefaultPool && is_cache_fitting(state, stream, demand, config)) {
    state.fail("false out-of-memory: a cached block of the stream fitted");
  }
  const bool was_rejected = now.num_oom_rejections > before.stats.num_oom_rejections;
  if (was_rejected) {
    if (!does_limit_refuse(state, device, demand.segment_bytes)) {
      state.fail("a request within the limits was rejected");
    }
    return;
  }
  if (state.is_gate_held) return;
  // As PyTorch, nothing is given back then.
  if (!config.graph_capture_reclaim && state.graphs().may_seem_active()) return;
  // As the thread that asked: only it can look at fences of its own default streams.
  const bool is_emptied =
      state.call_as(caller, [&] { return state.allocator().empty_cache(device).is_ok(); });
  if (!is_emptied) state.fail("empty_cache failed");
  if (state.stats(device).reserved_bytes.all.current != now.reserved_bytes.all.current) {
    state.fail("false out-of-memory: vacant segments could still be released");
  }
  check_pools_are_trimmed(state, device, caller);
  const bool may_be_offered = state.offered_slot >= 0 && state.block(state.offered_slot);
  // A lender that grows in parts may have room where the default pool has none.
  if (before.pool == kDefaultPool && !may_be_offered && is_plain) {
    check_lenders(state, request, caller, stream);
  }
  if (does_pool_refuse(state, before, demand.segment_bytes)) return;
  if (does_limit_refuse(state, device, demand.segment_bytes)) return;
  if (has_device_room(state, device, demand.segment_bytes)) {
    state.fail("false out-of-memory: the device has room for the segment");
  }
}

}  // namespace quarry::model
