// SPDX-License-Identifier: Apache-2.0
#include "tests/model/thread_team.hpp"

namespace quarry::model {

ThreadTeam::~ThreadTeam() {
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void ThreadTeam::end(int number) {
  if (static_cast<int>(threads_.size()) < number) return;
  std::thread& thread = threads_[static_cast<std::size_t>(number - 1)];
  if (!thread.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    leaving_ = number;
  }
  changed_.notify_all();
  thread.join();
  std::lock_guard lock(mutex_);
  leaving_ = 0;
}

void ThreadTeam::run(int number, const std::function<void()>& task) {
  if (number == 0) return task();
  if (static_cast<int>(threads_.size()) < number)
    threads_.resize(static_cast<std::size_t>(number));
  std::thread& thread = threads_[static_cast<std::size_t>(number - 1)];
  if (!thread.joinable()) thread = std::thread([this, number] { serve(number); });
  std::unique_lock lock(mutex_);
  task_ = &task;
  turn_ = number;
  changed_.notify_all();
  changed_.wait(lock, [this] { return turn_ == 0; });
}

void ThreadTeam::serve(int number) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock,
                  [this, number] { return is_ending_ || turn_ == number || leaving_ == number; });
    if (is_ending_ || leaving_ == number) return;
    const std::function<void()>* const task = task_;
    lock.unlock();
    (*task)();
    lock.lock();
    turn_ = 0;
    changed_.notify_all();
  }
}

}  // namespace quarry::model
