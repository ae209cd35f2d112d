// SPDX-License-Identifier: Apache-2.0
// Traces in files and on standard input and output, packed or not. The format of an input is told
// by its content, never by its name. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trace/trace_reader.hpp"
#include "trace/trace_writer.hpp"

namespace quarry::tools {

// The path that stands for standard input or output.
inline constexpr std::string_view kStandardStream = "-";

// As std::string::ends_with, in ASCII without case. Names of outputs are understood so.
bool has_suffix(std::string_view path, std::string_view suffix);

// A trace that can be read from its start several times.
class TraceFile {
 public:
  // Standard input and pipes are copied to an unnamed temporary file if they must be read more
  // than once.
  static Result<std::unique_ptr<TraceFile>> open(const std::string& path, bool is_read_once);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // A reader from the start; the one before it is of no more use. Must not outlive this object.
  Result<std::unique_ptr<TraceReader>> rewind();

  // What part of the file the current reader has taken in; 0 where that cannot be known.
  double get_progress() const noexcept;

 private:
  TraceFile(int descriptor, std::string name, bool owns_descriptor);

  int descriptor_;
  std::string name_;
  bool owns_descriptor_;
  bool is_seekable_;
  std::uint64_t file_bytes_ = 0;  // 0: unknown
  std::uint64_t read_bytes_ = 0;  // by the current reader
};

// Writes events to a file that appears under its name only when it is whole, or to standard
// output. The data is gzip'd if the name ends in ".gz". A symbolic link stays one, and a file that
// is replaced hands on its mode.
class TraceFileWriter {
 public:
  static Result<std::unique_ptr<TraceFileWriter>> create(const std::string& path,
                                                         TraceFormat format);
  // Without finish() before: removes what was written.
  ~TraceFileWriter();
  TraceFileWriter(const TraceFileWriter&) = delete;
  TraceFileWriter& operator=(const TraceFileWriter&) = delete;

  Status write(std::span<const TraceEvent> events);
  Status finish();
  std::uint64_t written_bytes() const noexcept { return written_bytes_; }

 private:
  TraceFileWriter(int descriptor, std::string path, TraceFormat format);
  Status write_bytes(std::span<const char> bytes);
  Status fail(const char* action) const;
  void remove_partial() const noexcept;

  int descriptor_;
  std::string path_;          // as the user gave it
  std::string target_path_;   // the same without symbolic links
  std::string partial_path_;  // empty where the data is written in place
  ByteSink file_sink_;        // write_bytes, or gzip in front of it
  bool is_packed_;
  std::unique_ptr<TraceWriter> writer_;
  std::uint64_t written_bytes_ = 0;
};

}  // namespace quarry::tools
