// SPDX-License-Identifier: Apache-2.0
#include "core/stream_table.hpp"

#include "core/thread_state.hpp"

namespace quarry {

StreamTable::StreamTable(DeviceId device) : device_(device) {
  idle_ = &add(StreamRef{device, StreamHandle{~0ull}}, 0);
  idle_->passed_number = ~0ull;
  idle_->life = StreamLife::kDrained;
}

StreamTable::Key StreamTable::make_key(StreamHandle handle) noexcept {
  if (handle == StreamHandle::kPerThread) {
    return {static_cast<std::uint64_t>(handle), get_thread_token()};
  }
  return {static_cast<std::uint64_t>(to_canonical(handle)), 0};
}

Stream& StreamTable::add(StreamRef ref, std::uint64_t thread) {
  auto stream = std::make_unique<Stream>();
  stream->ref = ref;
  stream->thread = thread;
  stream->serial = ++last_serial_;
  if (free_indices_.empty()) {
    free_indices_.reserve(streams_.size() + 1);  // so that drop_if_unused never allocates
    stream->index = static_cast<std::uint32_t>(streams_.size());
    streams_.push_back(std::move(stream));
    return *streams_.back();
  }
  stream->index = free_indices_.back();
  free_indices_.pop_back();
  std::unique_ptr<Stream>& place = streams_[stream->index];
  place = std::move(stream);
  return *place;
}

Stream* StreamTable::find(StreamHandle handle) const noexcept {
  const Key key = make_key(handle);
  if (key == last_key_) return last_stream_;
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  last_key_ = key;
  last_stream_ = found->second;
  return found->second;
}

Stream* StreamTable::find_serial(std::uint64_t serial) const noexcept {
  for (const auto& stream : streams_) {
    if (stream != nullptr && stream->serial == serial) return stream.get();
  }
  return nullptr;
}

Stream& StreamTable::find_or_add(StreamHandle handle) {
  if (Stream* stream = find(handle)) return *stream;
  const Key key = make_key(handle);
  const auto [entry, is_new] = by_key_.emplace(key, nullptr);
  static_cast<void>(is_new);
  entry->second = &add(StreamRef{device_, StreamHandle{key.handle}}, key.thread);
  return *entry->second;
}

Stream& StreamTable::add_captured(Stream* base) {
  const StreamRef nobody{device_, StreamHandle{~0ull}};
  Stream& stream = base != nullptr ? add(base->ref, base->thread) : add(nobody, 0);
  stream.is_captured = true;
  stream.base = base;
  stream.references = 1;
  if (base != nullptr) {
    ++base->references;
  } else {
    stream.life = StreamLife::kDrained;
  }
  return stream;
}

void StreamTable::forget_handle(Stream& stream) noexcept {
  by_key_.erase({static_cast<std::uint64_t>(stream.ref.handle), stream.thread});
  last_key_ = {~0ull, ~0ull};
}

void StreamTable::drop_if_unused(Stream& stream) noexcept {
  if (&stream == idle_ || stream.life != StreamLife::kDrained) return;
  if (stream.references > 0 || stream.oldest_fence != nullptr) return;
  if (stream.open_fence != nullptr) return;
  Stream* const base = stream.base;
  const std::uint32_t index = stream.index;
  streams_[index].reset();
  free_indices_.push_back(index);
  if (base == nullptr) return;
  --base->references;
  drop_if_unused(*base);
}

std::vector<Stream*> StreamTable::get_streams_of_thread(std::uint64_t thread) const {
  std::vector<Stream*> found;
  for (const auto& [key, stream] : by_key_) {
    if (key.thread == thread) found.push_back(stream);
  }
  return found;
}

}  // namespace quarry
