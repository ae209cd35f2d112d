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
//   inside its capture, a block is free at once for that stream's captures; freed later, when work
//   outside of captures may have used it too, once the host has seen that work done.
//
// Whether a stream captures, and in which capture it is, the driver is asked; that a pool is begun
// says nothing of it.
#include <algorithm>

#include "core/device_allocator.hpp"
#include "core/thread_state.hpp"

namespace quarry {

// None also where it cannot be told: for another thread's per-thread default stream. Makes no call
// on a stream whose handle may be gone.
CaptureId DeviceAllocator::find_capture(const Stream& stream) {
  if (!stream.is_live()) return {};
  if (stream.is_per_thread() && stream.thread != get_thread_token()) return {};
  const auto info = driver_.get_capture_info(stream.ref);
  const bool is_active = info.is_ok() && info.value.status == CaptureStatus::kActive;
  return is_active ? info.value.id : CaptureId::kNone;
}

// A request to a private pool, of a stream that captures or not.
void DeviceAllocator::enter_capture(Request& request) {
  Stream& stream = *request.stream;
  request.capture = find_capture(stream);
  if (!request.is_captured()) return;
  request.stream = &get_captured_stream(*request.pool, stream);
  note_capture(stream, request.capture, request.pool->id);
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

ServedCapture& DeviceAllocator::note_capture(Stream& stream, CaptureId id, PoolId pool) {
  for (ServedCapture& capture : captures_) {
    if (capture.stream == &stream && capture.id == id && capture.pool == pool) return capture;
  }
  ++stream.references;
  captures_.push_back({&stream, id, pool, {}});
  return captures_.back();
}

// A block that a capture was given is freed: its own stream's part.
void DeviceAllocator::guard_captured(Block& block) {
  CaptureModeBracket bracket(driver_);
  Stream* const base = block.owner->base;
  const CaptureId capture = std::exchange(block.capture, CaptureId::kNone);
  if (base == nullptr || find_capture(*base) == capture) return;
  fences_.guard(block, *base);
  set_owner(block, *block.segment->pool->captured_idle);
}

// Another stream of the same capture uses the block: inside, nothing tells when that is over.
void DeviceAllocator::wait_for_capture(Block& block, const ForeignUse& use) {
  ++block.pending_fences;
  note_capture(*use.stream, use.capture, block.segment->pool->id).waiters.push_back(&block);
}

// Lets go of captures that have ended, well or not.
void DeviceAllocator::collect_captures() {
  for (std::size_t i = 0; i < captures_.size();) {
    Stream& stream = *captures_[i].stream;
    const bool can_tell = !stream.is_per_thread() || stream.thread == get_thread_token();
    const bool has_ended =
        !stream.is_live() || (can_tell && find_capture(stream) != captures_[i].id);
    if (!has_ended) {
      ++i;
      continue;
    }
    for (Block* block : captures_[i].waiters) {
      if (--block->pending_fences == 0) complete_free(*block);
    }
    std::swap(captures_[i], captures_.back());
    captures_.pop_back();
    release_reference(stream);
  }
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

bool DeviceAllocator::is_any_capture_active() {
  collect_captures();
  return !captures_.empty();
}

// Whether a request may have cached memory given back to the driver.
bool DeviceAllocator::may_reclaim() {
  return config_.graph_capture_reclaim || !is_any_capture_active();
}

}  // namespace quarry
