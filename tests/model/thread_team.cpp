// SPDX-License-Identifier: Apache-2.0
#include "tests/model/thread_team.hpp"

namespace quarry::model {

ThreadTeam::~ThreadTeam() {
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_)
    thread.join();
}

void ThreadTeam::run(int number, const std::function<void()>& task) {
  if (number == 0) return task();
  while (static_cast<int>(threads_.size()) < number) {
    const int next = static_cast<int>(threads_.size()) + 1;
    threads_.emplace_back([this, next] { serve(next); });
  }
  std::unique_lock lock(mutex_);
  task_ = &task;
  turn_ = number;
  changed_.notify_all();
  changed_.wait(lock, [this] { return turn_ == 0; });
}

void ThreadTeam::serve(int number) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this, number] { return is_ending_ || turn_ == number; });
    if (is_ending_) return;
    const std::function<void()>* const task = task_;
    lock.unlock();
    (*task)();
    lock.lock();
    turn_ = 0;
    changed_.notify_all();
  }
}

}  // namespace quarry::model
