// SPDX-License-Identifier: Apache-2.0
#include "core/fence.hpp"

#include <algorithm>
#include <utility>

#include "core/thread_state.hpp"

namespace quarry {

void Fences::note_waiting(Stream& stream) {
  if (stream.oldest_fence == nullptr && stream.open_fence == nullptr) {
    waiting_streams_.push_back(&stream);
  }
}

Fence& Fences::get_open_fence(Stream& stream) {
  if (stream.open_fence == nullptr) {
    note_waiting(stream);
    Fence& fence = *fences_.take();
    fence.stream = &stream;
    fence.event = EventHandle::kNull;
    fence.next = nullptr;
    fence.has_failed = false;
    stream.open_fence = &fence;
  }
  return *stream.open_fence;
}

void Fences::guard(Block& block, Stream& stream) {
  if (stream.life == StreamLife::kDrained) return;
  ++block.pending_fences;
  if (stream.life == StreamLife::kRetired) {
    stream.newest_fence->waiters.push_back(&block);  // the last there will be
    return;
  }
  get_open_fence(stream).waiters.push_back(&block);
  static_cast<void>(seal(stream));
}

bool Fences::is_capturing(const Stream& stream) noexcept {
  const auto status = driver_.get_capture_status(stream.ref);
  // An error is kCaptureImplicit (the legacy stream under a capture) or a sick device: hands off.
  return !status.is_ok() || status.value != CaptureStatus::kNone;
}

DriverResult<EventHandle> Fences::take_event() noexcept {
  if (spare_events_.empty()) return driver_.create_event(device_);
  const EventHandle event = spare_events_.back();
  spare_events_.pop_back();
  return event;
}

DriverCode Fences::record(EventHandle event, const Stream& stream) {
  const DriverCode code = driver_.record_event(event, stream.ref);
  // A capture that began meanwhile has perhaps taken the event along: it is thrown away unqueried.
  if (is_capturing(stream)) {
    tainted_events_.push_back(event);
    return DriverCode::kCapturedEvent;
  }
  if (code != DriverCode::kSuccess) spare_events_.push_back(event);
  return code;
}

DriverCode Fences::seal(Stream& stream) {
  if (stream.is_per_thread() && stream.thread != get_thread_token()) {
    return DriverCode::kNotPermitted;
  }
  if (is_capturing(stream)) return DriverCode::kCaptureUnsupported;
  const auto event = take_event();
  DriverCode code = event.code;
  if (event.is_ok()) code = record(event.value, stream);
  if (code != DriverCode::kSuccess) {
    if (code != DriverCode::kCapturedEvent) last_error_ = code;
    return code;
  }
  Fence* const fence = std::exchange(stream.open_fence, nullptr);
  fence->event = event.value;
  (stream.newest_fence != nullptr ? stream.newest_fence->next : stream.oldest_fence) = fence;
  stream.newest_fence = fence;
  ++outstanding_;
  return DriverCode::kSuccess;
}

Status Fences::retire(Stream& stream) {
  const bool was_open = stream.open_fence != nullptr;
  get_open_fence(stream);
  const DriverCode code = seal(stream);
  if (code == DriverCode::kSuccess) {
    stream.life = StreamLife::kRetired;
    return Status::ok();
  }
  if (!was_open) {
    fences_.give_back(std::exchange(stream.open_fence, nullptr));
    if (stream.oldest_fence == nullptr) std::erase(waiting_streams_, &stream);
  }
  if (code == DriverCode::kCaptureUnsupported || code == DriverCode::kCapturedEvent) {
    return Status(StatusCode::kBusy,
                  "the stream (or the legacy stream, by a blocking stream) is "
                  "capturing; retire it after the capture has ended");
  }
  if (stream.is_per_thread() && stream.thread != get_thread_token()) {
    return Status(StatusCode::kInvalidArgument,
                  "a per-thread default stream can be retired only by its own thread");
  }
  return Status(StatusCode::kDriverError,
                "the driver failed to record an event: " + describe(code));
}

void Fences::finish(Fence& fence, std::vector<Block*>& done) {
  spare_events_.push_back(fence.event);
  for (Block* block : fence.waiters) {
    if (--block->pending_fences == 0) done.push_back(block);
  }
  fence.waiters.clear();  // keeps its capacity
  fences_.give_back(&fence);
  --outstanding_;
}

void Fences::take_passed(Stream& stream, std::vector<Block*>& done) {
  while (Fence* fence = stream.oldest_fence) {
    const DriverCode code = driver_.query_event(fence->event);
    if (code != DriverCode::kSuccess) {
      // An error means that nothing is known: the blocks stay pending, for ever if it is sticky.
      if (code != DriverCode::kNotReady) {
        last_error_ = code;
        failed_ += std::exchange(fence->has_failed, true) ? 0 : 1;
      }
      return;
    }
    stream.oldest_fence = fence->next;
    if (stream.oldest_fence == nullptr) stream.newest_fence = nullptr;
    finish(*fence, done);
  }
}

void Fences::collect(std::vector<Block*>& done, std::vector<Stream*>& drained) {
  for (std::size_t i = 0; i < waiting_streams_.size();) {
    Stream& stream = *waiting_streams_[i];
    if (stream.open_fence != nullptr) static_cast<void>(seal(stream));
    take_passed(stream, done);
    if (stream.oldest_fence != nullptr || stream.open_fence != nullptr) {
      ++i;
      continue;
    }
    waiting_streams_[i] = waiting_streams_.back();
    waiting_streams_.pop_back();
    if (stream.life == StreamLife::kRetired) {
      stream.life = StreamLife::kDrained;
      ++stream.references;
      drained.push_back(&stream);
    }
  }
}

std::vector<EventHandle> Fences::get_newest_events() const {
  std::vector<EventHandle> events;
  for (const Stream* stream : waiting_streams_) {
    if (stream->newest_fence != nullptr) events.push_back(stream->newest_fence->event);
  }
  return events;
}

std::int64_t Fences::open_count() const noexcept {
  return std::count_if(waiting_streams_.begin(), waiting_streams_.end(),
                       [](const Stream* stream) { return stream->open_fence != nullptr; });
}

DriverCode Fences::take_last_error() noexcept {
  return std::exchange(last_error_, DriverCode::kSuccess);
}

void Fences::destroy_events() noexcept {
  const auto destroy = [this](EventHandle event) {
    static_cast<void>(driver_.destroy_event(event));
  };
  for_each([&](const Fence& fence) {
    if (fence.event != EventHandle::kNull) destroy(fence.event);
  });
  for (EventHandle event : spare_events_)
    destroy(event);
  for (EventHandle event : tainted_events_)
    destroy(event);
  waiting_streams_.clear();
  spare_events_.clear();
  tainted_events_.clear();
}

}  // namespace quarry
