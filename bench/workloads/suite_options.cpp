// SPDX-License-Identifier: Apache-2.0
#include "bench/workloads/suite_options.hpp"

#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

namespace quarry::bench {

SuiteOptions parse_suite_options(int argc, char** argv,
                                 const std::vector<std::string>& allocators) {
  SuiteOptions options;
  std::string driver = "cuda";
  bool is_list = false;
  CLI::App app("Workloads over one allocator; options of Google Benchmark (--benchmark_...) too.");
  app.add_option("--allocator", options.allocator)->check(CLI::IsMember(allocators));
  app.add_option("--driver", driver, "sim is for Quarry alone")
      ->check(CLI::IsMember({"cuda", "sim"}));
  app.add_option("--seconds", options.seconds, "of a row and repetition, at least");
  app.add_option("--latency-seconds", options.latency_seconds, "of a latency row, at most");
  app.add_flag("--list", is_list, "print the allocators that this program knows");
  benchmark::Initialize(&argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  if (is_list) {
    for (const std::string& name : allocators)
      std::puts(name.c_str());
    std::exit(0);
  }
  if (options.allocator.empty()) {
    std::fputs("--allocator is required; --list prints them\n", stderr);
    std::exit(2);
  }
  options.is_simulated = driver == "sim";
  benchmark::AddCustomContext("allocator", options.allocator);
  benchmark::AddCustomContext("driver", driver);
  return options;
}

}  // namespace quarry::bench
