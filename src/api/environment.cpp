// SPDX-License-Identifier: Apache-2.0
#include "api/environment.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "api/config_grammar.hpp"
#include "sim/sim_driver.hpp"
#if QUARRY_HAVE_CUDA
#include "cuda/cuda_driver.hpp"
#endif

namespace quarry {
namespace {

constexpr Bytes kLeastSimMemory = 1_MiB;
constexpr Bytes kMostSimMemory = 1ull << 44;

Status refuse(std::string_view name, std::string_view value, std::string_view allowed) {
  return {StatusCode::kInvalidArgument, fmt::format("environment variable {}: value {} is not "
                                                    "allowed; allowed: {}",
                                                    name, quote(value), allowed)};
}

// A whole number, with one of K, M, G, T after it if `has_unit`.
std::optional<std::uint64_t> read_amount(std::string_view text, bool has_unit) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return std::nullopt;
  if (stop == end) return number;
  constexpr std::string_view kUnits = "KMGT";
  const std::size_t unit = kUnits.find(*stop);
  if (!has_unit || unit == std::string_view::npos || stop + 1 != end) return std::nullopt;
  const unsigned shift = 10 * (static_cast<unsigned>(unit) + 1);
  if (number > (~std::uint64_t{0} >> shift)) return std::nullopt;
  return number << shift;
}

Status read_sim_options(const LookUpVariable& look_up, ProcessOptions& options) {
  if (const auto text = look_up("QUARRY_SIM_DEVICES"); !text.empty()) {
    const auto count = read_amount(text, false);
    if (!count || *count < 1 || *count > std::uint64_t{kMostSimDevices}) {
      return refuse("QUARRY_SIM_DEVICES", text,
                    fmt::format("a number from 1 to {}", kMostSimDevices));
    }
    options.sim_device_count = static_cast<int>(*count);
  }
  if (const auto text = look_up("QUARRY_SIM_MEMORY"); !text.empty()) {
    const auto bytes = read_amount(text, true);
    if (!bytes || *bytes < kLeastSimMemory || *bytes > kMostSimMemory) {
      return refuse("QUARRY_SIM_MEMORY", text,
                    "bytes from 1M to 16T, as a number or with K, M, G or T after it");
    }
    options.sim_memory_bytes = *bytes;
  }
  return {};
}

Status read_driver(const LookUpVariable& look_up, ProcessOptions& options) {
  const auto text = look_up("QUARRY_DRIVER");
  if (text.empty() || text == "cuda") return {};
  if (text != "sim") return refuse("QUARRY_DRIVER", text, "sim or cuda");
  options.driver = DriverKind::kSim;
  return {};
}

Status read_kill_switch(const LookUpVariable& look_up, ProcessOptions& options) {
  const auto text = look_up("QUARRY_DISABLE");
  if (text.empty() || text == "0") return {};
  if (text != "1") return refuse("QUARRY_DISABLE", text, "0 or 1");
  options.is_disabled = true;
  return {};
}

}  // namespace

Result<ProcessOptions> read_environment() {
  return read_environment([](const char* name) {
    const char* const text = std::getenv(name);
    return std::string_view(text != nullptr ? text : "");
  });
}

Result<ProcessOptions> read_environment(const LookUpVariable& look_up) {
  ProcessOptions options;
  options.conf = look_up("QUARRY_CONF");
  options.conf_source = "QUARRY_CONF";
  for (const auto read : {read_driver, read_sim_options, read_kill_switch}) {
    if (Status status = read(look_up, options); !status.is_ok()) return status;
  }
  return options;
}

namespace {

Result<std::unique_ptr<Driver>> make_cuda_driver() {
#if QUARRY_HAVE_CUDA
  return cuda::open_cuda_driver();
#else
  return Status(StatusCode::kNotSupported,
                "this Quarry was built without the CUDA Toolkit's headers and has no CUDA driver; "
                "QUARRY_DRIVER=sim (or QUARRY_DRIVER_SIM in quarry_init_options) runs on the "
                "simulated device");
#endif
}

}  // namespace

Result<std::unique_ptr<Driver>> make_driver(const ProcessOptions& options) {
  if (options.driver == DriverKind::kCuda) return make_cuda_driver();
  sim::SimOptions sim_options;
  sim_options.device_count = options.sim_device_count;
  if (options.sim_memory_bytes != 0) sim_options.physical_bytes = options.sim_memory_bytes;
  // The oracle needs to be told of the work on the memory, which a program that only links this
  // library does not do.
  sim_options.oracle = false;
  return std::unique_ptr<Driver>(std::make_unique<SimDriver>(sim_options));
}

}  // namespace quarry
