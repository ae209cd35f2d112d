// SPDX-License-Identifier: Apache-2.0
// Files behind trace readers and writers.
#include "tools/trace_file.hpp"

#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tools/gzip_stream.hpp"

namespace quarry::tools {
namespace {

constexpr std::size_t kCopyBytes = 64 * 1024;

Status make_system_failure(const std::string& action) {
  return Status(StatusCode::kInvalidArgument, action + ": " + std::strerror(errno));
}

Result<std::size_t> read_some(int descriptor, std::span<char> out) {
  for (;;) {
    const ssize_t count = ::read(descriptor, out.data(), out.size());
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR) return make_system_failure("cannot read");
  }
}

Status write_all(int descriptor, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) return make_system_failure("cannot write");
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return Status::ok();
}

// Where a chain of symbolic links ends, whether or not something is there.
Result<std::string> follow_links(std::string path) {
  constexpr int kMostLinks = 40;  // as Linux
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) return path;
    path = (std::filesystem::path(path).parent_path() / target).string();
  }
  errno = ELOOP;
  return make_system_failure("cannot create");
}

// What errors call a path.
std::string make_name(const std::string& path) {
  return path.empty() ? std::string("\"\"") : path;
}

// A descriptor of an unnamed file with the contents of `source`, from its start.
Result<int> copy_to_temporary(int source) {
  std::FILE* const file = std::tmpfile();
  if (file == nullptr) return make_system_failure("cannot make a temporary file");
  const int copy = ::dup(fileno(file));
  std::fclose(file);
  if (copy < 0) return make_system_failure("cannot make a temporary file");
  std::vector<char> bytes(kCopyBytes);
  for (;;) {
    Result<std::size_t> count = read_some(source, bytes);
    Status status =
        count.is_ok() ? write_all(copy, {bytes.data(), count.value()}) : std::move(count).status();
    if (!status.is_ok()) {
      ::close(copy);
      return status;
    }
    if (count.value() == 0) return copy;
  }
}

}  // namespace

bool has_suffix(std::string_view path, std::string_view suffix) {
  return path.size() >= suffix.size() && ::strncasecmp(path.data() + (path.size() - suffix.size()),
                                                       suffix.data(), suffix.size()) == 0;
}

Result<std::unique_ptr<TraceFile>> TraceFile::open(const std::string& path, bool is_read_once) {
  const bool is_standard = path == kStandardStream;
  const std::string name = is_standard ? "standard input" : make_name(path);
  const int descriptor = is_standard ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return make_system_failure(name + ": cannot open");
  std::unique_ptr<TraceFile> file(new TraceFile(descriptor, name, !is_standard));
  // Standard input may be shared with others, and a pipe has no start to go back to.
  if (is_read_once || (file->is_seekable_ && !is_standard)) return file;
  Result<int> copy = copy_to_temporary(descriptor);
  if (copy.is_ok()) return std::unique_ptr<TraceFile>(new TraceFile(copy.value(), name, true));
  return Status(copy.code(), name + ": " + std::string(copy.status().message()));
}

TraceFile::TraceFile(int descriptor, std::string name, bool owns_descriptor)
    : descriptor_(descriptor), name_(std::move(name)), owns_descriptor_(owns_descriptor) {
  struct stat status {};
  is_seekable_ = ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  if (is_seekable_) file_bytes_ = static_cast<std::uint64_t>(status.st_size);
}

TraceFile::~TraceFile() {
  if (owns_descriptor_) ::close(descriptor_);
}

Result<std::unique_ptr<TraceReader>> TraceFile::rewind() {
  if (owns_descriptor_ && is_seekable_ && ::lseek(descriptor_, 0, SEEK_SET) < 0) {
    return make_system_failure(name_ + ": cannot rewind");
  }
  read_bytes_ = 0;
  ByteSource file = [this](std::span<char> out) {
    Result<std::size_t> count = read_some(descriptor_, out);
    if (count.is_ok()) read_bytes_ += count.value();
    return count;
  };
  return TraceReader::open(make_gunzip_source(std::move(file)), name_);
}

double TraceFile::get_progress() const noexcept {
  if (file_bytes_ == 0) return 0.0;
  return static_cast<double>(read_bytes_) / static_cast<double>(file_bytes_);
}

Result<std::unique_ptr<TraceFileWriter>> TraceFileWriter::create(const std::string& path,
                                                                 TraceFormat format) {
  std::string partial_path;
  std::string target_path;
  int descriptor = STDOUT_FILENO;
  if (path.empty()) {
    errno = ENOENT;
    return make_system_failure(make_name(path) + ": cannot create");
  }
  if (path != kStandardStream) {
    // Devices and pipes are written in place; the others appear when they are whole.
    Result<std::string> target = follow_links(path);
    if (!target.is_ok()) {
      return Status(target.code(), path + ": " + std::string(target.status().message()));
    }
    target_path = std::move(target).value();
    struct stat status {};
    const bool is_there = ::stat(path.c_str(), &status) == 0;
    const bool is_special = is_there && !S_ISREG(status.st_mode);
    if (!is_special) partial_path = target_path + ".partial";
    constexpr int kMode = 0666;  // less the process's umask
    descriptor =
        is_special ? ::open(path.c_str(), O_WRONLY | O_CLOEXEC)
                   : ::open(partial_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode);
    if (descriptor < 0) return make_system_failure(path + ": cannot create");
    constexpr mode_t kPermissions = 0777;
    if (is_there && !is_special && ::fchmod(descriptor, status.st_mode & kPermissions) != 0) {
      Status failure = make_system_failure(path + ": cannot keep its mode");
      ::close(descriptor);
      ::unlink(partial_path.c_str());
      return failure;
    }
  }
  std::unique_ptr<TraceFileWriter> writer(new TraceFileWriter(descriptor, path, format));
  writer->partial_path_ = std::move(partial_path);
  writer->target_path_ = std::move(target_path);
  return writer;
}

TraceFileWriter::TraceFileWriter(int descriptor, std::string path, TraceFormat format)
    : descriptor_(descriptor), path_(std::move(path)), is_packed_(has_suffix(path_, ".gz")) {
  file_sink_ = [this](std::span<const char> bytes) { return write_bytes(bytes); };
  if (is_packed_) file_sink_ = make_gzip_sink(std::move(file_sink_));
  writer_ = std::make_unique<TraceWriter>(
      format, [this](std::span<const char> bytes) { return file_sink_(bytes); });
}

TraceFileWriter::~TraceFileWriter() {
  if (descriptor_ < 0 || path_ == kStandardStream) return;
  ::close(descriptor_);
  remove_partial();
}

void TraceFileWriter::remove_partial() const noexcept {
  if (!partial_path_.empty()) ::unlink(partial_path_.c_str());
}

Status TraceFileWriter::write_bytes(std::span<const char> bytes) {
  written_bytes_ += bytes.size();
  Status status = write_all(descriptor_, bytes);
  if (status.is_ok()) return status;
  return Status(status.code(), path_ + ": " + std::string(status.message()));
}

Status TraceFileWriter::write(std::span<const TraceEvent> events) {
  return writer_->write(events);
}

Status TraceFileWriter::finish() {
  if (Status status = writer_->finish(); !status.is_ok()) return status;
  if (is_packed_) {
    if (Status status = file_sink_({}); !status.is_ok()) return status;
  }
  if (path_ == kStandardStream) return Status::ok();
  if (::close(std::exchange(descriptor_, -1)) != 0) return fail("cannot write");
  if (partial_path_.empty()) return Status::ok();
  if (std::rename(partial_path_.c_str(), target_path_.c_str()) != 0) return fail("cannot create");
  return Status::ok();
}

Status TraceFileWriter::fail(const char* action) const {
  Status status = make_system_failure(path_ + ": " + action);
  remove_partial();
  return status;
}

}  // namespace quarry::tools
