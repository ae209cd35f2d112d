// SPDX-License-Identifier: Apache-2.0
// Section "aliases": the coherence trials at two sizes, one larger than the caches and one that
// stays in them, and what the checker says when it is given wrong words.
#include <algorithm>

#include "bench/driver_facts/alias_coherence.hpp"
#include "bench/driver_facts/sections.hpp"
#include "bench/driver_facts/timing.hpp"

namespace quarry::facts {
namespace {

constexpr std::uint64_t kLarge = 64 * kMiB;
constexpr std::uint64_t kSmall = 2 * kMiB;

bool is_complete(const AliasOutcome& outcome) {
  return outcome.expected > 0 && outcome.counts.compared == outcome.expected;
}

// Wrong words, or that not all were compared.
std::string tell_wrong(const AliasOutcome& outcome) {
  if (is_complete(outcome)) return std::to_string(outcome.counts.wrong);
  return std::to_string(outcome.counts.wrong) + ", and compared only " +
         std::to_string(outcome.counts.compared) + " of " + std::to_string(outcome.expected);
}

void measure_trial(Recorder& recorder, const AliasTrial& trial, unsigned rounds, bool& is_clean) {
  double compared = 0;
  std::string control = "-";
  std::vector<Cell> wrong;
  std::vector<Cell> times;
  for (std::uint64_t bytes : {kLarge, kSmall}) {
    recorder.progress(trial.name + ", " + std::to_string(bytes / kMiB) + " MiB");
    const AliasOutcome outcome = run_alias_trial(trial, bytes, rounds);
    const bool has_wrong = outcome.counts.wrong != 0;
    if (!is_complete(outcome) || (trial.is_demanded && has_wrong)) is_clean = false;
    // The same order with one address tells whose fault wrong words are.
    if (has_wrong) {
      control = std::to_string(run_alias_trial(trial, bytes, rounds, false).counts.wrong);
    }
    compared += static_cast<double>(outcome.counts.compared);
    wrong.emplace_back(tell_wrong(outcome));
    times.emplace_back(outcome.seconds / rounds * 1e6);
  }
  recorder.add_row(
      {trial.name, trial.what, compared / 1e9, wrong[0], wrong[1], control, times[0], times[1]});
}

void measure_checker(Recorder& recorder) {
  recorder.start_table("The checker itself, given 64 MiB with words spoiled on purpose",
                       {"read by", "spoiled", "counted wrong", "compared"});
  struct Kind {
    Way way;
    const char* name;
  };
  bool is_awake = true;
  for (const Kind& kind : {Kind{Way::kPlain, "plain loads"},
                           {Way::kReadOnly, "read-only path"},
                           {Way::kBulk, "bulk copies"},
                           {Way::kTensor1d, "tensor copies of rank 1"},
                           {Way::kTensor2d, "tensor copies of rank 2"}}) {
    for (unsigned spoiled : {0u, 1u, 1000u}) {
      const WordCounts counts = count_spoiled_words(kind.way, kLarge, spoiled);
      is_awake &= counts.wrong == spoiled && counts.compared == kLarge / 4;
      recorder.add_row(
          {kind.name, double(spoiled), double(counts.wrong), double(counts.compared)});
    }
  }
  recorder.add_rule("the checker counts every spoiled word and no other", is_awake);
}

void measure_alias_costs(Recorder& recorder) {
  recorder.start_table("Moving one extent of 64 MiB by way of an alias, microseconds",
                       {"call", "alone"});
  const Extent extent(kLarge);
  const AddressRange ranges[2] = {AddressRange(kLarge), AddressRange(kLarge)};
  map_extent(ranges[0].address(), extent);
  std::vector<double> maps;
  std::vector<double> accesses;
  std::vector<double> unmaps;
  const CUmemAccessDesc access = make_read_write_access();
  for (unsigned i = 0; i < 101; ++i) {
    const CUdeviceptr from = ranges[i % 2].address();
    const CUdeviceptr to = ranges[(i + 1) % 2].address();
    maps.push_back(measure_once_us(
        [&] { require(cu().mem_map(to, kLarge, 0, extent.handle(), 0), "cuMemMap"); }));
    accesses.push_back(measure_once_us(
        [&] { require(cu().mem_set_access(to, kLarge, &access, 1), "cuMemSetAccess"); }));
    unmaps.push_back(measure_once_us([&] { unmap_extent(from, kLarge); }));
  }
  unmap_extent(ranges[1].address(), kLarge);
  recorder.add_row({"map at the second address", calculate_median(maps)});
  recorder.add_row({"set access there", calculate_median(accesses)});
  recorder.add_row({"unmap the first", calculate_median(unmaps)});
}

}  // namespace

void measure_aliases(Recorder& recorder, const SectionOptions& options) {
  recorder.step("the checker", [&] { measure_checker(recorder); });
  recorder.step("cost of an alias", [&] { measure_alias_costs(recorder); });
  bool is_clean = true;
  recorder.start_table(
      std::to_string(options.alias_rounds) + " rounds of each trial",
      {"trial", "what it does", "10^9 words compared", "wrong, 64 MiB", "wrong, 2 MiB",
       "wrong with one address", "us a round, 64 MiB", "us a round, 2 MiB"});
  for (const AliasTrial& trial : get_alias_trials()) {
    const std::size_t failures = recorder.sheet().failures.size();
    recorder.step(trial.name,
                  [&] { measure_trial(recorder, trial, options.alias_rounds, is_clean); });
    is_clean &= recorder.sheet().failures.size() == failures;
  }
  recorder.add_rule(
      "memory mapped at two addresses is one memory in every order that CUDA gives "
      "(`recycle:stream` rests on it)",
      is_clean);
  recorder.save();
}

}  // namespace quarry::facts
