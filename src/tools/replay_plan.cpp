// SPDX-License-Identifier: Apache-2.0
#include "tools/replay_plan.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "api/config_parser.hpp"
#include "tools/commands.hpp"
#include "tools/number_text.hpp"
#include "tools/trace_file.hpp"
#include "trace/csv_row.hpp"

namespace quarry::tools {
namespace {

// As QUARRY_SIM_MEMORY, from the size of the driver's pages on.
constexpr Bytes kLeastDeviceMemory = 2_MiB;
constexpr Bytes kMostDeviceMemory = 16 * 1024_GiB;
constexpr std::uint64_t kMostRepeats = 1000;

Status fail_option(const std::string& option, std::string_view cause) {
  return Status(StatusCode::kInvalidArgument, option + ": " + std::string(cause));
}

Status parse_confs(const ReplayCommandLine& line, ReplayPlan& plan) {
  for (const std::string& conf : line.confs) {
    Result<ParsedConfig> parsed = parse_config(conf, Config{}, ParseMode::kStrict);
    if (!parsed.is_ok())
      return fail_option("--conf " + shorten_conf(conf), parsed.status().message());
    for (const std::string& warning : parsed.value().warnings) {
      print_error("replay", "--conf " + shorten_conf(conf) + ": " + warning);
    }
    plan.configs.push_back(parsed.value().config);
  }
  return Status::ok();
}

Status read_reference(const ReplayCommandLine& line, ReplayPlan& plan) {
  if (line.reference.empty()) return Status::ok();
  std::ifstream file(line.reference);
  if (!file) {
    return fail_option("--reference", line.reference + ": cannot open: " + std::strerror(errno));
  }
  Result<ReferenceTable> table = ReferenceTable::read(file);
  if (file.bad()) {
    return fail_option("--reference", line.reference + ": cannot read: " + std::strerror(errno));
  }
  if (!table.is_ok()) {
    return fail_option("--reference",
                       line.reference + ": " + std::string(table.status().message()));
  }
  plan.reference = std::move(table).value();
  plan.style.has_reference = true;
  return Status::ok();
}

Status read_device_memory(const ReplayCommandLine& line, ReplayPlan& plan) {
  if (line.device_memory.empty()) return Status::ok();
  Result<Bytes> bytes = parse_byte_size(line.device_memory);
  if (!bytes.is_ok()) return fail_option("--device-memory", bytes.status().message());
  if (bytes.value() < kLeastDeviceMemory || bytes.value() > kMostDeviceMemory) {
    return fail_option("--device-memory",
                       quote_input(line.device_memory) + " is too " +
                           (bytes.value() < kLeastDeviceMemory ? "small" : "large") +
                           "; allowed: 2M (2 MiB) to 16T (16 TiB)");
  }
  plan.options.device_memory_bytes = bytes.value();
  return Status::ok();
}

Status read_numbers(const ReplayCommandLine& line, ReplayPlan& plan) {
  if (Status status = read_device_memory(line, plan); !status.is_ok()) return status;
  Result<std::uint64_t> lag =
      parse_whole_number(line.gpu_lag_us.empty() ? "0" : line.gpu_lag_us, 0, kMaxGpuLagUs);
  if (!lag.is_ok()) return fail_option("--gpu-lag-us", lag.status().message());
  Result<std::uint64_t> repeat = parse_whole_number(line.repeat, 1, kMostRepeats);
  if (!repeat.is_ok()) return fail_option("--repeat", repeat.status().message());
  plan.options.gpu_lag_us = lag.value();
  plan.repeat = repeat.value();
  plan.style.device_memory_bytes = plan.options.device_memory_bytes;
  plan.style.gpu_lag_us = lag.value();
  return Status::ok();
}

// An option and a driver that make no sense together.
Status refuse_with_driver(const char* option, const char* driver, const char* cause) {
  return Status(StatusCode::kInvalidArgument,
                std::string(option) + " cannot go with --driver " + driver + ": " + cause);
}

Status check_driver(const ReplayCommandLine& line) {
  if (line.driver == "sim") {
    constexpr char kNeedsGpu[] = "on a simulated device no kernels run; use --driver cuda";
    if (line.touch) return refuse_with_driver("--touch", "sim", kNeedsGpu);
    if (line.in_step) return refuse_with_driver("--in-step", "sim", kNeedsGpu);
    return Status::ok();
  }
  if (!line.oracle.empty()) {
    return refuse_with_driver(
        "--oracle", "cuda", "it watches a simulated device; --touch checks blocks on a real one");
  }
  if (!line.gpu_lag_us.empty()) {
    return refuse_with_driver("--gpu-lag-us", "cuda", "a real GPU takes the time that it takes");
  }
  if (!line.device_memory.empty()) {
    return refuse_with_driver("--device-memory", "cuda",
                              "a real device has the memory that it has; "
                              "--conf per_process_memory_fraction:0.5 limits it");
  }
  return Status::ok();
}

}  // namespace

Status make_replay_plan(const ReplayCommandLine& line, ReplayPlan& plan) {
  if (std::count(line.traces.begin(), line.traces.end(), kStandardStream) > 1) {
    return fail_option("TRACE", "standard input (-) can be read once only");
  }
  if (Status status = check_driver(line); !status.is_ok()) return status;
  if (Status status = read_numbers(line, plan); !status.is_ok()) return status;
  const bool is_real = line.driver == "cuda";
  plan.options.driver = is_real ? DriverKind::kCuda : DriverKind::kSim;
  plan.options.real = {line.touch, line.in_step};
  plan.options.oracle = !is_real && line.oracle != "off";
  plan.options.validate = line.validate;
  plan.options.compare_segments = line.segments;
  plan.style.driver = plan.options.driver;
  plan.style.has_touch = line.touch;
  plan.style.is_in_step = line.in_step;
  plan.style.has_oracle = plan.options.oracle;
  plan.style.has_segments = line.segments;
  if (Status status = parse_confs(line, plan); !status.is_ok()) return status;
  return read_reference(line, plan);
}

}  // namespace quarry::tools
