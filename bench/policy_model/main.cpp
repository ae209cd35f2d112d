// SPDX-License-Identifier: Apache-2.0
// quarry_policy_model: replays traces through models of expandable segments and prints one line
// each. docs/recycling.md says what was learned with it.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <string>
#include <vector>

#include "bench/policy_model/policy_trace.hpp"
#include "bench/policy_model/upstream_expandable.hpp"

namespace quarry::policy_model {
namespace {

int run(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const Result<PolicyTrace> trace = read_policy_trace(path);
    if (!trace.is_ok()) {
      fmt::print(stderr, "quarry_policy_model: {}\n", trace.status().message());
      return 1;
    }
    const UpstreamResult result = replay_upstream_expandable(trace.value());
    fmt::print("{} {} {:.4f} {} pages {} misses\n", trace.value().name, result.peak_reserved_bytes,
               static_cast<double>(result.peak_reserved_bytes) /
                   static_cast<double>(trace.value().totals.peak_bytes),
               result.pages, result.misses);
  }
  return 0;
}

}  // namespace
}  // namespace quarry::policy_model

int main(int argc, char** argv) {
  CLI::App app{"Replays traces through models of expandable segments."};
  std::vector<std::string> paths;
  app.add_option("TRACE", paths, "Traces")->required();
  CLI11_PARSE(app, argc, argv);
  return quarry::policy_model::run(paths);
}
