// SPDX-License-Identifier: Apache-2.0
// zlib behind byte sources and sinks.
#include "tools/gzip_stream.hpp"

#include <zlib.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

namespace quarry::tools {
namespace {

constexpr std::size_t kInputBytes = 64 * 1024;
// Of inflateInit2 and deflateInit2: the largest window, with gzip's header and trailer.
constexpr int kGzipWindowBits = 15 + 16;

Status make_failure(std::string cause) {
  return Status(StatusCode::kInvalidArgument, std::move(cause));
}

unsigned char* as_zlib(char* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}

class Gunzip {
 public:
  explicit Gunzip(ByteSource compressed)
      : compressed_(std::move(compressed)), input_(kInputBytes) {}
  ~Gunzip() {
    if (state_ == State::kInMember) inflateEnd(&stream_);
  }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  Result<std::size_t> read(std::span<char> out) {
    if (state_ == State::kStart) {
      if (Status status = recognise(); !status.is_ok()) return status;
    }
    if (state_ == State::kPlain) return read_plain(out);
    return inflate_into(out);
  }

 private:
  enum class State { kStart, kPlain, kInMember, kBetweenMembers };

  Status recognise() {
    state_ = State::kBetweenMembers;
    if (Status status = refill(); !status.is_ok()) return status;
    state_ = is_member_ahead() ? State::kBetweenMembers : State::kPlain;
    return Status::ok();
  }

  bool is_member_ahead() const {
    return end_ - begin_ >= 2 && input_[begin_] == '\x1f' && input_[begin_ + 1] == '\x8b';
  }

  // Appends to the first `kept` bytes of input_.
  Status read_input(std::size_t kept) {
    Result<std::size_t> count =
        compressed_(std::span<char>(input_.data() + kept, input_.size() - kept));
    if (!count.is_ok()) return std::move(count).status();
    end_ = kept + count.value();
    is_at_end_ = count.value() == 0;
    return Status::ok();
  }

  Result<std::size_t> read_plain(std::span<char> out) {
    if (begin_ == end_) return compressed_(out);
    const std::size_t count = std::min(out.size(), end_ - begin_);
    std::copy_n(input_.data() + begin_, count, out.data());
    begin_ += count;
    return count;
  }

  Result<std::size_t> inflate_into(std::span<char> out) {
    stream_.next_out = as_zlib(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    while (stream_.avail_out == out.size()) {
      if (Status status = refill(); !status.is_ok()) return status;
      if (begin_ == end_) {
        if (state_ == State::kBetweenMembers) return std::size_t{0};
        return make_failure("the gzip data is cut: it ends within a member");
      }
      if (Status status = inflate_some(); !status.is_ok()) return status;
    }
    return out.size() - stream_.avail_out;
  }

  // Makes input available: two bytes between members (to tell what follows), else one.
  Status refill() {
    const std::size_t needed = state_ == State::kBetweenMembers ? 2 : 1;
    while (end_ - begin_ < needed && !is_at_end_) {
      std::copy(input_.begin() + static_cast<std::ptrdiff_t>(begin_),
                input_.begin() + static_cast<std::ptrdiff_t>(end_), input_.begin());
      end_ -= std::exchange(begin_, 0);
      if (Status status = read_input(end_); !status.is_ok()) return status;
    }
    return Status::ok();
  }

  Status inflate_some() {
    if (state_ == State::kBetweenMembers) {
      if (!is_member_ahead()) return make_failure("something follows the gzip data");
      if (inflateInit2(&stream_, kGzipWindowBits) != Z_OK) return make_failure("zlib failed");
      state_ = State::kInMember;
    }
    stream_.next_in = as_zlib(input_.data() + begin_);
    stream_.avail_in = static_cast<uInt>(end_ - begin_);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    begin_ = end_ - stream_.avail_in;
    if (code == Z_STREAM_END) {
      inflateEnd(&stream_);
      state_ = State::kBetweenMembers;
      return Status::ok();
    }
    if (code == Z_OK || code == Z_BUF_ERROR) return Status::ok();
    const char* const cause = stream_.msg != nullptr ? stream_.msg : "unknown";
    return make_failure("the gzip data is damaged: " + std::string(cause));
  }

  ByteSource compressed_;
  std::vector<char> input_;
  std::size_t begin_ = 0;  // of what is not yet inflated in input_
  std::size_t end_ = 0;
  bool is_at_end_ = false;
  State state_ = State::kStart;
  z_stream stream_{};
};

class Gzip {
 public:
  explicit Gzip(ByteSink compressed) : compressed_(std::move(compressed)), output_(kInputBytes) {
    is_ready_ = deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindowBits,
                             kMemoryLevel, Z_DEFAULT_STRATEGY) == Z_OK;
  }
  ~Gzip() { deflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  Status write(std::span<const char> bytes) {
    if (!is_ready_) return make_failure("zlib failed");
    stream_.next_in = as_zlib(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    const int flush = bytes.empty() ? Z_FINISH : Z_NO_FLUSH;
    do {
      stream_.next_out = as_zlib(output_.data());
      stream_.avail_out = static_cast<uInt>(output_.size());
      if (deflate(&stream_, flush) == Z_STREAM_ERROR) return make_failure("zlib failed");
      const std::size_t count = output_.size() - stream_.avail_out;
      if (count == 0) continue;
      if (Status status = compressed_({output_.data(), count}); !status.is_ok()) return status;
    } while (stream_.avail_out == 0);
    return Status::ok();
  }

 private:
  static constexpr int kMemoryLevel = 8;  // zlib's default

  ByteSink compressed_;
  std::vector<char> output_;
  z_stream stream_{};
  bool is_ready_ = false;
};

}  // namespace

ByteSource make_gunzip_source(ByteSource compressed) {
  auto gunzip = std::make_shared<Gunzip>(std::move(compressed));
  return [gunzip](std::span<char> out) { return gunzip->read(out); };
}

ByteSink make_gzip_sink(ByteSink compressed) {
  auto gzip = std::make_shared<Gzip>(std::move(compressed));
  return [gzip](std::span<const char> bytes) { return gzip->write(bytes); };
}

}  // namespace quarry::tools
