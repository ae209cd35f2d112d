// SPDX-License-Identifier: Apache-2.0
#include "tests/model/state.hpp"

#include <algorithm>

#include "core/extent_policy.hpp"

namespace quarry::model {
namespace {

sim::SimOptions make_sim_options(const CaseOptions& options) {
  sim::SimOptions sim;
  sim.device_count = options.device_count;
  sim.physical_bytes = options.physical_bytes;
  sim.reuse_addresses = options.reuse_addresses;
  sim.reuse_stream_handles = options.reuse_stream_handles;
  sim.calls_take_time = options.calls_take_time;
  return sim;
}

Lie get_lie(Mutant mutant) {
  switch (mutant) {
    case Mutant::kPendingCaptured:
    case Mutant::kFreshFence:
      return Lie::kFreshQueryPassed;
    case Mutant::kDroppedWait:
      return Lie::kWaitDropped;
    case Mutant::kMoveUnmapsOld:
      return Lie::kMoveUnmapsOld;
    case Mutant::kLostFence:
      return Lie::kQueryAlwaysPassed;
    case Mutant::kDroppedRecord:
      return Lie::kRecordDropped;
    case Mutant::kRecordElsewhere:
      return Lie::kRecordOnIdleStream;
    case Mutant::kUnseenCapture:
      return Lie::kNeverCapturing;
    case Mutant::kSameCapture:
      return Lie::kSameCapture;
    default:
      return Lie::kNone;
  }
}

Config make_config(const CaseOptions& options) {
  Config config;
  config.thread_cache = options.thread_cache;
  config.expandable_segments = options.expandable;
  return config;
}

}  // namespace

State::State(const CaseOptions& options)
    : options_(options),
      sim_(make_sim_options(options)),
      driver_(sim_, get_lie(options.mutant), sim_.create_stream(0, sim::StreamKind::kNonBlocking)),
      allocator_(Allocator::create(driver_, make_config(options)).value()),
      blocks_(kSlots),
      last_freed_(kSlots) {
  driver_.set_lying(options.mutant != Mutant::kPendingCaptured);
  ledger_.is_peak_exact = !options.thread_cache;
  ledger_.may_wait_on_device = options.expandable;
  ledger_.devices.resize(static_cast<std::size_t>(options.device_count));
  make_streams();
  add_observers();
}

State::~State() {
  if (is_gate_held) static_cast<void>(allocator_->free_gate().unlock());
}

void State::fail(std::string what) {
  if (options_.mutant == Mutant::kNone) keep_failure(std::move(what));
}

void State::keep_failure(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

void State::make_streams() {
  streams_per_device_ =
      options_.made_streams == 0 ? 1 : 1 + options_.threads + options_.made_streams;
  for (DeviceId device = 0; device < options_.device_count; ++device) {
    for (int i = 0; i < streams_per_device_; ++i) {
      UserStream stream;
      stream.name.number = static_cast<int>(streams_.size());
      stream.ref.device = device;
      if (i >= 1 && i <= options_.threads) {
        stream.thread = i - 1;
        stream.handle = StreamHandle::kPerThread;
        stream.ref = call_as(static_cast<Caller>(i - 1), [&] {
          return sim_.get_per_thread_stream(device, sim::get_this_thread());
        });
      } else if (i > options_.threads) {
        stream.is_made = true;
        stream.kind = i % 2 == 0 ? sim::StreamKind::kNonBlocking : sim::StreamKind::kBlocking;
        stream.ref = sim_.create_stream(device, stream.kind);
        stream.handle = stream.ref.handle;
      }
      streams_.push_back(stream);
    }
  }
}

void State::replace_thread(int number) {
  team_.end(number);
  ++thread_generations_[static_cast<std::size_t>(number)];
  for (UserStream& stream : streams_) {
    if (stream.thread != number) continue;
    stream.ref = call_as(static_cast<Caller>(number), [&] {
      return sim_.get_per_thread_stream(stream.ref.device, sim::get_this_thread());
    });
  }
}

// Observers run with no lock held and may call anything: so they do.
void State::add_observers() {
  allocator_->callbacks().add_oom_observer([this](const OomReport& report) {
    const DeviceStats now = stats(report.device);
    if (static_cast<std::int64_t>(report.reserved_bytes) != now.reserved_bytes.all.current) {
      fail("the report of an out-of-memory names other reserved bytes than the statistics");
    }
  });
  allocator_->callbacks().add_free_memory_callback([this](DeviceId, Bytes) {
    if (offered_slot < 0) return false;
    std::optional<UserBlock>& place = block(offered_slot);
    if (!place || graphs_.is_pinned(*place)) return false;
    const Address address = place->address;
    end_block(place, offered_slot, false);
    if (!allocator_->free(address).is_ok()) fail("a free from a callback failed");
    return true;
  });
}

UserStream& State::stream(int number) {
  return streams_[static_cast<std::size_t>(index(number, static_cast<int>(streams_.size())))];
}

UserStream& State::stream_of(DeviceId device, int number) {
  return streams_[static_cast<std::size_t>(device * streams_per_device_ +
                                           index(number, streams_per_device_))];
}

UserStream* State::find(StreamName name) {
  UserStream& stream = streams_[static_cast<std::size_t>(name.number)];
  return stream.name == name ? &stream : nullptr;
}

Caller State::choose_caller(Caller wanted) const {
  if (wanted == Caller::kDriverCallback) return wanted;
  return is_gate_held || static_cast<int>(wanted) >= options_.threads ? Caller::kMain : wanted;
}

std::optional<Caller> State::choose_caller(const UserStream& stream, Caller wanted) const {
  if (!stream.thread) return choose_caller(wanted);
  if (*stream.thread == 0) return wanted == Caller::kDriverCallback ? wanted : Caller::kMain;
  if (is_gate_held) return std::nullopt;
  return static_cast<Caller>(*stream.thread);
}

std::uint64_t State::thread_life(Caller caller) const {
  const auto number = caller == Caller::kDriverCallback ? 0 : static_cast<std::size_t>(caller);
  return number + 8 * thread_generations_[number];
}

bool State::is_usable(const UserStream& stream) const {
  if (stream.capturing_thread) return false;
  if (stream.handle != StreamHandle::kLegacy) return true;
  return std::none_of(streams_.begin(), streams_.end(), [&stream](const UserStream& other) {
    return other.ref.device == stream.ref.device && other.capturing_thread &&
           other.kind == sim::StreamKind::kBlocking;
  });
}

void State::submit(UserStream& stream, sim::WorkTime time, sim::LifetimeId use) {
  if (!is_usable(stream)) return;
  ++stream.submissions;
  stream.has_endless_work |= time.kind == sim::WorkTime::Kind::kEndless;
  const std::span<const sim::LifetimeId> uses(&use, use == sim::LifetimeId::kNone ? 0 : 1);
  if (sim_.submit_work(stream.ref, time, uses) != DriverCode::kSuccess) {
    fail("the simulator refused work: a fault of this test");
  }
}

void State::order(UserStream& before, UserStream& after) {
  if (!is_usable(before) || !is_usable(after)) return;
  ++after.submissions;
  if (sim_.user_orders(before.ref, after.ref) != DriverCode::kSuccess) {
    fail("the simulator refused an order of streams: a fault of this test");
  }
}

void State::record(UserBlock& block, UserStream& on, Caller as) {
  if (options_.mutant != Mutant::kDroppedRecordStream) {
    const Status status =
        call_as(as, [&] { return allocator_->record_stream(block.address, on.handle); });
    if (!status.is_ok()) fail("record_stream failed: " + std::string(status.message()));
  }
  std::vector<StreamName>& recorded = block.recorded;
  const bool is_known = on.name == block.owner ||
                        std::find(recorded.begin(), recorded.end(), on.name) != recorded.end();
  if (!is_known) recorded.push_back(on.name);
}

// Who certainly still uses a block that is freed now, and what may: nobody of its own capture.
PendingBlock State::make_pending(const UserBlock& block) {
  PendingBlock pending{block.bytes, {}};
  std::vector<StreamName> users = block.recorded;
  std::erase(users, block.owner);
  if (block.capture != 0) users.push_back(block.owner);
  for (const StreamName name : users) {
    const UserStream* used = find(name);
    const bool is_inside =
        used != nullptr && block.capture != 0 && graphs_.find_unspoilt(*used) == block.capture;
    if (used != nullptr && !is_inside) pending.uses.push_back({name, used->submissions});
  }
  return pending;
}

void State::end_block(std::optional<UserBlock>& place, int slot, bool may_wait) {
  sim_.end_lifetime(place->lifetime);
  DeviceLedger& own = ledger_of(place->device);
  own.remove(place->bytes, place->requested_bytes);
  pools_.remove(*place);
  if (place->pool != kDefaultPool) touch_pools();
  if (may_wait || !place->recorded.empty() || place->capture != 0) {
    QUARRY_CHECK(options_.mutant != Mutant::kSuddenDeath || place->recorded.empty());
    tally.deferred_frees += place->recorded.empty() ? 0 : 1;
    own.pending.push_back(make_pending(*place));
  }
  graphs_.note_free(*place);
  last_freed_[static_cast<std::size_t>(index(slot, kSlots))] = place->address;
  touch(place->address);
  place.reset();
}

// --- Judging -----------------------------------------------------------------------------------

void State::check() {
  if (has_failed()) return;
  check_oracle();
  if (options_.mutant != Mutant::kNone) return;
  const auto is_running = [this](const PendingBlock::ForeignUse& use) {
    const UserStream* stream = find(use.stream);
    // Of other kinds of stream the end may move without the user's doing.
    if (stream == nullptr || stream->kind != sim::StreamKind::kNonBlocking) return false;
    return stream->submissions == use.submissions && !sim_.is_idle(stream->ref);
  };
  // Reports bring in what has become free, and others should do that, too.
  const bool are_pools_due = pools_.has_any() && (are_pools_touched_ || ++checks_ % 16 == 0);
  are_pools_touched_ = false;
  std::int64_t invalid_frees = 0;
  for (DeviceId device = 0; device < options_.device_count; ++device) {
    const DeviceStats now = stats(device);
    invalid_frees += now.invalid_frees;
    std::string difference = ledger_.compare(device, now, is_running);
    const SimDriver::Holdings held = sim_.get_holdings(device);
    const auto segments = static_cast<std::uint64_t>(now.segment.all.current);
    const auto reserved = static_cast<Bytes>(now.reserved_bytes.all.current);
    // Expandable memory keeps a little ready, for which the driver takes 2 MiB.
    const bool is_little = options_.expandable && held.physical_bytes == reserved + 2_MiB;
    const bool is_same = (held.physical_bytes == reserved || is_little) &&
                         (options_.expandable || held.plain_allocations == segments);
    // What the driver refused to take back is nobody's until it is asked again.
    const bool may_hold_more = options_.expandable && may_driver_hold_more;
    if (!is_same && !(may_hold_more && held.physical_bytes > reserved)) {
      difference = "the driver's holdings are not the allocator's segments";
    }
    if (difference.empty() && are_pools_due) difference = pools_.check(device);
    if (!difference.empty()) fail("device " + std::to_string(device) + ": " + difference);
  }
  if (invalid_frees != ledger_.invalid_frees) {
    fail("invalid_frees is " + std::to_string(invalid_frees) + ", should be " +
         std::to_string(ledger_.invalid_frees));
  }
  if (touched_ != 0) allocator_->validate_segment(touched_);
  touched_ = 0;
}

void State::check_oracle() {
  if (sim_.hazard_count() > 0) keep_failure("hazard: " + sim_.get_hazards().front().text);
  if (sim_.misuse_count() > 0) fail("misuse: " + sim_.get_misuses().front().text);
  for (const sim::LostCapture& lost : sim_.get_lost_captures()) {
    if (may_captures_be_lost) break;
    if (!lost.by_user) fail("a capture was lost by " + std::string(get_name(lost.entry)));
  }
}

// What is left when everything that can be given back has been: segments with blocks that are
// held, and whatever pools have that somebody holds.
Bytes State::calculate_kept_bytes(DeviceId device) {
  std::map<Address, Bytes> kept;
  Bytes bytes = pools_.has_any() ? pools_.calculate_held_pools_bytes(device) : 0;
  for (const std::optional<UserBlock>& block : blocks_) {
    if (!block || block->device != device) continue;
    const bool is_held_pools = block->pool != kDefaultPool && pools_.at(block->pool).use_count > 0;
    if (is_held_pools) continue;
    const auto info = allocator_->find_block(block->address);
    if (info.is_ok()) add_kept_memory(info.value(), kept);
  }
  sharing_.add_kept_of_device(device, kept);
  for (const auto& [address, size] : kept)
    bytes += size;
  return bytes;
}

void add_kept_memory(const BlockInfo& block, std::map<Address, Bytes>& kept) {
  if (!block.is_expandable) {
    kept[block.segment_address] = block.segment_bytes;
    return;
  }
  for (Address at = round_down(block.address, kExtentPage); at < block.address + block.bytes;
       at += kExtentPage)
    kept[at] = kExtentPage;
}

bool State::is_full(DeviceId device) {
  const auto memory = sim_.get_memory_info(device);
  return options_.expandable && memory.value.free_bytes < 2_MiB;
}

Bytes State::calculate_allowed_bytes(DeviceId device) {
  const Bytes limit = allocator_->get_limit(device).value();
  const double fraction = allocator_->get_memory_fraction(device).value();
  if (fraction >= 1.0) return limit;
  return std::min(limit,
                  static_cast<Bytes>(fraction * static_cast<double>(options_.physical_bytes)));
}

void State::check_quiet() {
  for (DeviceId device = 0; device < options_.device_count; ++device) {
    const DeviceStats now = stats(device);
    if (now.pending_bytes != 0) {
      fail("blocks stay pending with all work done: " + std::to_string(now.pending_bytes));
    }
    const Bytes held = calculate_kept_bytes(device);
    if (static_cast<Bytes>(now.reserved_bytes.all.current) != held && !is_full(device)) {
      fail("after empty_cache " + std::to_string(now.reserved_bytes.all.current) +
           " bytes are reserved, but blocks are held in " + std::to_string(held));
    }
  }
}

void State::release_pools(int odd) {
  for (int i = odd; i < pools_.count(); i += 2) {
    while (pools_.at(i).use_count > 0)
      ReleasePool{i}.perform(*this);
  }
}

void State::finish() {
  Quiesce{}.perform(*this);
  may_driver_hold_more &= are_faults_possible;
  check();
  graphs_.destroy_all();
  release_pools(0);  // with live blocks
  for (int slot = 0; slot < kSlots; ++slot)
    Free{slot}.perform(*this);
  release_pools(1);
  if (sharing_.has_pins()) Quiesce{}.perform(*this);
  sharing_.unpin_all();
  Quiesce{}.perform(*this);
  check();
  if (has_failed()) return;
  for (DeviceId device = 0; device < options_.device_count; ++device) {
    const bool is_any = !allocator_->get_pool_reports(device).value().empty();
    // A segment that the driver was told to refuse stays, and with it its pool.
    if (is_any && !are_faults_possible) fail("a released pool is left");
  }
  allocator_->validate();
  allocator_.reset();
  for (DeviceId device = 0; device < options_.device_count; ++device) {
    const SimDriver::Holdings held = sim_.get_holdings(device);
    const std::uint64_t lost_events = are_faults_possible ? 1 : 0;  // not destroyed on purpose
    // Nobody asks again after the last call.
    const bool may_leave = options_.expandable && are_faults_possible;
    const bool is_memory_left = held.plain_allocations + held.physical_bytes + held.extents +
                                    held.mappings + held.reservations !=
                                0;
    if ((is_memory_left && !may_leave) || held.events > lost_events) {
      fail("the allocator ended with " + std::to_string(held.plain_allocations) + " segments, " +
           std::to_string(held.physical_bytes) + " bytes, " + std::to_string(held.extents) +
           " extents, " + std::to_string(held.reservations) + " reservations and " +
           std::to_string(held.events) + " events not given back");
    }
  }
  check_oracle();
}

}  // namespace quarry::model
