// SPDX-License-Identifier: Apache-2.0
#include "tools/real_work.hpp"

#include <string>

namespace quarry::tools {
namespace {

constexpr DeviceId kDevice = 0;

cuda::TouchedBlock make_touched(const ReplayBlock& block) {
  return {block.address, block.bytes, block.number};
}

}  // namespace

DriverCode RealWork::begin_use(ReplayBlock& block) {
  if (!options_.touch) return DriverCode::kSuccess;
  touched_bytes_ += block.bytes;
  return toucher_->fill(make_touched(block), block.stream);
}

DriverCode RealWork::use_elsewhere(const ReplayBlock& block, StreamRef stream) {
  if (!options_.touch) return DriverCode::kSuccess;
  const DriverCode code = toucher_->order(block.stream, stream);
  return code == DriverCode::kSuccess ? check(block, stream) : code;
}

DriverCode RealWork::end_use(const ReplayBlock& block) {
  if (!options_.touch) return DriverCode::kSuccess;
  DriverCode code = check(block, block.stream);
  for (const StreamRef stream : block.recorded) {
    if (code == DriverCode::kSuccess) code = check(block, stream);
  }
  return code;
}

DriverCode RealWork::after_free(const ReplayBlock& block) {
  DriverCode code = DriverCode::kSuccess;
  if (!options_.in_step) return code;
  for (const StreamRef stream : block.recorded) {
    if (code == DriverCode::kSuccess) code = toucher_->synchronize(stream);
  }
  return code;
}

DriverCode RealWork::check(const ReplayBlock& block, StreamRef stream) {
  touched_bytes_ += block.bytes;
  return toucher_->check(make_touched(block), stream);
}

void RealWork::read_driver_figures(ReplayResult& result) const {
  result.driver_calls = driver_.call_count();
  result.driver_time_ns = driver_.call_ns();
}

Status RealWork::close(ReplayResult& result) {
  const DriverResult<DeviceProperties> properties = driver_.get_device_properties(kDevice);
  if (properties.is_ok()) result.device_memory_bytes = properties.value.total_bytes;
  const DriverResult<cuda::WrongWords> wrong = toucher_->count_wrong_words();
  if (!wrong.is_ok()) {
    return Status(StatusCode::kDriverError, "the device failed: " + describe(wrong.code));
  }
  if (options_.touch) {
    result.touch = TouchResult{touched_bytes_, wrong.value.count, wrong.value.first_number};
  }
  if (driver_.held_bytes() == 0 && driver_.held_events() == 0) return Status::ok();
  return Status(StatusCode::kInternal, "the allocator did not give back " +
                                           std::to_string(driver_.held_bytes()) + " bytes and " +
                                           std::to_string(driver_.held_events()) + " events");
}

}  // namespace quarry::tools
