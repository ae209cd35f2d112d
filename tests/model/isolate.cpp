// SPDX-License-Identifier: Apache-2.0
#include "tests/model/isolate.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <exception>

#include "base/check.hpp"

namespace quarry::model {
namespace {

constexpr int kEnded = 0;

std::string describe_end(int status, int errors) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == kEnded) return {};
  std::string text = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM
                         ? "the process hung"
                         : "the process ended (status " + std::to_string(status) + ")";
  std::array<char, 1500> said{};
  const ssize_t bytes = pread(errors, said.data(), said.size(), 0);
  return text + ": " + std::string(said.data(), static_cast<std::size_t>(bytes > 0 ? bytes : 0));
}

[[noreturn]] void run_as_child(const std::function<void()>& body, unsigned hang_seconds,
                               int errors) {
  dup2(errors, STDERR_FILENO);
  alarm(hang_seconds);
  try {
    body();
  } catch (const std::exception& thrown) {
    std::fprintf(stderr, "%s\n", thrown.what());
    _exit(kEnded + 1);
  }
  _exit(kEnded);
}

}  // namespace

SharedMemory::SharedMemory(std::size_t bytes)
    : address_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
      bytes_(bytes) {
  QUARRY_CHECK(address_ != MAP_FAILED);
}

SharedMemory::~SharedMemory() {
  munmap(address_, bytes_);
}

std::string run_in_child(const std::function<void()>& body, unsigned hang_seconds) {
  const int errors = memfd_create("errors", MFD_CLOEXEC);
  QUARRY_CHECK_GE(errors, 0);
  const pid_t child = fork();
  QUARRY_CHECK_GE(child, 0);
  if (child == 0) run_as_child(body, hang_seconds, errors);
  int status = 0;
  QUARRY_CHECK_EQ(waitpid(child, &status, 0), child);
  std::string end = describe_end(status, errors);
  close(errors);
  return end;
}

}  // namespace quarry::model
