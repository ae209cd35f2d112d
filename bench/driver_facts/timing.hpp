// SPDX-License-Identifier: Apache-2.0
// Host time of calls: medians, because a driver call's cost has a long tail. Nothing here knows
// the driver.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace quarry::facts {

inline double calculate_median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Of one call.
template <class Function>
double measure_once_us(Function&& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  return taken.count();
}

// Median of `repeats` calls, each timed alone.
template <class Function>
double measure_us(int repeats, Function&& function) {
  std::vector<double> values;
  for (int i = 0; i < repeats; ++i)
    values.push_back(measure_once_us(function));
  return calculate_median(std::move(values));
}

// For calls too short to time alone: the median of 21 means over 500 calls.
template <class Function>
double measure_ns(Function&& function) {
  constexpr int kCalls = 500;
  const double us = measure_us(21, [&] {
    for (int i = 0; i < kCalls; ++i)
      function();
  });
  return us * 1000 / kCalls;
}

}  // namespace quarry::facts
