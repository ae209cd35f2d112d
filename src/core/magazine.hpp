// SPDX-License-Identifier: Apache-2.0
// A thread's magazines for one device: small stacks of freed blocks of one exact size and stream,
// which serve most requests without the device's mutex. A block in a magazine is *parked*: for the
// tree, the pointer map and validate() it stays allocated; only Block::is_held says that no user
// has it. Parked bytes count as reserved, not as allocated.
//
// Which blocks park: those of sizes that this thread asks for again and again (a size that was
// asked for once is not worth keeping from the coalescer), without foreign uses, of a live stream
// that the thread can name. Bounded in blocks and bytes. Blocks above 1 MiB park only if they are
// whole segments, which never coalesce, and stay only while every large request is served from
// here: on the recorded traces that keeps peak reserved within 0.25 % of what it is without
// magazines, where parking all of them cost up to 8.5 %.
//
// Locking: a thread enters its own with hardly any cost (base/owner_lock.hpp); others come seldom,
// to empty or count, and only with the device's mutex, which thus stands for the lock too: its
// holder keeps everybody else out of all magazines that are its own thread's, and of the others'
// through OthersKeptOut (thread_magazines.hpp). Never the mutex while inside. What decides whether
// parking is allowed at all (the routing word, a stream's life) is read inside: whoever changes
// one of those empties all magazines afterwards, so nothing parked under the old rule survives.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <utility>

#include "base/bytes.hpp"
#include "base/mutex.hpp"
#include "base/owner_lock.hpp"
#include "core/block.hpp"
#include "core/routing.hpp"
#include "core/segment.hpp"
#include "core/size_policy.hpp"
#include "core/stream_table.hpp"
#include "core/thread_counts.hpp"
#include "core/thread_state.hpp"
#include "driver/driver_types.hpp"

namespace quarry {

// What a thread was told of a stream: how to find it, and its lane, without the device's mutex.
struct StreamNote {
  StreamHandle handle = StreamHandle::kLegacy;
  int lane = kNoLane;
  Stream* stream = nullptr;  // null: nothing was told

  friend bool operator==(const StreamNote&, const StreamNote&) = default;
};

class alignas(64) ThreadMagazines {
 public:
  // `number` tells the threads of one device apart.
  ThreadMagazines(const RoutingWord& routing, std::uint32_t number) noexcept
      : routing_(routing), thread_bit_(std::uint64_t{1} << number % 64) {}

  // A parked block for a request of `bytes` on `handle`, marked held again; null if there is none,
  // or the short way is closed, or a highest value must be counted.
  Block* try_take(Bytes bytes, StreamHandle handle) noexcept;
  // After that: the same for every parked block. A miss remembers the size, which gets a magazine
  // if it was missed not long ago. has_leaving: blocks had to make room for it; the caller returns
  // them to the device.
  Block* take_or_note_miss(Bytes bytes, StreamHandle handle, bool& has_leaving) noexcept;

  // Parks a block that its user gave up and nobody else has (Block::is_held was exchanged to
  // false) where it was parked before. False if that is not here, or there is no room.
  bool try_park(Block& block) noexcept;
  // After that: the same for every block that qualifies. False: free it under its lane or the
  // device's mutex.
  bool park_elsewhere(Block& block) noexcept;

  OwnerLock& lock() noexcept QUARRY_RETURN_CAPABILITY(lock_) { return lock_; }
  // For the lanes, whose figures are counted here too, so that a thread has one highest value. The
  // thread itself holds any lane: that keeps others out as the lock does, since they come with the
  // device's mutex only.
  ThreadCounts& counts() noexcept QUARRY_REQUIRES(lock_) { return counts_; }
  // What `handle` means: without a stream if the thread was not told, or it is retired since.
  StreamNote find_stream(StreamHandle handle) const noexcept QUARRY_REQUIRES(lock_) {
    const StreamNote& note = notes_[get_note_index(handle)];
    return note.handle == handle ? note : StreamNote{};
  }
  // The lane to hold for that, or kNoLane; a guess, without any lock.
  int guess_lane(StreamHandle handle) const noexcept {
    return lanes_after_[get_note_index(handle)].load(std::memory_order_relaxed) - 1;
  }
  // A block that is leaving, null if none. It stays parked, for everybody else, until it is taken
  // out: by its thread with the block's lane held, or by take_all. So nobody overlooks it.
  Block* get_leaving() const noexcept QUARRY_REQUIRES(lock_) { return leaving_; }
  void take_leaving() noexcept QUARRY_REQUIRES(lock_);
  // All that are leaving, linked by Block::left.
  Block* take_all_leaving() noexcept QUARRY_REQUIRES(lock_);
  void remember_stream(const StreamNote& note) noexcept QUARRY_REQUIRES(lock_);
  void forget_streams() noexcept QUARRY_REQUIRES(lock_);

  // Takes everything out, linked by Block::left; null if empty.
  Block* take_all() noexcept QUARRY_REQUIRES(lock_);
  // The same of one stream and family; and what is leaving.
  Block* take_all_of(const Stream& stream, StatFamily family) noexcept QUARRY_REQUIRES(lock_);
  // For the thread itself, with the stream's lane held: calls give_back(Block&) for those of them
  // that may_give_back(const Block&) allows, which it takes out.
  template <class May, class GiveBack>
  void return_all_of(const Stream& stream, StatFamily family, May may_give_back,
                     GiveBack give_back) noexcept QUARRY_REQUIRES(lock_);
  // Whether there may be any: no such bit in Stream::parking_threads, no such block. More than 64
  // threads share bits.
  std::uint64_t get_thread_bit() const noexcept { return thread_bit_; }
  // For the thread itself: whether it has freed so much more than it was given since its figures
  // were last taken that those of the others are too high.
  bool is_far_below() noexcept;
  // Moves the figures since the last call to `counts`; false if there are none.
  bool take_counts(ThreadCounts& counts) noexcept QUARRY_REQUIRES(lock_);
  Bytes get_parked_bytes() const noexcept QUARRY_REQUIRES(lock_) {
    return static_cast<Bytes>(kThreadBytesMax - room_bytes_);
  }

  // Two share it, its device and its thread; true for the last to give its share back.
  bool give_back_share() noexcept { return shares_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  // For a sharer: whether the other still is one.
  bool is_shared() const noexcept { return shares_.load(std::memory_order_acquire) > 1; }
  void mark_thread_ended() noexcept { has_thread_ended_.store(true, std::memory_order_release); }
  bool has_thread_ended() const noexcept {
    return has_thread_ended_.load(std::memory_order_acquire);
  }

  // Calls visit(const Block&) for each parked block.
  template <class Visit>
  void for_each(Visit visit) noexcept QUARRY_REQUIRES(lock_);

 private:
  // Only the thread itself makes one serve another size, under the lock; so it may look for the
  // magazine of a size without. The rest others change, too. A cache line.
  struct alignas(64) Magazine {
    Bytes size = 0;  // of the requests that it serves, rounded to 512; 0: unused
    StreamHandle handle = StreamHandle::kLegacy;
    Block* top = nullptr;  // linked by Block::left
    // Never the same for two magazines, or for one that has come to serve another size. A block
    // that parks remembers it (Block::home): it qualified, and as long as it is handed out by this
    // magazine only, nothing that it depended on has changed. Whatever changes something gives
    // the magazine a new name, or takes the block's away.
    std::uint64_t name = kNoName;
    ThreadCounts::Family* counts = nullptr;  // of the family of its blocks
    std::uint32_t last_use = 0;              // clock_ then
    std::uint32_t room = 0;                  // for so many more blocks
  };
  // A size that was missed and has no magazine.
  struct Sighting {
    std::uint32_t mark = 0;   // of size and stream
    std::uint32_t clock = 0;  // clock_ then
  };
  static constexpr int kSetBits = 5;
  static constexpr std::size_t kSets = 1 << kSetBits;
  static_assert(kSets <= 32, "large_sets_ has a bit for each");
  static constexpr std::size_t kWays = 4;
  static constexpr std::uint32_t kBlocksMax = 16;             // of one magazine
  static constexpr std::int64_t kThreadBytesMax = 256 << 20;  // of all of a thread's
  static constexpr std::int64_t kUncountedFallMax = 16 << 20;
  static constexpr std::size_t kSightings = 128;
  static constexpr std::uint32_t kSightingAge = 128;  // misses after which a size is new again
  // The low bits of a name say where the magazine is.
  static constexpr std::size_t kMagazines = kSets * kWays;
  static constexpr std::uint64_t kNoName = ~std::uint64_t{0};  // no block has it

  static constexpr std::size_t kStreamNotes = 8;
  static std::size_t get_note_index(StreamHandle handle) noexcept {
    const auto number = static_cast<std::uint64_t>(handle);
    return (number * 0x9e3779b97f4a7c15ull >> 61) % kStreamNotes;
  }
  using Set = std::span<Magazine, kWays>;
  static std::uint64_t hash(Bytes size, StreamHandle handle) noexcept;
  static std::size_t get_set_index(Bytes size, StreamHandle handle) noexcept {
    return hash(size, handle) >> (64 - kSetBits);
  }
  Set get_set(std::size_t index) noexcept;
  Set get_set(Bytes size, StreamHandle handle) noexcept {
    return get_set(get_set_index(size, handle));
  }
  static Magazine* find(Set set, Bytes size, StreamHandle handle) noexcept;
  static Magazine& choose_victim(Set set) noexcept;
  void rename(Magazine& magazine) noexcept QUARRY_REQUIRES(lock_);
  Block* take_any(Magazine& magazine, Bytes bytes) noexcept;
  bool is_seen_again(Bytes size, StreamHandle handle) noexcept;
  void make_magazine(Set set, Bytes size, StreamHandle handle) noexcept QUARRY_REQUIRES(lock_);
  bool has_room(const Magazine& magazine, const Block& block) const noexcept
      QUARRY_REQUIRES(lock_) {
    return magazine.room != 0 && room_bytes_ >= static_cast<std::int64_t>(block.size);
  }
  // The figures of these two are the caller's to count.
  void pop(Magazine& magazine, Block& block, Bytes bytes) noexcept QUARRY_REQUIRES(lock_);
  void push(Magazine& magazine, Block& block) noexcept QUARRY_REQUIRES(lock_);
  void empty(Magazine& magazine) noexcept QUARRY_REQUIRES(lock_);
  void empty_large() noexcept QUARRY_REQUIRES(lock_);

  OwnerLock lock_;  // first: its address is at hand
  const RoutingWord& routing_;
  const std::uint64_t thread_token_ = get_thread_token();  // of the thread that makes this
  std::atomic<bool> has_thread_ended_{false};
  std::atomic<int> shares_{2};
  // These three the thread's own.
  std::uint32_t clock_ = kSightingAge;  // misses
  // Bit i: set i may have blocks of more than 1 MiB, parked since the last large miss.
  std::uint32_t large_sets_ = 0;
  std::array<std::array<Sighting, 2>, kSightings> sightings_{};
  std::int64_t room_bytes_ QUARRY_GUARDED_BY(lock_) = kThreadBytesMax;  // less what is parked
  std::uint64_t next_name_ QUARRY_GUARDED_BY(lock_) = 0;
  Block* leaving_ QUARRY_GUARDED_BY(lock_) = nullptr;  // linked by Block::left; parked still
  ThreadCounts counts_ QUARRY_GUARDED_BY(lock_);
  std::array<Magazine, kMagazines> magazines_ QUARRY_GUARDED_BY(lock_);
  std::array<StreamNote, kStreamNotes> notes_ QUARRY_GUARDED_BY(lock_);
  // The lane of each note, plus 1; changes with it.
  std::array<std::atomic<int>, kStreamNotes> lanes_after_{};
  // On a cache line that nobody writes: others look at it when they miss.
  alignas(64) const std::uint64_t thread_bit_;
};

// --- The short way, inline: most calls are nothing else ---

// Sizes are multiples of 512, and the multiplier is the golden ratio without its last nine bits.
inline std::uint64_t ThreadMagazines::hash(Bytes size, StreamHandle handle) noexcept {
  const std::uint64_t key = size + static_cast<std::uint64_t>(handle) * 9;
  return key * (0x9e3779b97f4a7c15ull >> 9);
}

inline ThreadMagazines::Set ThreadMagazines::get_set(std::size_t index) noexcept
    QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  return Set(&magazines_[index * kWays], kWays);
}

inline ThreadMagazines::Magazine* ThreadMagazines::find(Set set, Bytes size,
                                                        StreamHandle handle) noexcept {
  for (Magazine& magazine : set) {
    if (magazine.size == size && magazine.handle == handle) return &magazine;
  }
  return nullptr;
}

inline void ThreadMagazines::pop(Magazine& magazine, Block& block, Bytes bytes) noexcept {
  magazine.top = block.left;
  ++magazine.room;
  magazine.last_use = clock_;
  block.requested_bytes = bytes;
  block.is_held.store(true, std::memory_order_relaxed);
  room_bytes_ += static_cast<std::int64_t>(block.size);
}

inline void ThreadMagazines::push(Magazine& magazine, Block& block) noexcept {
  block.left = magazine.top;
  magazine.top = &block;
  --magazine.room;
  room_bytes_ -= static_cast<std::int64_t>(block.size);
}

// Neither waits to get in: whoever is inside is emptying magazines. Nor do they call anything,
// which would cost registers.
inline Block* ThreadMagazines::try_take(Bytes bytes, StreamHandle handle) noexcept
    QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  const Bytes size = round_up(bytes, kMinBlock);
  Magazine* const magazine = find(get_set(size, handle), size, handle);
  if (magazine == nullptr || !lock_.try_enter()) [[unlikely]]
    return nullptr;
  Block* const block = routing_.allows_parking() ? magazine->top : nullptr;
  const bool is_hit = block != nullptr && ThreadCounts::try_take(*magazine->counts, *block, bytes);
  if (is_hit) [[likely]]
    pop(*magazine, *block, bytes);
  lock_.leave();
  return is_hit ? block : nullptr;
}

inline bool ThreadMagazines::try_park(Block& block) noexcept QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  if (!lock_.try_enter()) [[unlikely]]
    return false;
  Magazine& magazine = magazines_[block.home % kMagazines];
  const bool may_park =
      magazine.name == block.home && routing_.allows_parking() && has_room(magazine, block);
  if (may_park) [[likely]] {
    push(magazine, block);
    ThreadCounts::give_back(*magazine.counts, block);
  }
  lock_.leave();
  return may_park;
}

template <class May, class GiveBack>
void ThreadMagazines::return_all_of(const Stream& stream, StatFamily family, May may_give_back,
                                    GiveBack give_back) noexcept {
  for (Magazine& magazine : magazines_) {
    if (magazine.handle != stream.ref.handle || get_family(magazine.size) != family) continue;
    for (Block** link = &magazine.top; *link != nullptr;) {
      Block& block = **link;
      if (!may_give_back(std::as_const(block))) {
        link = &block.left;
        continue;
      }
      *link = std::exchange(block.left, nullptr);
      ++magazine.room;
      room_bytes_ += static_cast<std::int64_t>(block.size);
      give_back(block);
    }
  }
}

template <class Visit>
void ThreadMagazines::for_each(Visit visit) noexcept {
  for (const Block* block = leaving_; block != nullptr; block = block->left)
    visit(*block);
  for (const Magazine& magazine : magazines_) {
    for (const Block* block = magazine.top; block != nullptr; block = block->left)
      visit(*block);
  }
}

}  // namespace quarry
