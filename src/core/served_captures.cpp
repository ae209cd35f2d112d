// SPDX-License-Identifier: Apache-2.0
#include "core/served_captures.hpp"

#include <algorithm>
#include <utility>

#include "core/capture_router.hpp"
#include "core/thread_state.hpp"

namespace quarry {
namespace {

bool can_ask(const Stream& stream) noexcept {
  return !stream.is_per_thread() || stream.thread == get_thread_token();
}

}  // namespace

DriverResult<CaptureId> ServedCaptures::find(const Stream& stream) const noexcept {
  if (!stream.is_live() || !can_ask(stream)) return CaptureId::kNone;
  return find_active_capture(driver_, stream.ref);
}

// The calling thread.
bool ServedCaptures::works_in(CaptureId id) const noexcept {
  const std::uint64_t self = get_thread_token();
  return std::ranges::any_of(captures_, [&](const Capture& capture) {
    return capture.id == id && std::ranges::find(capture.threads, self) != capture.threads.end();
  });
}

bool ServedCaptures::is_in(const Stream& stream, CaptureId capture) const noexcept {
  if (!works_in(capture)) return false;
  const auto found = find(stream);
  return found.is_ok() && found.value == capture;
}

bool ServedCaptures::may_be_in_capture(const Stream& stream) const noexcept {
  if (!stream.is_live()) return false;
  if (!can_ask(stream)) return true;
  const auto status = driver_.get_capture_status(stream.ref);
  return !status.is_ok() || status.value != CaptureStatus::kNone;
}

bool ServedCaptures::is_any_of(PoolId pool) const noexcept {
  return std::ranges::any_of(captures_, [&](const auto& capture) { return capture.pool == pool; });
}

ServedCaptures::Capture& ServedCaptures::get(Stream& stream, CaptureId id, PoolId pool) {
  for (Capture& capture : captures_) {
    if (capture.stream == &stream && capture.id == id && capture.pool == pool) return capture;
  }
  Capture& capture = captures_.emplace_back();
  capture.stream = &stream;
  capture.id = id;
  capture.pool = pool;
  ++stream.references;
  return capture;
}

void ServedCaptures::note(Stream& stream, CaptureId id, PoolId pool) {
  const std::uint64_t self = get_thread_token();
  for (Capture& capture : captures_) {
    if (capture.stream == &stream && capture.id != id) capture.is_over = true;
  }
  Capture& capture = get(stream, id, pool);
  capture.thread = self;
  if (std::ranges::find(capture.threads, self) == capture.threads.end()) {
    capture.threads.push_back(self);
  }
}

void ServedCaptures::wait(Block& block, Stream& stream, CaptureId id, PoolId pool) {
  get(stream, id, pool).waiters.push_back(&block);
  ++block.pending_fences;
}

bool ServedCaptures::wait_in_order(Block& block, Stream& stream, CaptureId id, PoolId pool,
                                   const std::vector<const Stream*>& users) {
  Capture& capture = get(stream, id, pool);
  if (capture.thread != get_thread_token()) return false;
  std::vector<GraphNode> markers;
  for (const Stream* user : users) {
    if (driver_.get_capture_frontier(user->ref, markers) != DriverCode::kSuccess) return false;
  }
  if (capture.order->add(block, markers)) ++block.pending_fences;
  return true;
}

bool ServedCaptures::has_ended(const Capture& capture) const noexcept {
  return capture.is_over || !may_be_in_capture(*capture.stream);
}

void ServedCaptures::drop_waits(std::vector<Block*>& blocks, std::size_t from) {
  const auto begin = blocks.begin() + static_cast<std::ptrdiff_t>(from);
  const auto waits = [](Block* block) { return --block->pending_fences > 0; };
  blocks.erase(std::remove_if(begin, blocks.end(), waits), blocks.end());
}

void ServedCaptures::collect_ended(std::vector<Block*>& done) {
  for (std::size_t i = 0; i < captures_.size();) {
    if (!has_ended(captures_[i])) {
      ++i;
      continue;
    }
    const std::size_t from = done.size();
    Capture capture = std::move(captures_[i]);
    captures_[i] = std::move(captures_.back());
    captures_.pop_back();
    done.insert(done.end(), capture.waiters.begin(), capture.waiters.end());
    capture.order->end(done);
    drop_waits(done, from);
    --capture.stream->references;
    streams_.drop_if_unused(*capture.stream);
  }
}

void ServedCaptures::collect_in_order(const Stream& stream, PoolId pool,
                                      std::vector<Block*>& done) {
  const std::size_t from = done.size();
  for (Capture& capture : captures_) {
    if (capture.stream != &stream || capture.pool != pool || capture.order->is_empty()) continue;
    static_cast<void>(capture.order->advance(driver_, stream.ref, done));
  }
  drop_waits(done, from);
}

}  // namespace quarry
