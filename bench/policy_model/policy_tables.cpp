// SPDX-License-Identifier: Apache-2.0
#include "bench/policy_model/policy_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace quarry::policy_model {
namespace {

double calculate_ratio(Bytes reserved, const PolicyTrace& trace) {
  return static_cast<double>(reserved) / static_cast<double>(trace.totals.peak_bytes);
}

// Of the trace's time, in percent.
double calculate_percent(double driver_us, const PolicyTrace& trace) {
  return 100 * driver_us / static_cast<double>(std::max<std::uint64_t>(1, trace.span_us));
}

struct Variation {
  std::string name;
  RecyclingOptions options;
};

class Variations {
 public:
  explicit Variations(const RecyclingOptions& base) : base_(base) {
    list_.push_back({"as given", base});
  }

  template <class Change>
  void add(std::string name, Change change) {
    Variation& added = list_.emplace_back(Variation{std::move(name), base_});
    change(added.options);
  }
  const std::vector<Variation>& get() const { return list_; }

 private:
  RecyclingOptions base_;
  std::vector<Variation> list_;
};

void add_extents(Variations& list) {
  for (const std::uint64_t divisor : {1024, 512, 256, 128}) {
    list.add(fmt::format("extents of reserved / {}", divisor),
             [&](RecyclingOptions& options) { options.extents.divisor = divisor; });
  }
  for (const Bytes size : {2_MiB, 8_MiB, 16_MiB, 32_MiB}) {
    list.add(fmt::format("extents of {} MiB", size >> 20), [&](RecyclingOptions& options) {
      options.extents.least = options.extents.most = size;
    });
  }
  list.add("also of request / 16",
           [](RecyclingOptions& options) { options.request_divisor = 16; });
  list.add("doubled for each doubling of moves above 0.5 %",
           [](RecyclingOptions& options) { options.coarsen_at = 0.005; });
}

void add_budgets(Variations& list) {
  for (const double slack : {0.0, 0.01, 0.03, 0.05}) {
    list.add(fmt::format("slack {:g} %", slack * 100),
             [&](RecyclingOptions& options) { options.slack = slack; });
  }
  list.add("no time budget", [](RecyclingOptions& options) { options.time_budget = 0; });
  list.add("peak halved every 4 peaks", [](RecyclingOptions& options) { options.half_life = 4; });
}

void add_steps(Variations& list) {
  list.add("recycle:off", [](RecyclingOptions& options) { options.recycle = Recycle::kOff; });
  list.add("recycle:passed",
           [](RecyclingOptions& options) { options.recycle = Recycle::kPassed; });
  list.add("no waits", [](RecyclingOptions& options) { options.allows_waits = false; });
  list.add("recycle:passed, no waits", [](RecyclingOptions& options) {
    options.recycle = Recycle::kPassed;
    options.allows_waits = false;
  });
  list.add("moves before waits",
           [](RecyclingOptions& options) { options.waits_before_moving = false; });
}

void add_choices(Variations& list) {
  const std::pair<const char*, VictimOrder> orders[] = {
      {"victims: smallest run", VictimOrder::kSmallestRun},
      {"victims: largest run", VictimOrder::kLargestRun},
      {"victims: oldest", VictimOrder::kOldest},
      {"victims: lowest address", VictimOrder::kLowestAddress}};
  for (const auto& [name, order] : orders) {
    list.add(name, [&](RecyclingOptions& options) { options.victims = order; });
  }
  list.add("equal places: smallest run",
           [](RecyclingOptions& options) { options.tie = PlaceTie::kSmallestRun; });
  list.add("hits: best fit", [](RecyclingOptions& options) { options.fit = PieceFit::kBest; });
  list.add("no small range", [](RecyclingOptions& options) { options.has_small_range = false; });
  list.add("under load (60 us, 100 us)", [](RecyclingOptions& options) {
    options.costs.create_us = 60;
    options.costs.move_us = 100;
  });
}

// "1.0200 0.82": the highest ratio and the highest percentage, not always of one lag.
std::string format_worst(const PolicyTrace& trace, RecyclingOptions options,
                         std::span<const std::uint64_t> lags_us) {
  double ratio = 0;
  double percent = 0;
  for (const std::uint64_t lag_us : lags_us) {
    options.lag_us = lag_us;
    const RecyclingResult result = replay_recycling(trace, options);
    ratio = std::max(ratio, calculate_ratio(result.peak_reserved_bytes, trace));
    percent = std::max(percent, calculate_percent(result.driver_us, trace));
  }
  return fmt::format("{:.3f} {:.2f}", ratio, percent);
}

}  // namespace

void print_upstream_table(std::span<const PolicyTrace> traces) {
  fmt::print(
      "| trace | peak reserved | ratio | driver ms | % of span | pages | misses |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const PolicyTrace& trace : traces) {
    const UpstreamResult result = replay_upstream_expandable(trace);
    const double driver_us = static_cast<double>(result.pages) * DriverCosts{}.create_us;
    fmt::print("| {} | {} | {:.4f} | {:.1f} | {:.2f} | {} | {} |\n", trace.name,
               result.peak_reserved_bytes, calculate_ratio(result.peak_reserved_bytes, trace),
               driver_us / 1e3, calculate_percent(driver_us, trace), result.pages, result.misses);
  }
}

void print_recycling_table(std::span<const PolicyTrace> traces, const RecyclingOptions& options,
                           std::span<const std::uint64_t> lags_us) {
  fmt::print(
      "| trace | lag ms | ratio | driver ms | % of span | misses | joins | created | "
      "moved | released | beyond | waits | retiring MiB |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const PolicyTrace& trace : traces) {
    for (const std::uint64_t lag_us : lags_us) {
      RecyclingOptions lagging = options;
      lagging.lag_us = lag_us;
      const RecyclingResult result = replay_recycling(trace, lagging);
      fmt::print(
          "| {} | {:g} | {:.4f} | {:.1f} | {:.2f} | {} | {} | {} | {} | {} | {} | {} | "
          "{} |\n",
          trace.name, static_cast<double>(lag_us) / 1e3,
          calculate_ratio(result.peak_reserved_bytes, trace), result.driver_us / 1e3,
          calculate_percent(result.driver_us, trace), result.misses, result.joins, result.created,
          result.moved, result.released, result.beyond_budget, result.waits,
          result.most_retiring_bytes >> 20);
    }
  }
}

void print_sweep_table(std::span<const PolicyTrace> traces, const RecyclingOptions& options,
                       std::span<const std::uint64_t> lags_us) {
  Variations list(options);
  add_extents(list);
  add_budgets(list);
  add_steps(list);
  add_choices(list);
  std::string head = "| variation |";
  std::string rule = "|---|";
  for (const PolicyTrace& trace : traces) {
    head += fmt::format(" {} |", trace.name);
    rule += "---|";
  }
  fmt::print("{}\n{}\n", head, rule);
  for (const Variation& variation : list.get()) {
    std::string row = fmt::format("| {} |", variation.name);
    for (const PolicyTrace& trace : traces) {
      row += fmt::format(" {} |", format_worst(trace, variation.options, lags_us));
    }
    fmt::print("{}\n", row);
  }
}

}  // namespace quarry::policy_model
