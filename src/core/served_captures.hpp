// SPDX-License-Identifier: Apache-2.0
// The captures that a device's private pools have served and that may be under way still, and the
// blocks that wait for something inside them. Whether one is under way the driver is asked.
//
// Which capture a stream is in may not be asked while another thread ends that capture. So only
// who works in it asks: a request that names the stream, and the threads that have made one.
// Others ask whether the stream captures at all; one that captures is taken to be in the capture
// known before.
//
// Invariant: a block's pending_fences counts the captures that list it, as it counts fences.
//
// Guarded by the device's mutex. Makes no driver call on a stream whose handle may be gone, nor in
// another thread's name.
#pragma once

#include <memory>
#include <vector>

#include "core/block.hpp"
#include "core/capture_order.hpp"
#include "core/pool_id.hpp"
#include "core/stream_table.hpp"
#include "driver/driver.hpp"

namespace quarry {

class ServedCaptures {
 public:
  ServedCaptures(Driver& driver, StreamTable& streams) noexcept
      : driver_(driver), streams_(streams) {}

  // For a call that names the stream: the capture that it is in. kNone also for another thread's
  // per-thread default stream, which nobody else can name. An error: it is not known.
  DriverResult<CaptureId> find(const Stream& stream) const noexcept;
  // None where it is not known: then a block waits for all work of the stream.
  CaptureId guess(const Stream& stream) const noexcept {
    const auto found = find(stream);
    return found.is_ok() ? found.value : CaptureId::kNone;
  }
  // False also where it is not known, or not for this thread to ask.
  bool is_in(const Stream& stream, CaptureId capture) const noexcept;
  // One that was lost but not ended counts. True also where it is not known.
  bool may_be_in_capture(const Stream& stream) const noexcept;
  // A request of the stream, in that capture, is served from the pool.
  void note(Stream& stream, CaptureId id, PoolId pool);
  bool is_any() const noexcept { return !captures_.empty(); }
  bool is_any_of(PoolId pool) const noexcept;

  // `block` waits until the stream's capture has ended.
  void wait(Block& block, Stream& stream, CaptureId id, PoolId pool);
  // `block`, given to the capture on `stream`, waits until that stream comes after what each of
  // `users`, in the same capture, has done so far. Not pending if that is so already. False, with
  // nothing changed, if the driver cannot tell, or not to this thread: nobody locks a graph, so it
  // is looked at only in calls of the thread that asked for memory on `stream` last.
  bool wait_in_order(Block& block, Stream& stream, CaptureId id, PoolId pool,
                     const std::vector<const Stream*>& users);

  // Both append the blocks that wait for nothing any longer.
  void collect_ended(std::vector<Block*>& done);
  void collect_in_order(const Stream& stream, PoolId pool, std::vector<Block*>& done);

  // Calls visit(const Block&) for each wait.
  template <class Visit>
  void for_each_wait(Visit visit) const {
    for (const Capture& capture : captures_) {
      for (const Block* block : capture.waiters)
        visit(*block);
      capture.order->for_each(visit);
    }
  }

 private:
  struct Capture {
    Stream* stream = nullptr;  // with a reference
    CaptureId id{};
    PoolId pool;
    std::uint64_t thread = 0;            // of the last request
    std::vector<std::uint64_t> threads;  // of all of them
    bool is_over = false;                // the stream was seen in another one
    std::vector<Block*> waiters;
    std::unique_ptr<CaptureOrder> order = std::make_unique<CaptureOrder>();
  };
  Capture& get(Stream& stream, CaptureId id, PoolId pool);
  bool works_in(CaptureId capture) const noexcept;
  bool has_ended(const Capture& capture) const noexcept;
  // Of blocks[from] on, keeps those that wait for nothing else.
  static void drop_waits(std::vector<Block*>& blocks, std::size_t from);

  Driver& driver_;
  StreamTable& streams_;
  std::vector<Capture> captures_;  // no two of one stream, capture and pool
};

}  // namespace quarry
