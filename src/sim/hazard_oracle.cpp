// SPDX-License-Identifier: Apache-2.0
#include "sim/hazard_oracle.hpp"

#include <algorithm>

#include "sim/hazard_report.hpp"

namespace quarry::sim {
namespace {

constexpr std::size_t kHazardsKept = 1000;

}  // namespace

LifetimeId HazardOracle::begin(DeviceId device, MemoryRange range, Actor actor) {
  const LifetimeSlot slot = make(device, range, actor, true);
  attach(slot, actor, HazardKind::kNotBacked);
  return id_of(slot);
}

void HazardOracle::end(LifetimeId id) {
  Lifetime* lifetime = find(id);
  if (lifetime == nullptr || !lifetime->is_live) return;
  lifetime->is_live = false;
  if (lifetime->span_count == 0) recycle(static_cast<LifetimeSlot>(lifetime - lifetimes_.data()));
}

void HazardOracle::use(LifetimeId id, Actor actor) {
  Lifetime* lifetime = find(id);
  const Use action = last_action(actor);
  if (lifetime == nullptr) {
    report(HazardKind::kUseAfterEnd, {}, describe_use(action, id, {}));
    return;
  }
  const auto slot = static_cast<LifetimeSlot>(lifetime - lifetimes_.data());
  if (!lifetime->is_live) {
    report(HazardKind::kUseAfterEnd, describe_lifetime(slot),
           describe_use(action, id, lifetime->range));
  }
  if (lifetime->is_detached) attach(slot, actor, HazardKind::kAccessUnmapped);
  if (timelines_.stream(actor.timeline).device != lifetime->device) check_access(slot, actor);
  add_use(lifetimes_[slot].uses, action);
}

void HazardOracle::use(MemoryRange range, Actor actor) {
  if (!memory_.translate(range, pieces_)) {
    report(HazardKind::kAccessUnmapped, {}, describe_use(last_action(actor), {}, range));
  }
  const DeviceId device = timelines_.stream(actor.timeline).device;
  for (const PhysicalPiece& piece : pieces_) {
    if (!is_accessible(piece, device)) {
      report(HazardKind::kAccessUnmapped, {},
             describe_use(last_action(actor), {}, {piece.address, piece.bytes}));
    }
    use_piece(piece, actor);
  }
}

void HazardOracle::use_captured(const GraphUse& use, CaptureNumber capture, Actor actor) {
  if (!memory_.translate(use.range, pieces_)) {
    report(HazardKind::kAccessUnmapped, {},
           describe_use(last_action(actor), use.lifetime, use.range));
  }
  for (const PhysicalPiece& piece : pieces_)
    use_captured_piece(piece, use, capture, actor);
}

MemoryRange HazardOracle::find_range(LifetimeId id) const {
  const Lifetime* lifetime = const_cast<HazardOracle*>(this)->find(id);
  return lifetime != nullptr ? lifetime->range : MemoryRange{};
}

void HazardOracle::note_unmap(Address address, const Mapping& mapping, PhysicalId physical) {
  const MemoryRange range{address, mapping.bytes};
  MemoryUse unmapping;
  unmapping.range = range;
  unmapping.time_ns = clock_.now_ns();
  check_registrations(range);
  const auto check = [&](const std::vector<Use>& uses, LifetimeId id, MemoryRange used) {
    for (const Use& use : uses) {
      if (use.is_handover || timelines_.host_saw(use.timeline, use.sequence)) continue;
      report(HazardKind::kUnmappedUnderUse, describe_use(use, id, used), unmapping);
    }
  };
  if (const auto kept = mapping_uses_.find(address); kept != mapping_uses_.end()) {
    check(kept->second, LifetimeId::kNone, range);
    mapping_uses_.erase(kept);
  }
  const auto history = histories_.find(physical);
  if (history == histories_.end()) return;
  auto& spans = history->second.spans();
  for (auto span = spans.begin(); span != spans.end();) {
    if (span->second.address - address >= mapping.bytes) {  // seen through another mapping
      ++span;
      continue;
    }
    const LifetimeSlot slot = span->second.slot;
    span = spans.erase(span);
    check(lifetimes_[slot].uses, id_of(slot), lifetimes_[slot].range);
    lifetimes_[slot].is_detached = true;
    change_spans(slot, -1);
  }
}

void HazardOracle::note_plain_free(PhysicalId physical, MemoryRange range) {
  MemoryUse freeing;
  freeing.range = range;
  freeing.time_ns = clock_.now_ns();
  check_registrations(range);
  drop_history(physical, [&](LifetimeSlot slot) {
    const Lifetime& lifetime = lifetimes_[slot];
    if (lifetime.is_live) {
      report(HazardKind::kFreedWhileLive, describe_lifetime(slot), freeing);
    }
    // The wait covers the memory's own device; another may use it, too.
    for (const Use& use : lifetime.uses) {
      if (use.is_handover || timelines_.host_saw(use.timeline, use.sequence)) continue;
      report(HazardKind::kUnmappedUnderUse, describe_use(use, id_of(slot), lifetime.range),
             freeing);
    }
  });
}

bool HazardOracle::add_registration(RegistrationId id, MemoryRange range) {
  if (!memory_.translate(range, pieces_)) return false;
  registrations_.emplace(id, range);
  return true;
}

// The memory behind these addresses goes.
void HazardOracle::check_registrations(MemoryRange leaving) {
  for (const auto& [id, range] : registrations_) {
    const bool is_apart = range.address >= leaving.address + leaving.bytes ||
                          leaving.address >= range.address + range.bytes;
    if (is_apart) continue;
    MemoryUse registered;
    registered.range = range;
    MemoryUse by;
    by.range = leaving;
    by.time_ns = clock_.now_ns();
    report(HazardKind::kRegisteredMemory, registered, by);
  }
}

void HazardOracle::note_physical_free(PhysicalId physical) {
  drop_history(physical, [](LifetimeSlot) {});
}

template <class Visit>
void HazardOracle::drop_history(PhysicalId physical, Visit visit) {
  const auto history = histories_.find(physical);
  if (history == histories_.end()) return;
  for (const auto& [offset, span] : history->second.spans()) {
    visit(span.slot);
    lifetimes_[span.slot].is_detached = true;
    change_spans(span.slot, -1);
  }
  histories_.erase(history);
}

void HazardOracle::clear_hazards() {
  hazards_.clear();
  hazard_count_ = 0;
}

LifetimeSlot HazardOracle::make(DeviceId device, MemoryRange range, Actor owner, bool is_live) {
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<LifetimeSlot>(lifetimes_.size()));
    lifetimes_.emplace_back();
  }
  const LifetimeSlot slot = free_slots_.back();
  free_slots_.pop_back();
  Lifetime& lifetime = lifetimes_[slot];
  lifetime.is_live = is_live;
  lifetime.is_detached = false;
  lifetime.device = device;
  lifetime.range = range;
  lifetime.owner = owner;
  lifetime.uses.clear();
  return slot;
}

void HazardOracle::change_spans(LifetimeSlot slot, int change) {
  Lifetime& lifetime = lifetimes_[slot];
  lifetime.span_count = static_cast<std::uint32_t>(static_cast<int>(lifetime.span_count) + change);
  if (lifetime.span_count == 0 && !lifetime.is_live) recycle(slot);
}

void HazardOracle::recycle(LifetimeSlot slot) {
  ++lifetimes_[slot].generation;
  free_slots_.push_back(slot);
}

HazardOracle::Lifetime* HazardOracle::find(LifetimeId id) {
  const auto value = static_cast<std::uint64_t>(id);
  const std::uint64_t slot = (value & 0xffff'ffffu) - 1;
  if (slot >= lifetimes_.size()) return nullptr;
  Lifetime& lifetime = lifetimes_[slot];
  return lifetime.generation == value >> 32 ? &lifetime : nullptr;
}

LifetimeId HazardOracle::id_of(LifetimeSlot slot) const {
  return static_cast<LifetimeId>((std::uint64_t{lifetimes_[slot].generation} << 32) | (slot + 1));
}

void HazardOracle::attach(LifetimeSlot slot, Actor actor, HazardKind if_not_backed) {
  const MemoryRange range = lifetimes_[slot].range;
  const DeviceId device = lifetimes_[slot].device;
  lifetimes_[slot].is_detached = false;
  bool is_backed = memory_.translate(range, pieces_);
  bool has_unseen_uses = false;
  for (const PhysicalPiece& piece : pieces_) {
    is_backed = is_backed && piece.device == device && is_accessible(piece, device);
    has_unseen_uses |= replace(piece, slot, actor);
  }
  if (!is_backed) {
    report(if_not_backed, {}, describe_use(last_action(actor), id_of(slot), range));
    lifetimes_[slot].is_detached = true;
  }
  if (!has_unseen_uses) return;
  Use handover = last_action(actor);
  handover.is_handover = true;
  add_use(lifetimes_[slot].uses, handover);
}

bool HazardOracle::replace(const PhysicalPiece& piece, LifetimeSlot slot, Actor actor) {
  PhysicalHistory& history = histories_[piece.physical];
  bool has_unseen_uses = false;
  const Bytes end = piece.offset + piece.bytes;
  for (auto span = history.find_first(piece.offset); span != history.end() && span->first < end;
       ++span) {
    if (span->second.slot == slot) continue;
    has_unseen_uses |= check_handover(span->second.slot, slot, actor);
    if (piece.mapping != 0) keep_uses_of_mapping(span->second);
  }
  const auto add = [this](LifetimeSlot changed, int n) { change_spans(changed, n); };
  history.replace(piece.offset, piece.bytes, piece.address, slot, add);
  history.drop_neighbours(
      piece.offset, [this](LifetimeSlot old) { return is_done(old); }, add);
  return has_unseen_uses;
}

bool HazardOracle::is_done(LifetimeSlot slot) const {
  const Lifetime& lifetime = lifetimes_[slot];
  return !lifetime.is_live &&
         std::all_of(lifetime.uses.begin(), lifetime.uses.end(), [this](const Use& use) {
           return timelines_.host_saw(use.timeline, use.sequence);
         });
}

bool HazardOracle::check_handover(LifetimeSlot before, LifetimeSlot next, Actor actor) {
  const Lifetime& old = lifetimes_[before];
  const MemoryRange range = lifetimes_[next].range;
  if (old.is_live) {
    report(HazardKind::kHandedOutTwice, describe_lifetime(before),
           describe_use(last_action(actor), id_of(next), range));
  }
  bool has_unseen_uses = false;
  for (const Use& use : old.uses) {
    if (timelines_.host_saw(use.timeline, use.sequence)) continue;
    has_unseen_uses = true;
    if (timelines_.covers(actor.timeline, use.timeline, use.sequence)) continue;
    report(HazardKind::kUnordered, describe_use(use, id_of(before), old.range),
           describe_use(last_action(actor), id_of(next), range));
  }
  return has_unseen_uses;
}

void HazardOracle::check_access(LifetimeSlot slot, Actor actor) {
  const DeviceId device = timelines_.stream(actor.timeline).device;
  const bool is_backed = memory_.translate(lifetimes_[slot].range, pieces_);
  const bool can_access = std::all_of(
      pieces_.begin(), pieces_.end(),
      [this, device](const PhysicalPiece& piece) { return is_accessible(piece, device); });
  if (is_backed && can_access) return;
  report(HazardKind::kAccessUnmapped, {},
         describe_use(last_action(actor), id_of(slot), lifetimes_[slot].range));
}

void HazardOracle::add_use(std::vector<Use>& uses, Use use) const {
  for (Use& known : uses) {
    if (known.timeline != use.timeline) continue;
    if (use.is_handover && !known.is_handover) return;
    known = use;
    return;
  }
  uses.push_back(use);
}

HazardOracle::Use HazardOracle::last_action(Actor actor) const {
  return {actor.timeline, timelines_.sequence(actor.timeline), clock_.now_ns(), false};
}

void HazardOracle::keep_uses_of_mapping(const HistorySpan& span) {
  std::vector<Use>* kept = nullptr;
  for (const Use& use : lifetimes_[span.slot].uses) {
    if (use.is_handover || timelines_.host_saw(use.timeline, use.sequence)) continue;
    if (kept == nullptr) kept = &mapping_uses_[memory_.find_mapping(span.address)];
    add_use(*kept, use);
  }
}

template <class Visit>
void HazardOracle::for_each_span(const PhysicalPiece& piece, Visit visit) {
  PhysicalHistory& history = histories_[piece.physical];
  const Bytes end = piece.offset + piece.bytes;
  for (auto span = history.find_first(piece.offset); span != history.end() && span->first < end;
       ++span) {
    visit(span->first, span->second);
  }
}

void HazardOracle::use_piece(const PhysicalPiece& piece, Actor actor) {
  // Memory that nobody was given: an ended lifetime of its own remembers the use.
  std::vector<MemoryRange> gaps;
  Bytes at = piece.offset;
  for_each_span(piece, [&](Bytes begin, const HistorySpan& span) {
    if (begin > at) gaps.push_back({piece.address + (at - piece.offset), begin - at});
    const bool is_alias = span.address - piece.address != begin - piece.offset;
    if (piece.mapping != 0 && is_alias) add_use(mapping_uses_[piece.mapping], last_action(actor));
    at = span.end;
    add_use(lifetimes_[span.slot].uses, last_action(actor));
  });
  const Bytes end = piece.offset + piece.bytes;
  if (at < end) gaps.push_back({piece.address + (at - piece.offset), end - at});
  for (const MemoryRange& gap : gaps) {
    const LifetimeSlot slot = make(piece.device, gap, actor, false);
    add_use(lifetimes_[slot].uses, last_action(actor));
    const Bytes offset = piece.offset + (gap.address - piece.address);
    histories_[piece.physical].replace(
        offset, gap.bytes, gap.address, slot,
        [this](LifetimeSlot changed, int n) { change_spans(changed, n); });
  }
}

void HazardOracle::use_captured_piece(const PhysicalPiece& piece, const GraphUse& use,
                                      CaptureNumber capture, Actor actor) {
  for_each_span(piece, [&](Bytes, const HistorySpan& span) {
    const Lifetime& now = lifetimes_[span.slot];
    const bool is_own = now.owner.capture == capture || id_of(span.slot) == use.lifetime;
    if (is_own) return;
    const MemoryUse later = describe_use(last_action(actor), use.lifetime, use.range);
    if (now.is_live && now.owner.capture == 0) {
      report(HazardKind::kGraphMemory, describe_lifetime(span.slot), later);
      return;
    }
    for (const Use& earlier : now.uses) {
      if (timelines_.covers(actor.timeline, earlier.timeline, earlier.sequence)) continue;
      report(HazardKind::kUnordered, describe_use(earlier, id_of(span.slot), now.range), later);
    }
  });
  use_piece(piece, actor);
}

MemoryUse HazardOracle::describe_use(const Use& use, LifetimeId lifetime,
                                     MemoryRange range) const {
  return {timelines_.stream(use.timeline),
          timelines_.stream_id(use.timeline),
          use.sequence,
          lifetime,
          range,
          use.time_ns};
}

MemoryUse HazardOracle::describe_lifetime(LifetimeSlot slot) const {
  const Lifetime& lifetime = lifetimes_[slot];
  const Use none{lifetime.owner.timeline, 0, 0, false};
  const auto last =
      std::max_element(lifetime.uses.begin(), lifetime.uses.end(),
                       [](const Use& a, const Use& b) { return a.time_ns < b.time_ns; });
  return describe_use(last == lifetime.uses.end() ? none : *last, id_of(slot), lifetime.range);
}

void HazardOracle::report(HazardKind kind, const MemoryUse& earlier, const MemoryUse& later) {
  ++hazard_count_;
  if (hazards_.size() >= kHazardsKept) return;
  hazards_.push_back({kind, earlier, later, format_hazard(kind, earlier, later)});
}

}  // namespace quarry::sim
