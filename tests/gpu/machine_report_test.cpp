// SPDX-License-Identifier: Apache-2.0
// What `quarry doctor` asks of a real machine, held against what the Driver says of it.
#include "cuda/machine_report.hpp"

#include <gtest/gtest.h>

#include "cuda/cuda_driver.hpp"

namespace quarry {
namespace {

TEST(MachineReport, AgreesWithTheDriver) {
  const cuda::MachineReport report = cuda::make_machine_report();
  ASSERT_EQ(report.error, "");
  EXPECT_GE(report.driver_version, 11030);
  EXPECT_NE(report.library_path, "");
  EXPECT_NE(report.resolver, "dlsym");
  for (const cuda::MissingEntry& entry : report.missing_entries)
    EXPECT_FALSE(entry.is_required) << entry.name;
  auto opened = cuda::open_cuda_driver();
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  const std::unique_ptr<Driver> driver = std::move(opened).value();
  ASSERT_EQ(static_cast<int>(report.devices.size()), driver->get_device_count().value);
  for (std::size_t i = 0; i < report.devices.size(); ++i) {
    const cuda::DeviceReport& device = report.devices[i];
    const DeviceProperties properties =
        driver->get_device_properties(static_cast<DeviceId>(i)).value;
    EXPECT_NE(device.name, "");
    EXPECT_GE(device.compute_major, 7);
    EXPECT_EQ(device.total_bytes, properties.total_bytes);
    EXPECT_EQ(device.granularity, properties.extent_granularity);
    EXPECT_EQ(device.has_context_events, properties.has_context_events);
    EXPECT_EQ(device.has_fd_handles, properties.has_fd_handles);
    EXPECT_EQ(device.has_vmm_rdma, properties.has_rdma);
    ASSERT_TRUE(device.free_bytes.has_value()) << device.free_bytes_error;
    EXPECT_LT(*device.free_bytes, device.total_bytes);
    ASSERT_EQ(report.peers[i].size(), report.devices.size());
    EXPECT_TRUE(report.peers[i][i]);
  }
}

}  // namespace
}  // namespace quarry
