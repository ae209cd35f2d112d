// SPDX-License-Identifier: Apache-2.0
// A few threads that take turns: one task at a time, on the thread that the caller names, while
// the caller waits. Gives a sequential program several threads' points of view (per-thread default
// streams, captures of another thread) without any concurrency. Not a pool.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace quarry::model {

class ThreadTeam {
 public:
  ThreadTeam() = default;
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // Runs `task` to its end on the thread of that number. 0 is the thread that calls; others begin
  // when first needed and end with the team.
  void run(int number, const std::function<void()>& task);
  // Ends the thread of that number, not 0, if it has begun; the next task there begins a new one.
  void end(int number);

 private:
  void serve(int number);

  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0;  // whose task is waiting or running; 0: nobody's
  const std::function<void()>* task_ = nullptr;
  int leaving_ = 0;  // who is to end; 0: nobody
  bool is_ending_ = false;
  std::vector<std::thread> threads_;  // of the numbers from 1 on
};

}  // namespace quarry::model
