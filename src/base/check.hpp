// SPDX-License-Identifier: Apache-2.0
// Assertions about this library's own invariants. QUARRY_CHECK is always on, QUARRY_ASSERT in
// debug builds; both print the operands and end the process. A caller's mistake is never asserted:
// it is a Status.
#pragma once

#include <sstream>
#include <string>

namespace quarry::internal {

// Prints and aborts. Never returns.
[[noreturn]] void fail_check(const char* file, int line, const char* condition,
                             const std::string& operands);

template <class A, class B>
[[noreturn]] void fail_compare(const char* file, int line, const char* condition, const A& a,
                               const B& b) {
  std::ostringstream operands;
  operands << a << " against " << b;
  fail_check(file, line, condition, operands.str());
}

}  // namespace quarry::internal

#define QUARRY_CHECK(condition)                                                      \
  do {                                                                               \
    if (!(condition)) [[unlikely]]                                                   \
      ::quarry::internal::fail_check(__FILE__, __LINE__, #condition, std::string()); \
  } while (false)

#define QUARRY_CHECK_COMPARE(a, op, b)                                               \
  do {                                                                               \
    if (!((a)op(b))) [[unlikely]]                                                    \
      ::quarry::internal::fail_compare(__FILE__, __LINE__, #a " " #op " " #b, a, b); \
  } while (false)
#define QUARRY_CHECK_EQ(a, b) QUARRY_CHECK_COMPARE(a, ==, b)
#define QUARRY_CHECK_GE(a, b) QUARRY_CHECK_COMPARE(a, >=, b)

#ifdef NDEBUG
#define QUARRY_ASSERT(condition) static_cast<void>(sizeof(!(condition)))
#define QUARRY_ASSERT_EQ(a, b) static_cast<void>(sizeof((a) == (b)))
#else
#define QUARRY_ASSERT(condition) QUARRY_CHECK(condition)
#define QUARRY_ASSERT_EQ(a, b) QUARRY_CHECK_EQ(a, b)
#endif
