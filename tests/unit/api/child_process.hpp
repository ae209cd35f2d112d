// SPDX-License-Identifier: Apache-2.0
// Runs a piece of a test in a child process of its own: for what a process does once (the first
// call, the environment, a fork). A child that hangs is ended by its alarm and fails the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace quarry::testing_support {

// A claim inside a child; its number of failures is the child's exit status.
#define CHILD_EXPECT(claim)                                                                      \
  do {                                                                                           \
    if (!(claim)) {                                                                              \
      std::fprintf(stderr, "%s:%d: does not hold in the child: %s (last error: %s)\n", __FILE__, \
                   __LINE__, #claim, quarry_get_last_error());                                   \
      ++::quarry::testing_support::child_failures;                                               \
    }                                                                                            \
  } while (false)
inline int child_failures = 0;

// The wait status of a child that ran `body` and left with `leave(failures)`.
template <class Body>
int run_in_child(Body&& body, void (*leave)(int) = ::_exit) {
  constexpr unsigned kHangSeconds = 60;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kHangSeconds);
    child_failures = 0;
    body();
    leave(child_failures);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

inline ::testing::AssertionResult left_well(int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return ::testing::AssertionSuccess();
  if (WIFSIGNALED(status)) {
    return ::testing::AssertionFailure() << "the child was ended by signal " << WTERMSIG(status);
  }
  return ::testing::AssertionFailure() << WEXITSTATUS(status) << " claims failed in the child";
}

}  // namespace quarry::testing_support
