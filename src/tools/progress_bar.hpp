// SPDX-License-Identifier: Apache-2.0
// A line on standard error that shows how far long work is. Shows nothing unless standard error is
// a terminal and the work has lasted a while. Not thread-safe.
#pragma once

#include <chrono>
#include <string>

namespace quarry::tools {

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Cheap unless it is time to paint (ten times a second). `fraction` is in [0, 1].
  void show(const std::string& label, double fraction);
  // Takes the line away, before something else is printed.
  void clear();

 private:
  std::chrono::steady_clock::time_point next_paint_;
  bool is_terminal_;
  bool is_painted_ = false;
};

}  // namespace quarry::tools
