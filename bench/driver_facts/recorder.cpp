// SPDX-License-Identifier: Apache-2.0
#include "bench/driver_facts/recorder.hpp"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fstream>

namespace quarry::facts {
Watchdog::Watchdog(std::chrono::milliseconds patience)
    : patience_(patience), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::begin_step(const std::string& name) {
  std::fprintf(stderr, "  %s\n", name.c_str());
  {
    const std::lock_guard lock(mutex_);
    step_ = name;
    ++steps_;
  }
  changed_.notify_all();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_ending_ || steps_ > 0; });
  while (!is_ending_) {
    const unsigned seen = steps_;
    const auto goes_on = [&] { return is_ending_ || steps_ != seen; };
    if (changed_.wait_for(lock, patience_, goes_on)) continue;
    std::fprintf(stderr, "HUNG for %lld ms in: %s\n", static_cast<long long>(patience_.count()),
                 step_.c_str());
    // Not exit(): its handlers may wait for the very call that hangs.
    _exit(kHungStatus);
  }
}

Recorder::Recorder(FactSheet sheet, std::string path, std::chrono::milliseconds patience)
    : sheet_(std::move(sheet)), path_(std::move(path)), watchdog_(patience) {
  std::fprintf(stderr, "%s\n", sheet_.title.c_str());
}

void Recorder::step(const std::string& name, const std::function<void()>& body) {
  watchdog_.begin_step(name);
  // If the step ends the process, what is on the disk says in which it was.
  sheet_.failures.push_back(name + ": the process ended here");
  const std::size_t place = sheet_.failures.size() - 1;
  save();
  std::string failure;
  try {
    body();
  } catch (const std::exception& error) {
    failure = name + ": " + error.what();
    std::fprintf(stderr, "  FAILED %s\n", failure.c_str());
  }
  if (failure.empty()) {
    sheet_.failures.erase(sheet_.failures.begin() + static_cast<std::ptrdiff_t>(place));
  } else {
    sheet_.failures[place] = failure;
  }
  save();
}

void Recorder::start_table(std::string title, std::vector<std::string> columns) {
  sheet_.tables.push_back({std::move(title), std::move(columns), {}});
}

void Recorder::add_row(std::vector<Cell> row) {
  sheet_.tables.back().rows.push_back(std::move(row));
}

void Recorder::add_rule(std::string claim, bool holds) {
  sheet_.rules.push_back({std::move(claim), holds});
}

void Recorder::save() const {
  if (path_.empty()) return;
  const std::string fresh = path_ + ".new";
  std::ofstream(fresh) << dump_json({sheet_});
  static_cast<void>(std::rename(fresh.c_str(), path_.c_str()));
}

}  // namespace quarry::facts
