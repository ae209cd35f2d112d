// SPDX-License-Identifier: Apache-2.0
#include "core/fence.hpp"

#include <algorithm>
#include <utility>

#include "core/thread_state.hpp"

namespace quarry {

void Fences::note_waiting(Stream& stream) {
  if (!has_any(stream)) {
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
  ++waits_;
  if (stream.life == StreamLife::kRetired) {
    stream.newest_fence->waiters.push_back(&block);  // the last there will be
    return;
  }
  get_open_fence(stream).waiters.push_back(&block);
  static_cast<void>(seal(stream));
}

void Fences::cover(Stream& stream) {
  if (!stream.is_live()) return;  // its last fence covers all
  get_open_fence(stream);
  static_cast<void>(seal(stream));
}

bool Fences::order(const Stream& earlier, const Stream& later) {
  if (earlier.newest_fence == nullptr) return true;
  if (later.is_per_thread() && later.thread != get_thread_token()) return false;
  if (!later.is_live() || check_not_capturing(later) != DriverCode::kSuccess) return false;
  // A stream that waits for an event which a capture has taken along would join that capture.
  const EventHandle event = earlier.newest_fence->event;
  const DriverCode code = driver_.query_event(event);
  if (code == DriverCode::kNotReady) {
    return driver_.wait_event(later.ref, event) == DriverCode::kSuccess;
  }
  return code == DriverCode::kSuccess;
}

void Fences::take_ordered(const Stream& owner, const std::vector<Stream*>& earlier,
                          std::vector<Block*>& done) {
  for (const Stream* stream : earlier) {
    for (Fence* fence = stream->oldest_fence; fence != nullptr; fence = fence->next) {
      waits_ -= static_cast<std::int64_t>(std::erase_if(fence->waiters, [&](Block* block) {
        if (block->owner != &owner) return false;
        if (--block->pending_fences == 0) done.push_back(block);
        return true;
      }));
    }
  }
}

void Fences::take_waiters(const std::set<Block*>& blocks, std::vector<Block*>& done) {
  for (const Stream* stream : waiting_streams_) {
    for (Fence* fence = stream->oldest_fence; fence != nullptr; fence = fence->next) {
      waits_ -= static_cast<std::int64_t>(std::erase_if(fence->waiters, [&](Block* block) {
        if (!blocks.contains(block)) return false;
        if (--block->pending_fences == 0) done.push_back(block);
        return true;
      }));
    }
  }
}

// kSuccess; kCaptureUnsupported if the stream, or what poisons the legacy stream, is capturing; or
// the error of a driver that cannot say.
DriverCode Fences::check_not_capturing(const Stream& stream) noexcept {
  const auto status = driver_.get_capture_status(stream.ref);
  if (status.code == DriverCode::kCaptureImplicit) return DriverCode::kCaptureUnsupported;
  if (!status.is_ok()) return status.code;
  return status.value == CaptureStatus::kNone ? DriverCode::kSuccess
                                              : DriverCode::kCaptureUnsupported;
}

void Fences::note_error(DriverCode code) noexcept {
  if (std::exchange(noted_error_, code) != code) last_error_ = code;
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
  if (check_not_capturing(stream) != DriverCode::kSuccess) {
    tainted_events_.push_back(event);
    return code == DriverCode::kSuccess ? DriverCode::kCaptureUnsupported : code;
  }
  if (code != DriverCode::kSuccess) spare_events_.push_back(event);
  return code;
}

// An event that completes with what was submitted to `stream` so far; or why there is none.
DriverResult<EventHandle> Fences::record_now(const Stream& stream) {
  if (stream.is_per_thread() && stream.thread != get_thread_token()) {
    return DriverCode::kNotPermitted;
  }
  DriverCode code = check_not_capturing(stream);
  if (code == DriverCode::kCaptureUnsupported) return code;
  DriverResult<EventHandle> event = code;
  if (code == DriverCode::kSuccess) {
    event = take_event();
    code = event.is_ok() ? record(event.value, stream) : event.code;
  }
  if (code == DriverCode::kSuccess) return event;
  if (code != DriverCode::kCaptureUnsupported) note_error(code);
  return code;
}

bool Fences::is_finished(const Stream& stream) {
  const auto event = record_now(stream);
  if (!event.is_ok()) return false;
  const DriverCode code = driver_.query_event(event.value);
  (code == DriverCode::kCapturedEvent ? tainted_events_ : spare_events_).push_back(event.value);
  return code == DriverCode::kSuccess;
}

DriverCode Fences::seal(Stream& stream) {
  const auto event = record_now(stream);
  if (!event.is_ok()) return event.code;
  Fence* const fence = std::exchange(stream.open_fence, nullptr);
  fence->event = event.value;
  fence->number = stream.fence_number++;
  stream.has_uncovered_frees = false;
  (stream.newest_fence != nullptr ? stream.newest_fence->next : stream.oldest_fence) = fence;
  stream.newest_fence = fence;
  ++outstanding_;
  ++seals_;
  noted_error_ = DriverCode::kSuccess;
  return DriverCode::kSuccess;
}

Status Fences::retire(Stream& stream) {
  const bool was_open = stream.open_fence != nullptr;
  get_open_fence(stream);
  DriverCode code = seal(stream);
  // Of a live stream an event that a capture took along can be recorded anew; here it is the last.
  if (code == DriverCode::kSuccess &&
      driver_.query_event(stream.newest_fence->event) == DriverCode::kCapturedEvent) {
    reopen(stream, *stream.newest_fence);
    code = DriverCode::kCaptureUnsupported;
  }
  if (code == DriverCode::kSuccess) {
    stream.life = StreamLife::kRetired;
    ++retiring_streams_;
    return Status::ok();
  }
  if (!was_open) {
    fences_.give_back(std::exchange(stream.open_fence, nullptr));
    if (stream.oldest_fence == nullptr) std::erase(waiting_streams_, &stream);
  }
  if (code == DriverCode::kCaptureUnsupported) {
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

// A capture has taken the fence's event along: its waiters wait for a new one.
void Fences::reopen(Stream& stream, Fence& captured) {
  Fence* before = stream.oldest_fence == &captured ? nullptr : stream.oldest_fence;
  while (before != nullptr && before->next != &captured)
    before = before->next;
  (before != nullptr ? before->next : stream.oldest_fence) = captured.next;
  if (stream.newest_fence == &captured) stream.newest_fence = before;
  captured.next = nullptr;
  tainted_events_.push_back(captured.event);
  captured.event = EventHandle::kNull;
  --outstanding_;
  if (stream.open_fence == nullptr) {
    stream.open_fence = &captured;
    return;
  }
  auto& waiters = stream.open_fence->waiters;
  waiters.insert(waiters.end(), captured.waiters.begin(), captured.waiters.end());
  captured.waiters.clear();
  fences_.give_back(&captured);
}

void Fences::finish(Fence& fence, std::vector<Block*>& done) {
  spare_events_.push_back(fence.event);
  for (Block* block : fence.waiters) {
    if (--block->pending_fences == 0) done.push_back(block);
  }
  waits_ -= static_cast<std::int64_t>(fence.waiters.size());
  fence.waiters.clear();  // keeps its capacity
  fences_.give_back(&fence);
  --outstanding_;
}

void Fences::take_passed(Stream& stream, std::vector<Block*>& done) {
  while (Fence* fence = stream.oldest_fence) {
    const DriverCode code = driver_.query_event(fence->event);
    if (code == DriverCode::kCapturedEvent && stream.is_live()) {
      reopen(stream, *fence);
      return;
    }
    if (code != DriverCode::kSuccess) {
      // An error means that nothing is known: the blocks stay pending, for ever if it is sticky.
      if (code != DriverCode::kNotReady) {
        note_error(code);
        failed_ += std::exchange(fence->has_failed, true) ? 0 : 1;
      }
      return;
    }
    stream.oldest_fence = fence->next;
    if (stream.oldest_fence == nullptr) stream.newest_fence = nullptr;
    stream.passed_number = fence->number;
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
      --retiring_streams_;
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
