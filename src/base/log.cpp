// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace quarry {
namespace {

struct NamedLevel {
  std::string_view name;
  spdlog::level::level_enum level;
};
constexpr NamedLevel kLevels[] = {{"debug", spdlog::level::debug},
                                  {"info", spdlog::level::info},
                                  {"warning", spdlog::level::warn},
                                  {"error", spdlog::level::err},
                                  {"off", spdlog::level::off}};

// As a value of the log: on one line, and not without end.
std::string quote(std::string_view text) {
  constexpr std::size_t kMost = 40;
  std::string quoted = "\"";
  for (const char c : text.substr(0, kMost))
    quoted += c < ' ' || c > '~' || c == '"' ? '?' : c;
  return quoted + (text.size() > kMost ? "...\"" : "\"");
}

void read_level(spdlog::logger& logger) {
  logger.set_level(spdlog::level::warn);
  const char* text = std::getenv("QUARRY_LOG_LEVEL");
  if (text == nullptr || *text == '\0') return;
  for (const NamedLevel& known : kLevels) {
    if (known.name == text) return logger.set_level(known.level);
  }
  logger.warn(
      "event=unknown_log_level QUARRY_LOG_LEVEL={} allowed=debug,info,warning,error,off "
      "used=warning",
      quote(text));
}

// Leaked: threads may log while the process exits. Not in spdlog's registry, so that a program
// that uses spdlog itself never meets this logger.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("quarry", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%f quarry level=%l %v");
    read_level(*made);
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
