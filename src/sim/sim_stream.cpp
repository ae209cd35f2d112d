// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_stream.hpp"

#include <algorithm>

namespace quarry::sim {
namespace {

constexpr std::uint64_t kFirstHandle = 0x5500'0000'1000;
constexpr std::uint64_t kHandleStride = 16;

}  // namespace

StreamTable::StreamTable(const SimOptions& options, VirtualClock& clock, Timelines& timelines)
    : options_(options), clock_(clock), timelines_(timelines), devices_(options.device_count) {
  for (DeviceId device = 0; device < options.device_count; ++device)
    reset_device(device);
}

StreamIndex StreamTable::create(DeviceId device, StreamKind kind) {
  const StreamIndex index = add(device, kind, StreamHandle::kLegacy);
  at(index).ref.handle = take_handle(index);
  at(index).timeline = timelines_.add(at(index).ref, at(index).id, false);
  return index;
}

void StreamTable::destroy(StreamIndex index) {
  Stream& stream = at(index);
  stream.is_destroyed = true;
  timelines_.retire(stream.timeline);
  const auto handle = static_cast<std::uint64_t>(stream.ref.handle);
  if (options_.reuse_stream_handles && handle >= kFirstHandle) {
    free_slots_.push(static_cast<std::uint32_t>((handle - kFirstHandle) / kHandleStride));
  }
}

void StreamTable::reset_device(DeviceId device) {
  for (Stream& stream : streams_) {
    if (stream.ref.device != device || stream.is_destroyed) continue;
    stream.open.clear();
    stream.end_ns = 0;
    stream.capture = 0;
    timelines_.host_sees_all(stream.timeline);
    destroy(stream.index);
  }
  resolve_all();
  devices_[device] = {};
  const StreamIndex legacy = add(device, StreamKind::kBlocking, StreamHandle::kLegacy);
  at(legacy).is_legacy = true;
  at(legacy).timeline = timelines_.add(at(legacy).ref, at(legacy).id, false);
  devices_[device].legacy = legacy;
}

StreamTable::Found StreamTable::find(StreamRef ref, ThreadId thread, StreamIndex& stream) {
  if (ref.device < 0 || ref.device >= options_.device_count) return Found::kUnknown;
  const auto handle = static_cast<std::uint64_t>(ref.handle);
  if (ref.handle == StreamHandle::kPerThread ||
      (ref.handle == StreamHandle::kLegacy && options_.per_thread_default_streams)) {
    stream = per_thread(ref.device, thread);
    return Found::kOk;
  }
  if (handle <= static_cast<std::uint64_t>(StreamHandle::kLegacyExplicit)) {
    stream = devices_[ref.device].legacy;
    return Found::kOk;
  }
  const std::uint64_t slot = (handle - kFirstHandle) / kHandleStride;
  if (handle < kFirstHandle || handle % kHandleStride != 0 || slot >= by_handle_.size()) {
    return Found::kUnknown;
  }
  stream = by_handle_[slot];
  if (at(stream).is_destroyed) return Found::kDestroyed;
  return at(stream).ref.device == ref.device ? Found::kOk : Found::kUnknown;
}

StreamIndex StreamTable::per_thread(DeviceId device, ThreadId thread) {
  const auto [entry, is_new] = devices_[device].per_thread.try_emplace(thread);
  if (is_new) entry->second = create(device, StreamKind::kBlocking);
  return entry->second;
}

std::uint64_t StreamTable::submit(StreamIndex index, WorkTime time) {
  Stream& stream = at(index);
  enter(stream);
  const std::uint64_t sequence = timelines_.act(stream.timeline);
  if (time.kind == WorkTime::Kind::kEndless || !stream.open.empty()) {
    push_open(stream, sequence, time, {});
  } else {
    stream.end_ns = end_after(std::max(stream.end_ns, clock_.now_ns()), time);
  }
  publish_legacy_work(stream);
  return sequence;
}

Mark StreamTable::mark(StreamIndex index) {
  Stream& stream = at(index);
  enter(stream);
  return {index, timelines_.position(stream.timeline), stream.end_ns};
}

void StreamTable::wait(StreamIndex index, std::span<const Mark> marks) {
  Stream& stream = at(index);
  enter(stream);
  std::vector<Mark> needs;
  for (const Mark& mark : marks)
    join(stream, mark, needs);
  if (!needs.empty()) {
    push_open(stream, timelines_.sequence(stream.timeline), {}, std::move(needs));
  }
  publish_legacy_work(stream);
}

void StreamTable::mark_device(DeviceId device, std::vector<Mark>& marks) {
  drop_finished(device);
  for (const StreamIndex index : devices_[device].busy) {
    const Stream& stream = at(index);
    marks.push_back({index, timelines_.position(stream.timeline), stream.end_ns});
  }
}

void StreamTable::host_sees_device(DeviceId device) {
  for (const StreamIndex index : devices_[device].busy) {
    timelines_.host_sees_all(at(index).timeline);
  }
  drop_finished(device);
}

std::uint64_t StreamTable::end_of(const Mark& mark) {
  if (mark.end_ns != kNever) return mark.end_ns;
  const auto& open = at(mark.stream).open;
  const auto after = std::upper_bound(
      open.begin(), open.end(), mark.position.sequence,
      [](std::uint64_t sequence, const OpenWork& work) { return sequence < work.sequence; });
  // Work leaves `open` when it has ended.
  return after == open.begin() ? 0 : std::prev(after)->end_ns;
}

bool StreamTable::wait_for(const Mark& mark) {
  if (end_of(mark) == kNever) {
    if (!options_.waits_end_endless_work) return false;
    release(at(mark.stream), mark.position.sequence);
    resolve_all();
  }
  clock_.advance_to(end_of(mark));
  return true;
}

bool StreamTable::wait_for_device(DeviceId device) {
  std::vector<Mark> marks;
  mark_device(device, marks);
  return std::all_of(marks.begin(), marks.end(),
                     [this](const Mark& mark) { return wait_for(mark); });
}

void StreamTable::complete(StreamIndex index) {
  Stream& stream = at(index);
  release(stream, timelines_.sequence(stream.timeline));
  resolve_all();
  clock_.advance_to(stream.end_ns);
}

std::size_t StreamTable::busy_count(DeviceId device) {
  drop_finished(device);
  const auto& busy = devices_[device].busy;
  return static_cast<std::size_t>(std::count_if(
      busy.begin(), busy.end(), [this](StreamIndex i) { return at(i).end_ns > clock_.now_ns(); }));
}

StreamIndex StreamTable::add(DeviceId device, StreamKind kind, StreamHandle handle) {
  const auto index = static_cast<StreamIndex>(streams_.size());
  Stream& stream = streams_.emplace_back();
  stream.index = index;
  stream.ref = {device, handle};
  stream.id = static_cast<StreamId>(streams_.size());
  stream.kind = kind;
  return index;
}

StreamHandle StreamTable::take_handle(StreamIndex stream) {
  if (free_slots_.empty()) {
    free_slots_.push(static_cast<std::uint32_t>(by_handle_.size()));
    by_handle_.push_back(stream);
  }
  const std::uint32_t slot = free_slots_.top();
  free_slots_.pop();
  by_handle_[slot] = stream;
  return static_cast<StreamHandle>(kFirstHandle + slot * kHandleStride);
}

void StreamTable::enter(Stream& stream) {
  list(stream);
  drop_ended(stream);
  if (stream.is_legacy) return enter_legacy(stream);
  if (stream.kind != StreamKind::kBlocking) return;
  const Mark& legacy = devices_[stream.ref.device].legacy_work;
  if (legacy.position.sequence <= stream.legacy_seen) return;
  stream.legacy_seen = legacy.position.sequence;
  std::vector<Mark> needs;
  join(stream, legacy, needs);
  if (needs.empty()) return;
  push_open(stream, timelines_.sequence(stream.timeline), {}, std::move(needs));
}

void StreamTable::enter_legacy(Stream& legacy) {
  auto& blocking = devices_[legacy.ref.device].blocking_since_legacy;
  if (blocking.empty()) return;
  std::vector<Mark> needs;
  for (const StreamIndex index : blocking) {
    Stream& stream = at(index);
    stream.is_listed_blocking = false;
    join(legacy, {index, timelines_.position(stream.timeline), stream.end_ns}, needs);
  }
  blocking.clear();
  if (needs.empty()) return;
  push_open(legacy, timelines_.sequence(legacy.timeline), {}, std::move(needs));
}

void StreamTable::list(Stream& stream) {
  Device& device = devices_[stream.ref.device];
  if (!stream.is_listed_busy) {
    stream.is_listed_busy = true;
    device.busy.push_back(stream.index);
  }
  if (stream.is_legacy || stream.kind != StreamKind::kBlocking) return;
  if (stream.is_listed_blocking) return;
  stream.is_listed_blocking = true;
  device.blocking_since_legacy.push_back(stream.index);
}

void StreamTable::join(Stream& stream, const Mark& mark, std::vector<Mark>& needs) {
  timelines_.join(stream.timeline, mark.position);
  const std::uint64_t end_ns = end_of(mark);
  const bool is_open = end_ns == kNever || !stream.open.empty();
  if (is_open) {
    needs.push_back(mark);
  } else {
    stream.end_ns = std::max(stream.end_ns, end_ns);
  }
}

void StreamTable::push_open(Stream& stream, std::uint64_t sequence, WorkTime time,
                            std::vector<Mark> needs) {
  if (!stream.is_listed_open) {
    stream.is_listed_open = true;
    open_streams_.push_back(stream.index);
  }
  const std::uint64_t not_before_ns = stream.open.empty() ? stream.end_ns : 0;
  stream.open.push_back({sequence, time, std::move(needs), not_before_ns, kNever, false});
  stream.end_ns = kNever;
  resolve(stream);
}

void StreamTable::release(Stream& stream, std::uint64_t sequence) {
  for (OpenWork& work : stream.open) {
    if (work.sequence > sequence) break;
    if (work.end_ns != kNever || work.is_released) continue;
    work.is_released = true;
    if (work.time.kind == WorkTime::Kind::kEndless) work.time = WorkTime::until_ns(0);
    for (const Mark& need : work.needs)
      release(at(need.stream), need.position.sequence);
  }
}

void StreamTable::resolve_all() {
  bool has_changed = true;
  while (has_changed) {
    has_changed = false;
    for (const StreamIndex index : open_streams_)
      has_changed |= resolve(at(index));
  }
  std::erase_if(open_streams_, [this](StreamIndex index) {
    Stream& stream = at(index);
    drop_ended(stream);
    stream.is_listed_open = !stream.open.empty();
    return stream.open.empty();
  });
}

void StreamTable::drop_ended(Stream& stream) {
  while (!stream.open.empty() && stream.open.front().end_ns <= clock_.now_ns()) {
    stream.open.pop_front();
  }
}

bool StreamTable::resolve(Stream& stream) {
  bool has_changed = false;
  std::uint64_t before_ns = 0;
  for (OpenWork& work : stream.open) {
    if (work.end_ns == kNever) {
      if (before_ns == kNever || work.time.kind == WorkTime::Kind::kEndless) break;
      std::uint64_t start_ns = std::max({before_ns, work.not_before_ns, clock_.now_ns()});
      for (const Mark& need : work.needs)
        start_ns = std::max(start_ns, end_of(need));
      if (start_ns == kNever) break;
      work.end_ns = end_after(start_ns, work.time);
      has_changed = true;
    }
    before_ns = work.end_ns;
  }
  if (has_changed) stream.end_ns = stream.open.back().end_ns;
  return has_changed;
}

std::uint64_t StreamTable::end_after(std::uint64_t start_ns, WorkTime time) const {
  if (time.kind == WorkTime::Kind::kUntil) return std::max(start_ns, time.ns);
  return start_ns + time.ns;
}

void StreamTable::publish_legacy_work(Stream& stream) {
  if (!stream.is_legacy) return;
  devices_[stream.ref.device].legacy_work = {stream.index, timelines_.position(stream.timeline),
                                             stream.end_ns};
}

void StreamTable::drop_finished(DeviceId device) {
  std::erase_if(devices_[device].busy, [this](StreamIndex index) {
    Stream& stream = at(index);
    const bool is_done = stream.end_ns <= clock_.now_ns() &&
                         (!options_.oracle || timelines_.host_saw_all(stream.timeline));
    if (is_done) stream.is_listed_busy = false;
    return is_done;
  });
}

}  // namespace quarry::sim
