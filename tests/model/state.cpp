// SPDX-License-Identifier: Apache-2.0
#include "tests/model/state.hpp"

#include <algorithm>
#include <set>

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
    case Mutant::kLostFence:
      return Lie::kQueryAlwaysPassed;
    case Mutant::kDroppedRecord:
      return Lie::kRecordDropped;
    case Mutant::kRecordElsewhere:
      return Lie::kRecordOnIdleStream;
    default:
      return Lie::kNone;
  }
}

Config make_config(const CaseOptions& options) {
  Config config;
  config.thread_cache = options.thread_cache;
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
  ledger_.is_peak_exact = !options.thread_cache;
  ledger_.devices.resize(static_cast<std::size_t>(options.device_count));
  make_streams();
  add_observers();
}

State::~State() {
  if (is_gate_held) static_cast<void>(allocator_->free_gate().unlock());
}

void State::fail(std::string what) {
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
    if (!place) return false;
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

void State::end_block(std::optional<UserBlock>& place, int slot, bool may_wait) {
  sim_.end_lifetime(place->lifetime);
  DeviceLedger& own = ledger_.devices[static_cast<std::size_t>(place->device)];
  own.remove(place->bytes, place->requested_bytes);
  if (may_wait || !place->recorded.empty()) {
    QUARRY_CHECK(options_.mutant != Mutant::kSuddenDeath || place->recorded.empty());
    tally.deferred_frees += place->recorded.empty() ? 0 : 1;
    PendingBlock pending{place->bytes, {}};
    for (const StreamName name : place->recorded) {
      if (const UserStream* used = find(name); used != nullptr && name != place->owner) {
        pending.uses.push_back({name, used->submissions});
      }
    }
    own.pending.push_back(std::move(pending));
  }
  last_freed_[static_cast<std::size_t>(index(slot, kSlots))] = place->address;
  touch(place->address);
  place.reset();
}

// --- Judging -----------------------------------------------------------------------------------

void State::check() {
  if (has_failed()) return;
  check_oracle();
  if (options_.mutant != Mutant::kNone)
    return;  // the oracle's to catch, without the ledger's help
  const auto is_running = [this](const PendingBlock::ForeignUse& use) {
    const UserStream* stream = find(use.stream);
    // Of other kinds of stream the end may move without the user's doing.
    if (stream == nullptr || stream->kind != sim::StreamKind::kNonBlocking) return false;
    return stream->submissions == use.submissions && !sim_.is_idle(stream->ref);
  };
  std::int64_t invalid_frees = 0;
  for (DeviceId device = 0; device < options_.device_count; ++device) {
    const DeviceStats now = stats(device);
    invalid_frees += now.invalid_frees;
    std::string difference = ledger_.compare(device, now, is_running);
    const SimDriver::Holdings held = sim_.get_holdings(device);
    if (held.plain_allocations != static_cast<std::uint64_t>(now.segment.all.current) ||
        held.physical_bytes != static_cast<Bytes>(now.reserved_bytes.all.current)) {
      difference = "the driver's holdings are not the allocator's segments";
    }
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
  if (sim_.hazard_count() > 0) fail("hazard: " + sim_.get_hazards().front().text);
  if (sim_.misuse_count() > 0) fail("misuse: " + sim_.get_misuses().front().text);
  for (const sim::LostCapture& lost : sim_.get_lost_captures()) {
    if (may_captures_be_lost) break;
    fail(std::string("a capture was lost by ") +
         (lost.by_user ? "this test" : std::string(get_name(lost.entry))));
  }
}

Bytes State::calculate_held_segment_bytes(DeviceId device) const {
  std::set<Address> seen;
  Bytes bytes = 0;
  for (const std::optional<UserBlock>& block : blocks_) {
    if (!block || block->device != device) continue;
    const auto info = allocator_->find_block(block->address);
    if (info.is_ok() && seen.insert(info.value().segment_address).second) {
      bytes += info.value().segment_bytes;
    }
  }
  return bytes;
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
    const Bytes held = calculate_held_segment_bytes(device);
    if (static_cast<Bytes>(now.reserved_bytes.all.current) != held) {
      fail("after empty_cache " + std::to_string(now.reserved_bytes.all.current) +
           " bytes are reserved, but blocks are held in " + std::to_string(held));
    }
  }
}

void State::finish() {
  Quiesce{}.perform(*this);
  check();
  for (int slot = 0; slot < kSlots; ++slot)
    Free{slot}.perform(*this);
  Quiesce{}.perform(*this);
  check();
  if (has_failed()) return;
  allocator_->validate();
  allocator_.reset();
  for (DeviceId device = 0; device < options_.device_count; ++device) {
    const SimDriver::Holdings held = sim_.get_holdings(device);
    const std::uint64_t lost_events = are_faults_possible ? 1 : 0;  // not destroyed on purpose
    if (held.plain_allocations != 0 || held.physical_bytes != 0 || held.events > lost_events) {
      fail("the allocator ended with " + std::to_string(held.plain_allocations) +
           " segments and " + std::to_string(held.events) + " events not given back");
    }
  }
  check_oracle();
}

}  // namespace quarry::model
