// SPDX-License-Identifier: Apache-2.0
// The magazines of all threads, seen from their device: when they are made, emptied and counted.
// What comes out of one is freed like any block, but the statistics know already that no user has
// it.
#include <algorithm>

#include "core/device_allocator.hpp"
#include "core/expandable_memory.hpp"

namespace quarry {

namespace {

bool may_have_parked(const ThreadMagazines& magazines, const Stream& stream) {
  const std::uint64_t threads = stream.parking_threads.load(std::memory_order_relaxed);
  return (threads & magazines.get_thread_bit()) != 0;
}

}  // namespace

DeviceAllocator::~DeviceAllocator() {
  for (ThreadMagazines* magazines : magazines_)
    give_back_device_share(magazines);
}

// The calling thread's magazines, made if need be; null while they are not to be used.
ThreadMagazines* DeviceAllocator::join_thread() {
  if (!config_.thread_cache) return nullptr;
  ThreadMagazines* magazines = find_thread_magazines(serial_);
  if (magazines == nullptr) {
    if (magazines_.size() == magazines_.capacity()) {
      drop_ended_threads();
      magazines_.reserve(2 * magazines_.size() + 16);
    }
    magazines = make_thread_magazines(serial_, routing_, next_thread_number_++);
    if (magazines != nullptr) magazines_.push_back(magazines);
  }
  return magazines;
}

// True if any block came out. Afterwards no thread is inside a short way that began before.
bool DeviceAllocator::empty_magazines() {
  bool is_any = drop_ended_threads();
  const OthersKeptOut others(magazines_, serial_);
  for (ThreadMagazines* magazines : magazines_) {
    magazines->lock().assume_alone();
    take_counts(*magazines);
    Block* const parked = magazines->take_all();
    OthersKeptOut::let_in(*magazines);
    is_any |= free_parked(parked);
  }
  return is_any;
}

// What the calling thread parked of the request's stream and family; true if any block came out.
// This and the next leave the threads' figures alone: parked blocks count as freed already.
bool DeviceAllocator::free_own_parked_of(const Request& request) {
  ThreadMagazines* const own = find_thread_magazines(serial_);
  if (own == nullptr || !may_have_parked(*own, *request.stream)) return false;
  own->lock().assume_alone();
  return free_parked(own->take_all_of(*request.stream, request.family));
}

// The same of the other threads. Those that have none are left in peace.
bool DeviceAllocator::free_others_parked_of(const Request& request) {
  const ThreadMagazines* const own = find_thread_magazines(serial_);
  parkers_.clear();
  for (ThreadMagazines* magazines : magazines_) {
    if (magazines != own && may_have_parked(*magazines, *request.stream)) {
      parkers_.push_back(magazines);
    }
  }
  const OthersKeptOut others(parkers_, serial_);
  bool is_any = false;
  for (ThreadMagazines* magazines : parkers_) {
    magazines->lock().assume_alone();
    Block* const parked = magazines->take_all_of(*request.stream, request.family);
    OthersKeptOut::let_in(*magazines);
    is_any |= free_parked(parked);
  }
  return is_any;
}

// True if any block came out. The thread has left its magazines for good: nobody is to be kept
// out.
bool DeviceAllocator::drop_ended_threads() {
  bool is_any = false;
  for (std::size_t i = 0; i < magazines_.size();) {
    ThreadMagazines& magazines = *magazines_[i];
    if (!magazines.has_thread_ended()) {
      ++i;
      continue;
    }
    magazines.lock().assume_alone();
    take_counts(magazines);
    is_any |= free_parked(magazines.take_all());
    give_back_device_share(&magazines);
    magazines_[i] = magazines_.back();
    magazines_.pop_back();
  }
  return is_any;
}

// `list` is linked by Block::left. True if it has blocks.
bool DeviceAllocator::free_parked(Block* list) {
  const bool is_any = list != nullptr;
  while (Block* block = list) {
    list = block->left;
    block->left = nullptr;
    pointer_map_.remove(block->address, block->segment->get_region_use());
    const StatFamily family = block->segment->family;
    block->become_pending();
    apply(return_to_pool(*block), family);
  }
  return is_any;
}

// What a thread's magazines did since the last time becomes part of the statistics. The thread is
// the calling one, or kept out.
void DeviceAllocator::take_counts(ThreadMagazines& magazines) {
  magazines.lock().assume_alone();
  ThreadCounts counts;
  if (magazines.take_counts(counts)) add_counts(counts);
}

void DeviceAllocator::add_counts(const ThreadCounts& counts) {
  const auto add_held = [&counts](FamilyStat& stat, ThreadCounts::Held held) {
    std::int64_t rises = 0;
    std::int64_t falls = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      const ThreadCounts::Figure& own = counts.family[i][held];
      stat.family[i].add_many(own.rises, own.get_falls(), own.high);
      rises += own.rises;
      falls += own.get_falls();
    }
    stat.all.add_many(rises, falls, counts.high_of_all[held]);
  };
  add_held(stats_.allocation, ThreadCounts::kBlocks);
  add_held(stats_.active, ThreadCounts::kBlocks);
  add_held(stats_.allocated_bytes, ThreadCounts::kBytes);
  add_held(stats_.active_bytes, ThreadCounts::kBytes);
  add_held(stats_.requested_bytes, ThreadCounts::kRequested);
  using Splits = ThreadCounts::Splits;
  const auto add_splits = [&counts](FamilyStat& stat, ThreadCounts::SplitFigure Splits::*figure) {
    const auto add = [](Stat& to, const ThreadCounts::SplitFigure& from) {
      to.add_many(from.rises, from.rises - from.now, from.high);
    };
    for (std::size_t i = 0; i < 2; ++i)
      add(stat.family[i], counts.splits[i].*figure);
    add(stat.all, counts.all_splits.*figure);
  };
  add_splits(stats_.inactive_split, &Splits::blocks);
  add_splits(stats_.inactive_split_bytes, &Splits::bytes);
  for (const std::size_t i : {0, 1}) {
    const ThreadCounts::Family& own = counts.family[i];
    held_requested_bytes_ += own[ThreadCounts::kRequested].get_now();
    default_pool_.get_blocks(static_cast<StatFamily>(i))
        .count_served(own[ThreadCounts::kBlocks].rises);
  }
}

// Of one moment, in which no thread takes or parks: a block that one allocates and another frees
// is in the figures of both or of neither. Returns the bytes that are parked.
Bytes DeviceAllocator::take_all_counts() {
  Bytes parked = 0;
  const OthersKeptOut others(magazines_, serial_);
  for (ThreadMagazines* magazines : magazines_) {
    magazines->lock().assume_alone();
    take_counts(*magazines);
    parked += magazines->get_parked_bytes();
  }
  return parked;
}

// After a change of settings: whether the short way is open, and nothing parked if not.
void DeviceAllocator::update_routing() {
  const bool is_rounded =
      std::any_of(config_.roundup_power2_divisions.begin(), config_.roundup_power2_divisions.end(),
                  [](std::uint32_t divisions) { return divisions != 0; });
  routing_.set_to(RoutingReason::kNoCache, !config_.thread_cache);
  for_each_pool([is_ordered = !config_.thread_cache](MemPool& pool) {
    pool.small.set_ordered(is_ordered);
    pool.large.set_ordered(is_ordered);
    pool.outdated_small.set_ordered(is_ordered);
    pool.outdated_large.set_ordered(is_ordered);
  });
  routing_.set_to(RoutingReason::kRoundup, is_rounded);
  routing_.set_to(RoutingReason::kAges, config_.garbage_collection_threshold > 0.0);
  if (!routing_.allows_parking()) empty_magazines();
}

}  // namespace quarry
