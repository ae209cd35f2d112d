// SPDX-License-Identifier: Apache-2.0
#include "tests/model/generator.hpp"

#include <algorithm>
#include <array>

#include "core/size_policy.hpp"
#include "tests/model/graph_generator.hpp"
#include "tests/model/state.hpp"

namespace quarry::model {
namespace {

class Generator {
 public:
  Generator(Entropy& entropy, const CaseOptions& options, Repertoire repertoire)
      : entropy_(entropy),
        options_(options),
        repertoire_(repertoire),
        graphs_(entropy, repertoire),
        other_callers_percent_(entropy.pick({15u, 40u, 60u})),
        habit_percent_(entropy.pick({30u, 30u, 80u})) {
    for (Habit& habit : habits_) {
      habit.stream = entropy_.pick({0, 0, 1, 2, 3, 4, 5});
      habit.bytes =
          entropy_.pick({Bytes{1}, Bytes{512}, Bytes{4000}, 40_KiB, 1_MiB, 3_MiB, 12_MiB});
    }
  }

  Operation next();

 private:
  struct Habit {
    int stream = 0;
    Bytes bytes = 0;
  };

  Operation make_block_operation();
  Operation make_sharing_operation(int slot);
  Operation make_stream_operation();
  Operation make_capture_operation();
  Operation make_setting();
  Operation make_allocate();
  Operation make_configure();
  Bytes make_size();
  Bytes make_extreme_size();
  Bytes make_alignment();
  Caller make_caller();
  int any_stream() { return static_cast<int>(entropy_.below(64)); }
  int any_device() {
    return static_cast<int>(entropy_.below(static_cast<std::uint64_t>(options_.device_count)));
  }
  // A slot that is probably empty, or probably not.
  int find_slot(bool is_taken);
  std::uint64_t make_work_ns() { return entropy_.chance(50) ? 0 : entropy_.below(100'000); }

  Entropy& entropy_;
  const CaseOptions options_;
  const Repertoire repertoire_;
  GraphGenerator graphs_;
  const unsigned other_callers_percent_;
  const unsigned habit_percent_;  // of allocations
  std::array<Habit, 4> habits_{};
  std::array<bool, kSlots> is_taken_{};
  std::array<Caller, kSlots> callers_{};  // who was to allocate what is there
  std::vector<int> begun_;                // streams of captures that have not been ended
};

int Generator::find_slot(bool is_taken) {
  const auto start = static_cast<std::size_t>(entropy_.below(kSlots));
  for (std::size_t i = 0; i < kSlots; ++i) {
    const std::size_t slot = (start + i) % kSlots;
    if (is_taken_[slot] == is_taken) return static_cast<int>(slot);
  }
  return static_cast<int>(start);
}

Caller Generator::make_caller() {
  if (!entropy_.chance(other_callers_percent_)) return Caller::kMain;
  if (repertoire_ == Repertoire::kOneThread) return Caller::kDriverCallback;
  return entropy_.pick({Caller::kSecond, Caller::kThird, Caller::kDriverCallback});
}

Bytes Generator::make_extreme_size() {
  return entropy_.pick({Bytes{0}, options_.physical_bytes, options_.physical_bytes + 1,
                        kRequestMax - 1, kRequestMax, kUnlimited, kUnlimited / 2});
}

Bytes Generator::make_size() {
  const std::uint64_t kind = entropy_.below(100);
  if (kind < 35) return 1 + entropy_.below(64_KiB);
  if (kind < 60) {
    return entropy_.pick({Bytes{512}, Bytes{513}, 1_MiB - 512, 1_MiB, 1_MiB + 1, 2_MiB,
                          10_MiB - 512, 10_MiB, 10_MiB + 1, 20_MiB, 20_MiB + 512});
  }
  if (kind < 85) return 1_MiB + entropy_.below(24_MiB);
  if (kind < 90) return 1 + entropy_.below(600);
  if (kind < 98) return 1 + entropy_.below(options_.physical_bytes / 4);
  return make_extreme_size();
}

Bytes Generator::make_alignment() {
  const std::uint64_t kind = entropy_.below(100);
  if (kind < 90) return 512;
  if (kind < 98) return Bytes{1} << entropy_.below(22);
  return entropy_.pick({Bytes{0}, Bytes{3}, 64_MiB, 1_GiB, 2_GiB, kUnlimited});
}

Operation Generator::make_allocate() {
  Allocate allocate;
  allocate.slot = find_slot(false);
  is_taken_[static_cast<std::size_t>(allocate.slot)] = true;
  if (entropy_.chance(habit_percent_)) {  // the same again, as magazines need it
    const Habit& habit = habits_[entropy_.below(habits_.size())];
    allocate.stream = habit.stream;
    allocate.bytes = habit.bytes;
  } else {
    allocate.stream = any_stream();
    allocate.bytes = make_size();
  }
  bool is_captured = false;
  if (options_.has_pools) {
    const auto captured = graphs_.pick_captured_stream();
    if (captured) allocate.stream = *captured;
    allocate.pool = graphs_.pick_explicit_pool();
    is_captured = captured.has_value();
  }
  allocate.alignment = make_alignment();
  allocate.work_ns = make_work_ns();
  allocate.caller = make_caller();
  callers_[static_cast<std::size_t>(allocate.slot)] = allocate.caller;
  if (is_captured) graphs_.note_request(allocate);
  return allocate;
}

Operation Generator::make_block_operation() {
  const std::uint64_t kind = entropy_.below(100);
  if (kind < 38) return make_allocate();
  const int slot = find_slot(true);
  if (kind < 54) {
    return RecordStream{slot, any_stream(), make_work_ns(),
                        entropy_.chance(10) ? make_caller() : Caller::kMain};
  }
  if (kind < 56) return Use{slot, make_work_ns()};
  if (kind < 60) return make_sharing_operation(slot);
  if (kind < 62) return FreeAgain{static_cast<int>(entropy_.below(kSlots))};
  if (kind < 63) return FreeInterior{slot, entropy_.below(4_MiB)};
  is_taken_[static_cast<std::size_t>(slot)] = false;
  if (kind < 67)
    return FreeSized{slot, entropy_.pick({Bytes{0}, Bytes{0}, Bytes{1}}), make_caller()};
  if (kind < 73) return FreeOnStream{slot, any_stream(), make_caller()};
  const Caller own = callers_[static_cast<std::size_t>(slot)];
  return Free{slot, entropy_.chance(60) ? own : make_caller()};
}

Operation Generator::make_sharing_operation(int slot) {
  const std::uint64_t kind = entropy_.below(100);
  if (options_.device_count > 1 && kind < 50) {
    if (kind < 12) return EnablePeer{any_device(), any_device()};
    return UseByPeer{slot, any_stream(), make_work_ns()};
  }
  if (entropy_.chance(45)) return Unpin{any_stream(), make_caller()};
  if (entropy_.chance(60)) return Pin{slot, 0, 0, make_caller()};
  return Pin{slot, entropy_.below(8_MiB), entropy_.below(4_MiB), make_caller()};
}

Operation Generator::make_stream_operation() {
  const std::uint64_t kind = entropy_.below(100);
  if (kind < 20) return Busy{any_stream()};
  if (kind < 50) return Complete{any_stream()};
  if (kind < 75) return Advance{entropy_.below(200'000)};
  if (kind < 84) return Order{any_stream(), any_stream()};
  if (kind < 88) return Synchronize{any_stream()};
  if (kind < 97) {
    return Retire{any_stream(),
                  entropy_.pick({sim::StreamKind::kNonBlocking, sim::StreamKind::kBlocking}),
                  make_caller()};
  }
  if (kind < 99) return RetireThread{make_caller()};
  return EndThread{entropy_.pick({Caller::kSecond, Caller::kThird})};
}

// Mostly ends what was begun: captures are short, and a stream that captures is of little use.
Operation Generator::make_capture_operation() {
  if (begun_.empty() || entropy_.chance(30)) {
    begun_.push_back(any_stream());
    return BeginCapture{
        begun_.back(),
        entropy_.pick({CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed}),
        make_caller()};
  }
  const std::size_t at = entropy_.below(begun_.size());
  const int stream = begun_[at];
  begun_.erase(begun_.begin() + static_cast<std::ptrdiff_t>(at));
  return EndCapture{stream};
}

Operation Generator::make_configure() {
  Configure to;
  // Off from the start stays off: then every figure is exact.
  to.thread_cache = options_.thread_cache && entropy_.chance(80);
  if (entropy_.chance(30)) return to;
  to.large_segment_mib = entropy_.pick({12, 20, 20, 32, 64});
  to.max_split_mib = entropy_.pick({0, 0, to.large_segment_mib, 32, 100});
  to.max_split_mib = to.max_split_mib == 0 ? 0 : std::max(to.max_split_mib, to.large_segment_mib);
  to.max_non_split_rounding_mib = entropy_.pick({20, 1, 200});
  to.divisions = entropy_.chance(60) ? 0 : entropy_.pick({1, 2, 4, 8, 16});
  to.garbage_percent = entropy_.pick({0, 0, 30, 80});
  to.fraction_percent = entropy_.pick({100, 100, 90, 50});
  to.rejects_early = entropy_.chance(20);
  to.upstream_quirks = entropy_.chance(50);
  to.graph_capture_reclaim = entropy_.chance(70);
  to.record_stream_reuse = entropy_.chance(70);
  to.handle_types = entropy_.pick({0, 0, 1, 2});
  to.rdma = entropy_.chance(80);
  return to;
}

Operation Generator::make_setting() {
  const std::uint64_t kind = entropy_.below(100);
  const Bytes half = options_.physical_bytes / 2;
  if (kind < 15) return EmptyCache{any_device(), make_caller()};
  if (kind < 30) return make_configure();
  if (kind < 45) {
    return SetLimit{any_device(), entropy_.chance(75) ? kUnlimited : entropy_.below(2 * half)};
  }
  if (kind < 55)
    return SetFraction{any_device(), entropy_.pick({100, 100, 100, 100, 60, 25, 101})};
  if (kind < 68) {
    return SetExternal{any_device(), entropy_.chance(60) ? 0 : entropy_.below(half)};
  }
  if (kind < 78) return HoldGate{entropy_.chance(40)};
  if (kind < 86) {
    return OfferSlot{entropy_.chance(50) ? -1 : static_cast<int>(entropy_.below(kSlots))};
  }
  if (kind < 93) return ResetStats{any_device(), entropy_.chance(50)};
  return Quiesce{};
}

Operation Generator::next() {
  if (options_.has_pools && entropy_.chance(35)) return graphs_.next(find_slot(true));
  const std::uint64_t kind = entropy_.below(1000);
  if (kind < 720) return make_block_operation();
  if (kind < 920) return make_stream_operation();
  if (kind < 960) return make_capture_operation();
  return make_setting();
}

}  // namespace

Case generate_case(Entropy& entropy, std::size_t count, Repertoire repertoire) {
  Case made;
  made.options.device_count = entropy.pick({1, 1, 1, 2});
  made.options.threads = repertoire == Repertoire::kOneThread ? 1 : 3;
  made.options.made_streams = entropy.pick({0, 1, 3, 3, 5});
  made.options.physical_bytes = entropy.pick({64_MiB, 256_MiB, 512_MiB, 2_GiB});
  made.options.expandable = entropy.chance(40);
  if (made.options.expandable)
    made.options.physical_bytes = entropy.pick({64_MiB, 256_MiB, 480_MiB});
  made.options.reuse_addresses = entropy.chance(70);
  made.options.reuse_stream_handles = entropy.chance(70);
  made.options.thread_cache = entropy.chance(70);
  made.options.calls_take_time = entropy.chance(30);
  made.options.has_pools = entropy.chance(50);
  if (repertoire == Repertoire::kBlocksOnly) made.options.has_pools = false;
  if (repertoire == Repertoire::kGraphs) made.options.has_pools = true;
  // The legacy stream alone cannot capture.
  if (made.options.has_pools) made.options.made_streams = entropy.pick({0, 1, 3, 3, 3, 3, 5, 5});
  Generator generator(entropy, made.options, repertoire);
  while (made.operations.size() < count && !entropy.is_exhausted())
    made.operations.push_back(generator.next());
  return made;
}

}  // namespace quarry::model
