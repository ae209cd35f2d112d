// SPDX-License-Identifier: Apache-2.0
#include "tests/model/graph_generator.hpp"

#include <algorithm>

#include "tests/model/private_pools.hpp"

namespace quarry::model {

Caller GraphGenerator::make_caller() {
  if (!entropy_.chance(30)) return Caller::kMain;
  if (repertoire_ == Repertoire::kOneThread) return Caller::kDriverCallback;
  return entropy_.pick({Caller::kSecond, Caller::kThird, Caller::kDriverCallback});
}

std::optional<int> GraphGenerator::pick_captured_stream() {
  if (begun_.empty() || !entropy_.chance(50)) return std::nullopt;
  const Begun& capture = begun_[entropy_.below(begun_.size())];
  return capture.streams[entropy_.below(capture.streams.size())];
}

void GraphGenerator::note_request(const Allocate& request) {
  if (!entropy_.chance(35)) return;
  queue_.push_back(Free{.slot = request.slot, .caller = Caller::kMain});
  queue_.push_back(request);
}

int GraphGenerator::any_pool() {
  if (!retained_.empty() && entropy_.chance(80))
    return retained_[entropy_.below(retained_.size())];
  return static_cast<int>(entropy_.below(2 * kPoolsPerDevice));
}

int GraphGenerator::pick_explicit_pool() {
  return entropy_.chance(10) ? any_pool() : -1;
}

RetainPool GraphGenerator::make_retain() {
  RetainPool retain;
  retain.pool = static_cast<int>(entropy_.below(2 * kPoolsPerDevice));
  retained_.push_back(retain.pool);
  retain.use_on_oom = entropy_.chance(60);
  retain.no_split = entropy_.chance(20);
  retain.no_recycle = entropy_.chance(20);
  if (entropy_.chance(20)) retain.limit_mib = entropy_.pick({2, 20, 60, 200});
  retain.source = entropy_.pick({PoolSource::kDriver, PoolSource::kDriver, PoolSource::kDriver,
                                 PoolSource::kFunctions, PoolSource::kMoodyFunctions});
  retain.caller = make_caller();
  return retain;
}

Operation GraphGenerator::begin_route() {
  const auto kind =
      entropy_.pick({Route::Kind::kThread, Route::Kind::kThread, Route::Kind::kStream,
                     Route::Kind::kCapture, Route::Kind::kFilter});
  if (routed_.size() > 2) return end_route();
  routed_.push_back({any_pool(), make_caller()});
  return BeginRoute{routed_.back().pool, kind, any_stream(), routed_.back().caller};
}

// Mostly the last that was begun, by the same thread.
Operation GraphGenerator::end_route() {
  if (routed_.empty() || entropy_.chance(15)) return EndRoute{any_pool(), make_caller()};
  const Routed last = routed_.back();
  routed_.pop_back();
  return EndRoute{last.pool, last.caller};
}

Operation GraphGenerator::make_pool_operation() {
  const std::uint64_t kind = entropy_.below(100);
  if (retained_.size() < 2 || kind < 18) return make_retain();
  if (kind < 20) {
    retained_.push_back(any_pool());
    return HoldPool{retained_.back(), make_caller()};
  }
  if (kind < 38) {
    const ReleasePool release{any_pool(), make_caller()};
    const auto found = std::find(retained_.begin(), retained_.end(), release.pool);
    if (found != retained_.end()) retained_.erase(found);
    return release;
  }
  if (kind < 62) return begin_route();
  if (kind < 85) return end_route();
  if (kind < 93) return TrimPool{any_pool(), make_caller()};
  return ChangePool{any_pool(), entropy_.pick({-1, 0, 0, 0, 4, 40, 100}), entropy_.chance(50),
                    entropy_.chance(60), entropy_.chance(20)};
}

Operation GraphGenerator::end_capture(std::size_t at) {
  const Begun ended = begun_[at];
  begun_.erase(begun_.begin() + static_cast<std::ptrdiff_t>(at));
  if (entropy_.chance(85)) queue_.push_back(EndRoute{ended.pool, Caller::kMain});
  const int launches = static_cast<int>(entropy_.below(3));
  for (int i = 0; i < launches; ++i)
    queue_.push_back(LaunchGraph{any_graph(), any_stream(), entropy_.below(300'000)});
  return EndCapture{ended.streams.front()};
}

Operation GraphGenerator::make_capture_operation(int slot) {
  const std::uint64_t kind = entropy_.below(100);
  if (kind < 20) return LaunchGraph{any_graph(), any_stream(), entropy_.below(300'000)};
  if (kind < 24) return DestroyGraph{any_graph()};
  if (begun_.empty() || (kind < 34 && begun_.size() < 3)) {
    const auto mode =
        entropy_.pick({CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed});
    begun_.push_back({{any_stream()}, any_pool()});
    return CaptureInto{begun_.back().streams.front(), begun_.back().pool, mode, make_caller()};
  }
  const std::size_t at = entropy_.below(begun_.size());
  Begun& capture = begun_[at];
  const int inside = capture.streams[entropy_.below(capture.streams.size())];
  if (kind < 54) {
    const bool is_fork = capture.streams.size() == 1 || entropy_.chance(30);
    const int other = is_fork ? any_stream() : capture.streams[entropy_.below(2)];
    if (is_fork) capture.streams.push_back(other);
    return OrderCaptured{inside, other};
  }
  if (kind < 64) return RecordStream{slot, inside, 0, Caller::kMain};
  if (kind < 82) return UseAsInput{slot, inside, entropy_.chance(40)};
  if (kind < 85) return LoseCapture{inside};
  return end_capture(at);
}

Operation GraphGenerator::next(int slot) {
  if (!queue_.empty()) {
    const Operation first = queue_.front();
    queue_.pop_front();
    return first;
  }
  return entropy_.chance(40) ? make_pool_operation() : make_capture_operation(slot);
}

}  // namespace quarry::model
