// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace quarry {
namespace {

spdlog::level::level_enum read_level() {
  const char* text = std::getenv("QUARRY_LOG_LEVEL");
  if (text == nullptr) return spdlog::level::warn;
  const std::string name(text);
  if (name == "debug") return spdlog::level::debug;
  if (name == "info") return spdlog::level::info;
  if (name == "error") return spdlog::level::err;
  if (name == "off") return spdlog::level::off;
  return spdlog::level::warn;
}

// Leaked: threads may log while the process exits. Not in spdlog's registry, so that a program
// that uses spdlog itself never meets this logger.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("quarry", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%f quarry level=%l %v");
    made->set_level(read_level());
    return made;
  }();
  return *instance;
}

}  // namespace

void log_debug(std::string_view line) {
  logger().debug("{}", line);
}
void log_info(std::string_view line) {
  logger().info("{}", line);
}
void log_warning(std::string_view line) {
  logger().warn("{}", line);
}
void log_error(std::string_view line) {
  logger().error("{}", line);
}

}  // namespace quarry
