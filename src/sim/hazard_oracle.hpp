// SPDX-License-Identifier: Apache-2.0
// The oracle: is memory handed out while an earlier use of the same physical bytes may still run?
// It knows what the allocator does not: every use, told or not, and through which address it was
// made. Order is that of timeline.hpp. It reports and counts; it never stops anything.
//
// A lifetime is memory in the hands of a user. Each physical byte remembers the last lifetime that
// covered it; a lifetime remembers, per timeline, the last use. Replacing a lifetime by the next
// is the moment of truth: each of those uses must be ordered before new work of the new user's
// stream. Physical bytes and not addresses, so an extent seen through two addresses is one thing.
#pragma once

#include <unordered_map>
#include <vector>

#include "sim/memory_map.hpp"
#include "sim/physical_history.hpp"
#include "sim/sim_capture.hpp"
#include "sim/sim_types.hpp"
#include "sim/timeline.hpp"
#include "sim/virtual_clock.hpp"

namespace quarry::sim {

// Where a lifetime or a use happens.
struct Actor {
  TimelineIndex timeline{};
  CaptureNumber capture = 0;  // 0: not captured
};

class HazardOracle {
 public:
  HazardOracle(const MemoryMap& memory, const Timelines& timelines, const VirtualClock& clock)
      : memory_(memory), timelines_(timelines), clock_(clock) {}

  LifetimeId begin(DeviceId device, MemoryRange range, Actor actor);
  void end(LifetimeId id);
  // The actor's last action touches the memory.
  void use(LifetimeId id, Actor actor);
  void use(MemoryRange range, Actor actor);
  // The same by a launched graph, of what was captured as `use`.
  void use_captured(const GraphUse& use, CaptureNumber capture, Actor actor);
  // The range of a lifetime; empty for one that is gone.
  MemoryRange find_range(LifetimeId id) const;

  // Called before the mapping goes: nothing may use memory through it, for all the host knows.
  void note_unmap(Address address, const Mapping& mapping, PhysicalId physical);
  // Called after the wait that plain free implies.
  void note_plain_free(PhysicalId physical, MemoryRange range);
  // The physical memory is gone, with no question asked.
  void note_physical_free(PhysicalId physical);

  // False, with nothing done, if a part of the range has no memory.
  bool add_registration(RegistrationId id, MemoryRange range);
  void drop_registration(RegistrationId id) { registrations_.erase(id); }

  std::uint64_t hazard_count() const noexcept { return hazard_count_; }
  const std::vector<Hazard>& hazards() const noexcept { return hazards_; }
  void clear_hazards();

 private:
  struct Use {
    TimelineIndex timeline{};
    std::uint64_t sequence = 0;
    std::uint64_t time_ns = 0;
    // Not a use of its own: "ordered after the uses of the lifetimes before this one".
    bool is_handover = false;
  };
  struct Lifetime {
    std::uint32_t generation = 1;
    bool is_live = false;
    bool is_detached = false;      // its memory was unmapped: look again at the next use
    std::uint32_t span_count = 0;  // in all histories; the slot is free at 0 if not live
    DeviceId device = 0;
    MemoryRange range;
    Actor owner;
    std::vector<Use> uses;  // the last of each timeline
  };

  LifetimeSlot make(DeviceId device, MemoryRange range, Actor owner, bool is_live);
  void change_spans(LifetimeSlot slot, int change);
  void recycle(LifetimeSlot slot);
  Lifetime* find(LifetimeId id);
  LifetimeId id_of(LifetimeSlot slot) const;

  void attach(LifetimeSlot slot, Actor actor, HazardKind if_not_backed);
  // True if a use of what the piece held before is not known to the host to be done.
  bool replace(const PhysicalPiece& piece, LifetimeSlot slot, Actor actor);
  // The lifetime has ended, and the host knows that its uses have: it can be in no hazard.
  bool is_done(LifetimeSlot slot) const;
  bool check_handover(LifetimeSlot before, LifetimeSlot next, Actor actor);
  bool is_accessible(const PhysicalPiece& piece, DeviceId device) const {
    return ((piece.access_mask >> device) & 1) != 0;
  }
  void check_access(LifetimeSlot slot, Actor actor);
  void add_use(std::vector<Use>& uses, Use use) const;
  Use last_action(Actor actor) const;
  // Moves the uses of a lifetime that is being replaced to the mapping it was made through.
  void keep_uses_of_mapping(const HistorySpan& span);
  void use_piece(const PhysicalPiece& piece, Actor actor);
  void use_captured_piece(const PhysicalPiece& piece, const GraphUse& use, CaptureNumber capture,
                          Actor actor);
  // Detaches every lifetime from the physical memory.
  template <class Visit>
  void drop_history(PhysicalId physical, Visit visit);
  template <class Visit>
  void for_each_span(const PhysicalPiece& piece, Visit visit);

  void check_registrations(MemoryRange leaving);
  MemoryUse describe_use(const Use& use, LifetimeId lifetime, MemoryRange range) const;
  MemoryUse describe_lifetime(LifetimeSlot slot) const;
  void report(HazardKind kind, const MemoryUse& earlier, const MemoryUse& later);

  const MemoryMap& memory_;
  const Timelines& timelines_;
  const VirtualClock& clock_;
  std::vector<Lifetime> lifetimes_;
  std::vector<LifetimeSlot> free_slots_;
  std::unordered_map<PhysicalId, PhysicalHistory> histories_;
  // By a mapping's first address: uses through it by lifetimes that are replaced since.
  std::unordered_map<Address, std::vector<Use>> mapping_uses_;
  std::unordered_map<RegistrationId, MemoryRange> registrations_;
  std::vector<PhysicalPiece> pieces_;  // scratch of one call
  std::vector<Hazard> hazards_;
  std::uint64_t hazard_count_ = 0;
};

}  // namespace quarry::sim
