// SPDX-License-Identifier: Apache-2.0
#include "tests/model/segment_functions.hpp"

#include "tests/model/state.hpp"

namespace quarry::model {

SegmentBackend SegmentFunctions::make_backend() {
  const auto self = shared_from_this();
  return {[self](Bytes bytes, StreamRef stream) { return self->allocate(bytes, stream); },
          [self](Address address, Bytes bytes, StreamRef stream) {
            self->free(address, bytes, stream);
          },
          [self] { self->end(); }};
}

Address SegmentFunctions::refuse(Address with) {
  ++refusals_;
  ++state_.tally.refused_segments;
  return with;
}

Address SegmentFunctions::allocate(Bytes bytes, StreamRef stream) {
  if (is_unused_) state_.fail("a segment was asked for after the last call");
  if (!state_.allocator().get_stats(device_).is_ok()) state_.fail("get_stats in a callback");
  const std::uint64_t mood = is_moody_ ? ++calls_ % 7 : 0;
  if (mood == 3) return refuse(0);
  if (mood == 5 && !held_.empty()) return refuse(held_.begin()->first);
  const Bytes shift = mood == 6 ? 64 : 0;
  const auto made = state_.sim().allocate(device_, bytes + shift);
  if (!made.is_ok()) return refuse(0);
  const Address address = made.value + shift;
  held_[address] = {bytes, stream, made.value};
  held_bytes_ += bytes;
  return shift == 0 ? address : refuse(address);
}

void SegmentFunctions::free(Address address, Bytes bytes, StreamRef stream) {
  if (is_unused_) state_.fail("a segment was given back after the last call");
  const auto found = held_.find(address);
  if (found == held_.end()) return state_.fail("a segment was given back that was not held");
  const Segment segment = found->second;
  if (segment.bytes != bytes || segment.stream != stream) {
    state_.fail("a segment was given back as another than was asked for");
  }
  held_.erase(found);
  held_bytes_ -= bytes;
  if (state_.sim().free(device_, segment.address) == DriverCode::kSuccess) return;
  // A driver that is told to fail does so once: here, or when the allocator's bracket was begun.
  CaptureModeBracket bracket(state_.sim());
  static_cast<void>(state_.sim().free(device_, segment.address));
}

void SegmentFunctions::end() {
  if (is_unused_) state_.fail("a pool was said to be unused twice");
  if (!held_.empty()) state_.fail("a pool was said to be unused before its last segment came");
  is_unused_ = true;
}

}  // namespace quarry::model
