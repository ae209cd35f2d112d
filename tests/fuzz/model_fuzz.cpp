// SPDX-License-Identifier: Apache-2.0
// libFuzzer target of the allocator: the bytes decide what the model test's generator would have
// drawn. A failure prints the whole case; tests/model has what makes it small.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "tests/model/generator.hpp"
#include "tests/model/runner.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quarry::model;
  constexpr std::size_t kMostOperations = 2000;
  Entropy entropy(std::span<const std::uint8_t>(data, size));
  const Case experiment = generate_case(entropy, kMostOperations);
  const Outcome outcome = run(experiment);
  if (outcome.has_passed()) return 0;
  std::fprintf(stderr, "%s\n%s\n", outcome.failure.c_str(), format(experiment).c_str());
  std::abort();
}
