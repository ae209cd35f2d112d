// SPDX-License-Identifier: Apache-2.0
// A process allocator on a simulated device for the tests of the C API: made before each test,
// given back after it. Tests of how the allocator comes to be are in environment_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "api/process.hpp"
#include "quarry/quarry.h"
#include "sim/sim_driver.hpp"

namespace quarry::testing_support {

inline quarry_stream make_stream(std::uint64_t handle) {
  return reinterpret_cast<quarry_stream>(handle);
}

class ApiTest : public ::testing::Test {
 protected:
  static constexpr Bytes kDeviceMemory = 1_GiB;

  void SetUp() override { start({}); }
  void TearDown() override { ASSERT_EQ(quarry_shutdown(), QUARRY_OK) << quarry_get_last_error(); }

  void start(const ProcessOptions& options, int device_count = 2) {
    sim::SimOptions sim_options;
    sim_options.device_count = device_count;
    sim_options.physical_bytes = kDeviceMemory;
    auto driver = std::make_unique<SimDriver>(sim_options);
    sim_ = driver.get();
    const Status status = start_process(std::move(driver), options);
    ASSERT_TRUE(status.is_ok()) << status.message();
  }

  // The device, seen from the user's side. Valid until the shutdown.
  SimDriver& sim() { return *sim_; }

  void* allocate(std::size_t bytes, int device = 0, quarry_stream stream = nullptr) {
    void* ptr = nullptr;
    EXPECT_EQ(quarry_malloc(&ptr, bytes, device, stream), QUARRY_OK) << quarry_get_last_error();
    return ptr;
  }
  std::int64_t stat(const char* key, int device = 0) {
    std::int64_t value = -1;
    EXPECT_EQ(quarry_get_stat(device, key, &value), QUARRY_OK) << quarry_get_last_error();
    return value;
  }

 private:
  SimDriver* sim_ = nullptr;
};

inline std::string last_error() {
  return quarry_get_last_error();
}

// Whether the last failure on this thread says `piece`.
inline ::testing::AssertionResult error_says(const std::string& piece) {
  const std::string text = last_error();
  if (text.find(piece) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << text << "' does not say '" << piece << "'";
}

}  // namespace quarry::testing_support
