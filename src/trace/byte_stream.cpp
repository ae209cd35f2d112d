// SPDX-License-Identifier: Apache-2.0
// The sliding window between a byte source and a parser.
#include "trace/byte_stream.hpp"

#include <cstring>
#include <utility>

namespace quarry {

InputWindow::InputWindow(ByteSource source)
    : source_(std::move(source)), buffer_(kWindowBytes + kSlackBytes) {}

Status InputWindow::fill() {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const std::size_t before = end_;
  while (!is_at_end_ && failure_.is_ok() && end_ < kWindowBytes) {
    Result<std::size_t> count =
        source_(std::span<char>(buffer_.data() + end_, kWindowBytes - end_));
    if (!count.is_ok()) {
      failure_ = std::move(count).status();
      break;
    }
    QUARRY_CHECK_GE(kWindowBytes - end_, count.value());
    is_at_end_ = count.value() == 0;
    end_ += count.value();
  }
  return end_ == before ? std::exchange(failure_, Status::ok()) : Status::ok();
}

Status InputWindow::require(std::size_t count) {
  QUARRY_CHECK_GE(kWindowBytes, count);
  if (view().size() >= count || is_at_end_) return Status::ok();
  if (Status status = fill(); !status.is_ok()) return status;
  if (view().size() >= count) return Status::ok();
  return std::exchange(failure_, Status::ok());
}

void InputWindow::append_newline() noexcept {
  QUARRY_CHECK(is_at_end_);
  QUARRY_CHECK_GE(buffer_.size(), end_ + 1);
  buffer_[end_++] = '\n';
}

}  // namespace quarry
