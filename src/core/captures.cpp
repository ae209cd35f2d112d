// SPDX-License-Identifier: Apache-2.0
// What captures are given, and how it comes back.
//
// A graph uses its memory at every launch, on any stream, so the order of the stream that captures
// means nothing to anybody outside. Two rules follow:
//
// - What enters a capture is free of work that the host has not seen done. So it comes from what
//   captures gave back before (whoever shares a pool between graphs promises not to run them at
//   once), from memory of the pool that is idle, or fresh from the driver.
// - What a capture was given stays with the pool's captures until the pool is released. Freed
//   inside its capture, a block is free at once for that stream's captures (for others' when that
//   stream captures no more), unless other streams use it: then when the capture has ended, or
//   comes after those uses (capture_order.hpp). Freed later, when work outside of captures may
//   have used it too, once the host has seen that done.
//
// Whether a stream captures, and in which capture it is, the driver is asked; that a pool is begun
// says nothing of it.
#include <algorithm>

#include "core/device_allocator.hpp"
#include "core/thread_state.hpp"

namespace quarry {

// A request to a private pool, of a stream that captures or not. Where that is not known it is
// refused: a graph would go on using what others were given.
Status DeviceAllocator::enter_capture(Request& request) {
  if (request.pool->is_default()) return Status::ok();
  Stream& stream = *request.stream;
  const auto capture = captures_.find(stream);
  if (!capture.is_ok()) return describe_unknown_capture(capture.code);
  request.capture = capture.value;
  if (!request.is_captured()) return Status::ok();
  request.stream = &get_captured_stream(*request.pool, stream);
  captures_.note(stream, request.capture, request.pool->id);
  captures_.collect_in_order(stream, request.pool->id, done_);
  complete_done();
  adopt_captured_idle(*request.pool);
  return Status::ok();
}

// One stream alone captures into the pool: what is anyone's becomes that stream's, and so joins
// the free memory beside it.
void DeviceAllocator::adopt_captured_idle(MemPool& pool) {
  if (pool.captured_streams.size() != 1) return;
  change_owner_of_free(pool, *pool.captured_idle, *pool.captured_streams.front());
}

// What other streams' captures gave back becomes anyone's, if those have ended: two streams of one
// capture run at once. A capture of another thread's per-thread default stream may go on unseen.
void DeviceAllocator::adopt_ended_captures(const Request& request) {
  MemPool& pool = *request.pool;
  for (const Stream* captured : pool.captured_streams) {
    if (captured != request.stream && !captures_.may_be_in_capture(*captured->base))
      change_owner_of_free(pool, *captured, *pool.captured_idle);
  }
}

Stream& DeviceAllocator::get_captured_stream(MemPool& pool, Stream& stream) {
  for (Stream* captured : pool.captured_streams) {
    if (captured->base == &stream) return *captured;
  }
  if (pool.captured_idle == nullptr) pool.captured_idle = &streams_.add_captured(nullptr);
  pool.captured_streams.push_back(&streams_.add_captured(&stream));
  return *pool.captured_streams.back();
}

// The stream's work outside of captures is done, and its handle gone.
void DeviceAllocator::end_captured_stream(MemPool& pool, const Stream& drained) {
  const auto found = std::ranges::find_if(
      pool.captured_streams, [&](const Stream* stream) { return stream->base == &drained; });
  if (found == pool.captured_streams.end()) return;
  Stream& captured = **found;
  pool.captured_streams.erase(found);
  change_owner_of_free(pool, captured, *pool.captured_idle);
  captured.life = StreamLife::kDrained;
  release_reference(captured);
}

// A block that a capture was given is freed: its own stream's part.
void DeviceAllocator::guard_captured(Block& block) {
  CaptureModeBracket bracket(driver_);
  Stream* const base = block.owner->base;
  const CaptureId capture = std::exchange(block.capture, CaptureId::kNone);
  if (base == nullptr || captures_.is_in(*base, capture)) return;
  fences_.guard(block, *base);
  set_owner(block, *block.segment->pool->captured_idle);
}

bool DeviceAllocator::is_in_capture(const ForeignUse& use) {
  return use.capture != CaptureId::kNone && captures_.is_in(*use.stream, use.capture);
}

// Other streams that capture use the block. When that is over inside the capture, only the graph
// can tell, and is asked only if that is wished for.
void DeviceAllocator::wait_for_captures(Block& block, const std::vector<ForeignUse>& uses) {
  const PoolId pool = block.segment->pool->id;
  Stream* const base = block.owner->base;
  const bool is_one_capture =
      base != nullptr && captures_.is_in(*base, block.capture) &&
      std::ranges::all_of(uses, [&](const auto& use) { return use.capture == block.capture; });
  if (config_.graph_capture_record_stream_reuse && is_one_capture) {
    std::vector<const Stream*> users;
    for (const ForeignUse& use : uses)
      users.push_back(use.stream);
    if (captures_.wait_in_order(block, *base, block.capture, pool, users)) return;
  }
  for (const ForeignUse& use : uses)
    captures_.wait(block, *use.stream, use.capture, pool);
}

// Free memory of the pool whose streams the host sees done becomes idle, so that captures may have
// it. A stream that captures cannot be asked: what it freed before has to wait.
void DeviceAllocator::adopt_finished(MemPool& pool) {
  CaptureModeBracket bracket(driver_);
  for (std::size_t i = 0; i < streams_.get_all().size(); ++i) {
    Stream* const stream = streams_.get_all()[i].get();
    if (stream == nullptr || stream->is_captured || !stream->is_live()) continue;
    if (find_largest_free(pool, *stream) == 0) continue;
    if (fences_.is_finished(*stream)) change_owner_of_free(pool, *stream, streams_.idle());
  }
}

// Whether a request may have cached memory given back to the driver.
bool DeviceAllocator::may_reclaim() {
  if (config_.graph_capture_reclaim) return true;
  settle_frees();
  return !captures_.is_any();
}

}  // namespace quarry
