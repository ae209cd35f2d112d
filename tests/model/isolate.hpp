// SPDX-License-Identifier: Apache-2.0
// Runs a piece of a test in a child process, because broken invariants end their process. The
// child leaves a report in memory that its parent sees; it begins as a copy of the parent, so a
// state that took long to reach can be tried in many ways. The parent has one thread.
#pragma once

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <type_traits>

namespace quarry::model {

// Memory of one report that parent and children share. Zeroed.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  void* get() const { return address_; }

 private:
  void* address_;
  std::size_t bytes_;
};

// Returns how the child ended, with what it wrote to its error output; empty: it ran to its end.
std::string run_in_child(const std::function<void()>& body, unsigned hang_seconds);

// As above; `body` fills in a report, which holds what was filled in however the child ended.
template <class Report>
class Isolated {
  static_assert(std::is_trivially_destructible_v<Report>, "it is only ever abandoned");

 public:
  Isolated() : memory_(sizeof(Report)), report_(new (memory_.get()) Report) {}

  template <class Body>
  std::string run(Body body, unsigned hang_seconds) {
    *report_ = Report{};
    return run_in_child([&] { body(*report_); }, hang_seconds);
  }
  const Report& report() const { return *report_; }

 private:
  SharedMemory memory_;
  Report* report_;
};

}  // namespace quarry::model
