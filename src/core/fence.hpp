// SPDX-License-Identifier: Apache-2.0
// Fences of one device: "may this block be reused yet?" has one mechanism. A fence stands for all
// work submitted to its stream before it is sealed. Sealing records an event; a sealed fence is
// pending until the host sees the event done.
//
// Rules of the driver that this file keeps (docs/design.md, "Fences and streams"): nothing is
// recorded on a stream that captures, nor on the legacy stream while a blocking stream captures; a
// per-thread default stream can be named only by its own thread. Where one of these forbids
// sealing, the fence stays open and a later call seals it: that only makes it cover more.
//
// Invariant: a block's pending_fences is the number of fences that list it as a waiter.
//
// Guarded by the device's mutex. Its driver calls do not wait; the caller holds a relaxed capture
// bracket around each member that makes any.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/status.hpp"
#include "core/block.hpp"
#include "core/object_pool.hpp"
#include "core/stream_table.hpp"
#include "driver/driver.hpp"

namespace quarry {

struct Fence {
  Stream* stream = nullptr;
  EventHandle event = EventHandle::kNull;  // null until sealed
  Fence* next = nullptr;                   // the next newer one of the stream
  std::uint64_t number = 0;                // Stream::fence_number when it was sealed
  std::vector<Block*> waiters;
  bool has_failed = false;  // the driver answered a query with an error, counted once
};

class Fences {
 public:
  explicit Fences(Driver& driver, DeviceId device) noexcept : driver_(driver), device_(device) {}

  // `block` waits for all that was submitted to `stream` before now. Not for a drained stream.
  void guard(Block& block, Stream& stream);

  // A fence, which no block waits for, of all that was submitted to `stream` before now.
  // Afterwards what was freed on it passes sooner or later.
  void cover(Stream& stream);
  // Work submitted to `later` from now on comes after what the fences of `earlier` cover, on the
  // device; the host waits for nothing. False if the driver refused, or one of them captures.
  bool order(const Stream& earlier, const Stream& later);
  // Appends to `done` the blocks of `owner` that waited only for fences of streams that it has
  // been ordered after. They need not wait any longer.
  void take_ordered(const Stream& owner, const std::vector<Stream*>& earlier,
                    std::vector<Block*>& done);
  // Likewise these blocks, all of whose fences are sealed.
  void take_waiters(const std::set<Block*>& blocks, std::vector<Block*>& done);
  // Whether a fence of the stream has not passed yet.
  static bool has_any(const Stream& stream) noexcept {
    return stream.oldest_fence != nullptr || stream.open_fence != nullptr;
  }

  // Ends the life of `stream`: seals a last fence, which drains it. Fails, with nothing changed,
  // if the stream captures (kBusy) or the driver refuses.
  Status retire(Stream& stream);

  // Whether the host sees everything done that was submitted to `stream`, which is live. False
  // also where the stream cannot be asked.
  bool is_finished(const Stream& stream);

  // Seals open fences where that has become possible, then takes every sealed fence that has
  // passed. Blocks whose last fence passed are appended to `done`, streams whose retirement passed
  // to `drained`, each with a reference on it that is the caller's to give back.
  void collect(std::vector<Block*>& done, std::vector<Stream*>& drained);

  // Whether collect has anything to look at. Cheap.
  bool is_idle() const noexcept { return waiting_streams_.empty(); }
  // Whether blocks or the end of a stream wait for fences, and not only free memory.
  bool has_waiters() const noexcept { return waits_ > 0 || retiring_streams_ > 0; }

  // The newest event of every stream that has sealed fences: when these are done, all are.
  std::vector<EventHandle> get_newest_events() const;

  std::int64_t outstanding_count() const noexcept { return outstanding_; }
  std::int64_t failed_count() const noexcept { return failed_; }
  void reset_failed_count() noexcept { failed_ = 0; }
  // Rises with every fence that is sealed.
  std::uint64_t seal_count() const noexcept { return seals_; }
  std::int64_t open_count() const noexcept;
  // The last error that a driver call of this class gave, and forgets it; kSuccess if none. An
  // error that keeps coming is given once.
  DriverCode take_last_error() noexcept;

  // Destroys all events. Nothing may wait any more.
  void destroy_events() noexcept;

  // Calls visit(const Fence&) for each.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Stream* stream : waiting_streams_) {
      for (Fence* f = stream->oldest_fence; f != nullptr; f = f->next)
        visit(*f);
      if (stream->open_fence != nullptr) visit(*stream->open_fence);
    }
  }

 private:
  Fence& get_open_fence(Stream& stream);
  // Records the event of the stream's open fence and appends it to the sealed ones; or leaves it
  // open and says why.
  DriverCode seal(Stream& stream);
  DriverResult<EventHandle> record_now(const Stream& stream);
  DriverCode record(EventHandle event, const Stream& stream);
  DriverCode check_not_capturing(const Stream& stream) noexcept;
  void note_error(DriverCode code) noexcept;
  void reopen(Stream& stream, Fence& captured);
  DriverResult<EventHandle> take_event() noexcept;
  void note_waiting(Stream& stream);
  void take_passed(Stream& stream, std::vector<Block*>& done);
  void finish(Fence& fence, std::vector<Block*>& done);

  Driver& driver_;
  const DeviceId device_;
  ObjectPool<Fence> fences_;
  std::vector<Stream*> waiting_streams_;  // those with a fence, sealed or open; no duplicates
  std::vector<EventHandle> spare_events_;
  std::vector<EventHandle> tainted_events_;  // may have been captured; never used or queried again
  std::int64_t outstanding_ = 0;             // sealed and not passed
  std::int64_t failed_ = 0;
  std::int64_t waits_ = 0;  // entries of all fences' waiters
  std::int64_t retiring_streams_ = 0;
  std::uint64_t seals_ = 0;
  DriverCode last_error_ = DriverCode::kSuccess;   // not taken yet
  DriverCode noted_error_ = DriverCode::kSuccess;  // the one that keeps coming
};

}  // namespace quarry
