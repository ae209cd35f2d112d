// SPDX-License-Identifier: Apache-2.0
// Standard output, with its failures.
#include "tools/standard_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace quarry::tools {

void reserve_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // The lowest free number, which is this one: those below are in use by now.
    static_cast<void>(::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

Status write_standard_output(std::string_view text) {
  const bool is_written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (is_written && std::fflush(stdout) == 0) return Status::ok();
  return Status(StatusCode::kInvalidArgument,
                "cannot write to standard output: " + std::string(std::strerror(errno)));
}

}  // namespace quarry::tools
