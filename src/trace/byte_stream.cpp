// SPDX-License-Identifier: Apache-2.0
// The sliding window between a byte source and a parser.
#include "trace/byte_stream.hpp"

#include <cstring>

namespace quarry {

InputWindow::InputWindow(ByteSource source)
    : source_(std::move(source)), buffer_(kWindowBytes + kSlackBytes) {}

Status InputWindow::fill() {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  while (!is_at_end_ && end_ < kWindowBytes) {
    Result<std::size_t> count =
        source_(std::span<char>(buffer_.data() + end_, kWindowBytes - end_));
    if (!count.is_ok()) return std::move(count).status();
    QUARRY_CHECK_GE(kWindowBytes - end_, count.value());
    is_at_end_ = count.value() == 0;
    end_ += count.value();
  }
  return Status::ok();
}

Status InputWindow::require(std::size_t count) {
  QUARRY_CHECK_GE(kWindowBytes, count);
  if (view().size() >= count || is_at_end_) return Status::ok();
  return fill();
}

void InputWindow::append_newline() noexcept {
  QUARRY_CHECK(is_at_end_);
  QUARRY_CHECK_GE(buffer_.size(), end_ + 1);
  buffer_[end_++] = '\n';
}

}  // namespace quarry
