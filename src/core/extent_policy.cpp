// SPDX-License-Identifier: Apache-2.0
#include "core/extent_policy.hpp"

#include <algorithm>
#include <bit>
#include <tuple>
#include <vector>

#include "base/check.hpp"

namespace quarry {
namespace {

// Bytes of holes before each gap's begin, so that a place's missing bytes are a difference.
class HoleCount {
 public:
  explicit HoleCount(std::span<const Gap> run) : run_(run) {
    before_.reserve(run.size());
    Bytes holes = 0;
    for (const Gap& gap : run) {
      before_.push_back(holes);
      if (gap.is_hole) holes += gap.size;
    }
  }

  // Pages that [begin, end) touches and that are not mapped.
  Bytes calculate_missing(Address begin, Address end) const {
    return count(end, kExtentPage - 1) - count(begin, 0);
  }

 private:
  // Bytes of holes below `address`, which counts as the multiple of a page next to it.
  Bytes count(Address address, Bytes rounding) const {
    const auto after =
        std::upper_bound(run_.begin(), run_.end(), address,
                         [](Address value, const Gap& gap) { return value < gap.begin; });
    const auto index = static_cast<std::size_t>(after - run_.begin()) - 1;
    const Gap& gap = run_[index];
    if (!gap.is_hole) return before_[index];
    return before_[index] + round_down(address - gap.begin + rounding, kExtentPage);
  }

  std::span<const Gap> run_;
  std::vector<Bytes> before_;
};

}  // namespace

Bytes calculate_extent_size(Bytes reserved, const ExtentRule& rule) {
  return std::clamp(std::bit_floor(reserved / rule.divisor), rule.least, rule.most);
}

Bytes calculate_new_extent(Bytes regular, Bytes need, Bytes hole, Bytes left) {
  QUARRY_ASSERT(need >= kExtentPage && hole >= need);
  const Bytes fitting = std::min(regular, std::bit_floor(hole));
  if (fitting <= left) return fitting;
  return std::min(fitting, std::bit_ceil(need));
}

void DecayedPeak::add(Bytes size, Bytes allocated) {
  since_ += size;
  while (half_life_ != 0 && since_ >= half_life_) {
    since_ -= half_life_;
    if (peak_ > allocated) peak_ = allocated + (peak_ - allocated) / 2;
  }
  peak_ = std::max(peak_, allocated);
}

double MovingTime::calculate_share(std::uint64_t now_ns) {
  constexpr std::uint64_t kMinuteNs = 60'000'000'000;
  constexpr double kNsOfAMove = 55'000;  // map, set access, unmap: docs/driver-facts.md
  while (now_ns - begin_ns_ > kMinuteNs) {
    begin_ns_ += (now_ns - begin_ns_) / 2;
    moves_ /= 2;
  }
  const auto passed_ns = static_cast<double>(now_ns - begin_ns_);
  return static_cast<double>(moves_) * kNsOfAMove / std::max(1.0, passed_ns);
}

double calculate_slack(double slack, double moving_share) {
  return slack + kMostMoreSlack * std::clamp(moving_share / kMovingShare - 1, 0.0, 1.0);
}

Bytes calculate_budget(Bytes peak, double slack) {
  return peak + static_cast<Bytes>(static_cast<double>(peak) * slack);
}

bool is_better_place(const Place& one, const Place& other, PlaceTie tie) {
  if (one.missing != other.missing) return one.missing < other.missing;
  if (tie == PlaceTie::kSmallestRun && one.run != other.run) return one.run < other.run;
  return one.begin < other.begin;
}

std::optional<Place> find_place(std::span<const Gap> run, Bytes size, PlaceTie tie) {
  if (run.empty()) return std::nullopt;
  const Address begin = run.front().begin;
  const Address end = run.back().end();
  if (end - begin < size) return std::nullopt;
  const HoleCount holes(run);
  std::optional<Place> best;
  const auto consider = [&](Address at) {
    const Place place{at, holes.calculate_missing(at, at + size), end - begin};
    if (!best || is_better_place(place, *best, tie)) best = place;
  };
  // What is missing changes at a constant rate while neither end passes from one gap to another:
  // the best place begins or ends where a gap does.
  for (const Gap& gap : run) {
    if (end - gap.begin >= size) consider(gap.begin);
    if (gap.end() - begin >= size) consider(gap.end() - size);
  }
  return best;
}

Place align_place(std::span<const Gap> run, const Place& place, Bytes size, Bytes alignment) {
  const Address begin = round_up(place.begin, alignment);
  return {begin, HoleCount(run).calculate_missing(begin, begin + size), place.run};
}

bool moves_before(const Victim& one, const Victim& other, VictimOrder order) {
  switch (order) {
    case VictimOrder::kLargestRun:
      return std::tie(other.run, other.begin) < std::tie(one.run, one.begin);
    case VictimOrder::kSmallestRun:
      return std::tie(one.run, other.begin) < std::tie(other.run, one.begin);
    case VictimOrder::kOldest:
      return std::tie(one.freed_at, other.begin) < std::tie(other.freed_at, one.begin);
    case VictimOrder::kLowestAddress:
      break;
  }
  return one.begin < other.begin;
}

}  // namespace quarry
