// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a trace come from and go to. A source or sink is any callable: a file, a
// decompressor, a test's string. Files and gzip live in src/tools, so that the library needs no
// zlib. Not thread-safe; each belongs to one reader or writer.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace quarry {

// Fills a prefix of the span and says how long it is; 0 only at the end of the data. A failure's
// text gives the cause alone: the reader adds the name of the trace.
using ByteSource = std::function<Result<std::size_t>(std::span<char>)>;
// Takes all bytes or fails.
using ByteSink = std::function<Status(std::span<const char>)>;

// A window of fixed size that slides over a source: what a parser sees. The kSlackBytes after the
// window's end may be read (not interpreted), so that parsers check bounds once a record.
class InputWindow {
 public:
  static constexpr std::size_t kWindowBytes = 256 * 1024;
  static constexpr std::size_t kSlackBytes = 64;

  explicit InputWindow(ByteSource source);

  // Bytes read and not yet consumed. Valid until the next call of a non-const member.
  std::string_view view() const noexcept { return {buffer_.data() + begin_, end_ - begin_}; }
  void consume(std::size_t count) noexcept { begin_ += count; }
  // The source has no more; what view() shows is the rest.
  bool is_at_end() const noexcept { return is_at_end_; }

  // Moves what is left to the front and reads until the window is full or the source has ended. A
  // failure of the source is returned only when nothing that came before it is left to hand out,
  // so that parsers can name the place.
  Status fill();
  // Reads on until view() has `count` bytes (at most kWindowBytes) or the source has ended.
  Status require(std::size_t count);
  // Adds a line end that the source lacked. Only at its end.
  void append_newline() noexcept;

 private:
  ByteSource source_;
  std::vector<char> buffer_;  // kWindowBytes + kSlackBytes
  std::size_t begin_ = 0;     // of the unconsumed bytes in buffer_
  std::size_t end_ = 0;
  bool is_at_end_ = false;
  Status failure_;  // of the source, not yet returned
};

}  // namespace quarry
