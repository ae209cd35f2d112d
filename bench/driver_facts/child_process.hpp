// SPDX-License-Identifier: Apache-2.0
// Runs this program again, as a fresh process: for a section, so that it meets no other's traces
// in the driver, and for a call that may crash. Never a bare fork, which CUDA does not survive.
#pragma once

#include <string>
#include <vector>

namespace quarry::facts {

struct ChildResult {
  int status = -1;  // as exit gave it, where it exited
  int signal = 0;   // that ended it, or 0
  bool has_timed_out = false;
  std::string describe() const;
  bool is_ok() const { return status == 0 && signal == 0 && !has_timed_out; }
};

// Kills the child after `limit_s` seconds.
ChildResult run_child(const std::vector<std::string>& arguments, int limit_s);

// A file for a child's answer; removed at the end.
class AnswerFile {
 public:
  AnswerFile();
  ~AnswerFile();
  AnswerFile(const AnswerFile&) = delete;
  AnswerFile& operator=(const AnswerFile&) = delete;
  const std::string& path() const { return path_; }
  std::string read() const;

 private:
  std::string path_;
};

}  // namespace quarry::facts
