// SPDX-License-Identifier: Apache-2.0
// How a section does its work: in named steps, each of which may fail without ending the section,
// with what was found so far written to a file after each, and a watchdog that ends the process,
// naming the step, when none begins for a minute.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "bench/driver_facts/fact_sheet.hpp"

namespace quarry::facts {

// Ends the process with this status, after a message, when a step takes too long.
constexpr int kHungStatus = 70;

class Watchdog {
 public:
  explicit Watchdog(std::chrono::milliseconds patience);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  void begin_step(const std::string& name);

 private:
  void watch();

  const std::chrono::milliseconds patience_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::string step_ = "start";
  unsigned steps_ = 0;
  bool is_ending_ = false;
  std::thread thread_;
};

class Recorder {
 public:
  // `path`: where the sheet is saved; nowhere if empty. `patience`: how long a step may take.
  Recorder(FactSheet sheet, std::string path,
           std::chrono::milliseconds patience = std::chrono::minutes(1));

  // Runs it. A DriverError (or any exception) becomes a failure of the sheet.
  void step(const std::string& name, const std::function<void()>& body);
  // Tells the watchdog and stderr that a long step goes on.
  void progress(const std::string& what) { watchdog_.begin_step(what); }
  // Starts a table; rows go to the table started last.
  void start_table(std::string title, std::vector<std::string> columns);
  void add_row(std::vector<Cell> row);
  void add_rule(std::string claim, bool holds);
  void save() const;
  const FactSheet& sheet() const { return sheet_; }

 private:
  FactSheet sheet_;
  const std::string path_;
  Watchdog watchdog_;
};

}  // namespace quarry::facts
