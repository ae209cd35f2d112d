// SPDX-License-Identifier: Apache-2.0
// The trials in which the mappings themselves come and go under the work, as recycling does it: an
// extent is mapped at its next address at once, and its old mapping goes when the work that used
// it has ended.
#include <deque>

#include "bench/driver_facts/alias_coherence.hpp"
#include "bench/driver_facts/gpu_work.hpp"

namespace quarry::facts {
namespace {

constexpr unsigned kSlots = 8;    // addresses that the extents move through
constexpr unsigned kExtents = 2;  // so that an address meets another extent each time

// Goes in front of each write, so that the host is ahead and maps while the device works.
constexpr std::uint64_t kLeadNs = 200'000;

// A mapping that may go when its event has completed.
struct Retiring {
  unsigned slot;
  std::unique_ptr<OwnEvent> passed;
};

class Recycling {
 public:
  explicit Recycling(AliasLab& lab) : lab_(lab), range_(kSlots * lab.bytes()) {
    for (unsigned slot = 0; slot < kSlots; ++slot) {
      views_[slot] = make_view(range_.address() + slot * lab.bytes(), lab.bytes());
      if (slot >= kExtents) vacant_.push_back(slot);
    }
    for (unsigned i = 0; i < kExtents; ++i) {
      extents_.emplace_back(lab.bytes());
      map_extent(views_[i].address, extents_.back());
      slots_[i] = i;
    }
  }

  ~Recycling() {
    static_cast<void>(cu().stream_synchronize(lab_.stream()));
    for (unsigned slot : slots_)
      static_cast<void>(cu().mem_unmap(views_[slot].address, lab_.bytes()));
    for (const Retiring& retiring : retiring_)
      static_cast<void>(cu().mem_unmap(views_[retiring.slot].address, lab_.bytes()));
  }

  // Writes where the extent is, moves it, reads where it went.
  void run_round(unsigned round, bool is_programmatic) {
    const unsigned which = round % kExtents;
    const LaunchPlan plan{lab_.stream(), is_programmatic};
    const std::uint32_t value = 5 + round * 0x9e3779b1u;
    const unsigned from = slots_[which];
    require(submit_spin(lab_.stream(), kLeadNs), "spin");
    require(launch_write(Way::kPlain, views_[from], value, plan), "write");
    const unsigned to = take_vacant_slot();
    map_extent(views_[to].address, extents_[which]);
    slots_[which] = to;
    retiring_.push_back({from, std::make_unique<OwnEvent>()});
    require(launch_read(Way::kPlain, views_[to], value, 0, lab_.counts(), plan), "read");
    require(cu().event_record(retiring_.back().passed->get(), lab_.stream()), "cuEventRecord");
  }

 private:
  // Unmaps what has passed; waits for the oldest only if no slot is vacant.
  unsigned take_vacant_slot() {
    while (!retiring_.empty()) {
      const CUevent oldest = retiring_.front().passed->get();
      if (cu().event_query(oldest) != CUDA_SUCCESS) {
        if (!vacant_.empty()) break;
        require(cu().event_synchronize(oldest), "cuEventSynchronize");
      }
      unmap_extent(views_[retiring_.front().slot].address, lab_.bytes());
      vacant_.push_back(retiring_.front().slot);
      retiring_.pop_front();
    }
    const unsigned slot = vacant_.front();
    vacant_.pop_front();
    return slot;
  }

  AliasLab& lab_;
  AddressRange range_;
  View views_[kSlots];
  std::deque<unsigned> vacant_;
  std::deque<Retiring> retiring_;
  std::vector<Extent> extents_;
  unsigned slots_[kExtents]{};  // where each extent is
};

// The same work without any mapping: for its time, and as the control.
std::uint64_t run_standing(AliasLab& lab, unsigned rounds) {
  const LaunchPlan plan{lab.stream(), true};
  for (unsigned round = 0; round < rounds; ++round) {
    const std::uint32_t value = 5 + round * 0x9e3779b1u;
    require(submit_spin(lab.stream(), kLeadNs), "spin");
    require(launch_write(Way::kPlain, lab.old_view(0), value, plan), "write");
    require(launch_read(Way::kPlain, lab.old_view(0), value, 0, lab.counts(), plan), "read");
    order_streams(lab.stream(), lab.stream());
  }
  return rounds * lab.words();
}

std::uint64_t run_recycling(AliasLab& lab, unsigned rounds, bool is_programmatic) {
  if (!lab.has_alias()) return run_standing(lab, rounds);
  Recycling recycling(lab);
  for (unsigned round = 0; round < rounds; ++round)
    recycling.run_round(round, is_programmatic);
  return rounds * lab.words();
}

// A third mapping appears and goes while kernels use the other two.
std::uint64_t run_third_mapping(AliasLab& lab, unsigned rounds) {
  if (!lab.has_alias()) return run_standing(lab, rounds);
  const LaunchPlan plan{lab.stream(), false};
  const Extent extent(lab.bytes());
  const AddressRange first(lab.bytes());
  const AddressRange second(lab.bytes());
  const View old_view = make_view(first.address(), lab.bytes());
  const View new_view = make_view(second.address(), lab.bytes());
  map_extent(first.address(), extent);
  for (unsigned round = 0; round < rounds; ++round) {
    const std::uint32_t value = 3 + round * 0x9e3779b1u;
    require(submit_spin(lab.stream(), kLeadNs), "spin");
    require(launch_write(Way::kPlain, old_view, value, plan), "write");
    map_extent(second.address(), extent);
    require(launch_read(Way::kPlain, new_view, value, 0, lab.counts(), plan), "read");
    // Kernels still read through the first mapping while the second one goes, and the reader of
    // the second has ended by then.
    require(cu().stream_synchronize(lab.stream()), "cuStreamSynchronize");
    require(launch_read(Way::kPlain, old_view, value, 0, lab.counts(), plan), "read");
    unmap_extent(second.address(), lab.bytes());
  }
  require(cu().stream_synchronize(lab.stream()), "cuStreamSynchronize");
  unmap_extent(first.address(), lab.bytes());
  return 2ull * rounds * lab.words();
}

}  // namespace

std::vector<AliasTrial> make_moving_trials() {
  std::vector<AliasTrial> trials;
  trials.push_back({"MappedWhileAKernelWritesUnmappedWhileAnotherReads",
                    "the second mapping is made under the writer and goes under a reader of the "
                    "first",
                    true, run_third_mapping});
  trials.push_back(
      {"Recycling",
       "write, map at the next address, read there, unmap lazily; two extents over "
       "eight addresses",
       true, [](AliasLab& lab, unsigned rounds) { return run_recycling(lab, rounds, false); }});
  trials.push_back(
      {"RecyclingWithDependentLaunch", "the same with dependent launches", true,
       [](AliasLab& lab, unsigned rounds) { return run_recycling(lab, rounds, true); }});
  trials.push_back(
      {"NoRecycling", "the same work at one address, for its time", true, run_standing});
  return trials;
}

}  // namespace quarry::facts
