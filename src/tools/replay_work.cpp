// SPDX-License-Identifier: Apache-2.0
// The choice of a replay's device.
#include <utility>

#include "api/environment.hpp"
#include "tools/replayer.hpp"

namespace quarry::tools {
namespace {

// make_driver has refused before where this build has no CUDA driver.
Result<std::unique_ptr<cuda::BlockToucher>> make_toucher() {
#if QUARRY_HAVE_CUDA
  return cuda::make_block_toucher(0);
#else
  return Status(StatusCode::kNotSupported, "this Quarry was built without a CUDA driver");
#endif
}

}  // namespace

Result<ReplayWork> make_replay_work(const ReplayOptions& options) {
  if (options.driver == DriverKind::kSim) {
    return ReplayWork(std::make_unique<SimulatedWork>(options.device_memory_bytes,
                                                      options.gpu_lag_us, options.oracle));
  }
  Result<std::unique_ptr<Driver>> driver = make_driver(ProcessOptions{});
  if (!driver.is_ok()) return std::move(driver).status();
  Result<std::unique_ptr<cuda::BlockToucher>> toucher = make_toucher();
  if (!toucher.is_ok()) return std::move(toucher).status();
  return ReplayWork(std::make_unique<RealWork>(std::move(driver).value(),
                                               std::move(toucher).value(), options.real));
}

}  // namespace quarry::tools
