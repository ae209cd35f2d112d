// SPDX-License-Identifier: Apache-2.0
#include "tests/model/graphs.hpp"

#include <algorithm>
#include <utility>

#include "tests/model/state.hpp"

namespace quarry::model {
namespace {

constexpr std::size_t kGraphsKept = 8;

}  // namespace

UserCapture* Graphs::find(const UserStream& stream) {
  if (!stream.capturing_thread) return nullptr;
  const auto has_stream = [&stream](const UserCapture& capture) {
    return std::find(capture.streams.begin(), capture.streams.end(), stream.name.number) !=
           capture.streams.end();
  };
  const auto found = std::find_if(active_.begin(), active_.end(), has_stream);
  return found == active_.end() ? nullptr : &*found;
}

std::uint64_t Graphs::find_unspoilt(const UserStream& stream) {
  if (state_.may_captures_be_lost) note_losses();
  const UserCapture* capture = find(stream);
  return capture == nullptr || capture->is_spoilt ? 0 : capture->number;
}

void Graphs::begin(UserStream& origin, Caller thread) {
  origin.capturing_thread = static_cast<int>(thread);
  UserCapture capture;
  capture.number = ++last_number_;
  capture.origin = origin.name.number;
  capture.streams.push_back(capture.origin);
  capture.thread = thread;
  capture.device = origin.ref.device;
  active_.push_back(std::move(capture));
  ++state_.tally.captures;
}

bool Graphs::order(UserStream& before, UserStream& after) {
  UserCapture* const capture = find(before);
  UserCapture* const other = find(after);
  if (capture == nullptr || capture->is_spoilt || &before == &after) return false;
  if (after.ref.device != before.ref.device || after.handle == StreamHandle::kLegacy) return false;
  if (other != nullptr && other != capture) return false;
  SimDriver& sim = state_.sim();
  const auto event = sim.create_event(before.ref.device);
  if (!event.is_ok()) return false;
  const bool is_ordered = sim.record_event(event.value, before.ref) == DriverCode::kSuccess &&
                          sim.wait_event(after.ref, event.value) == DriverCode::kSuccess;
  if (sim.destroy_event(event.value) != DriverCode::kSuccess) {
    static_cast<void>(sim.destroy_event(event.value));  // told to fail once
  }
  if (!is_ordered) return false;
  if (other != nullptr) return true;
  after.capturing_thread = before.capturing_thread;
  capture->streams.push_back(after.name.number);
  // It may be given memory of the capture's pools too.
  has_captured_thread_streams_ |= !capture->pools.empty() && after.thread.has_value();
  ++state_.tally.forked_streams;
  return true;
}

void Graphs::end(std::uint64_t number) {
  const auto found = std::find_if(active_.begin(), active_.end(),
                                  [number](const auto& c) { return c.number == number; });
  UserStream& origin = state_.streams()[static_cast<std::size_t>(found->origin)];
  for (const int member : found->streams) {
    UserStream& stream = state_.streams()[static_cast<std::size_t>(member)];
    if (member != found->origin) static_cast<void>(order(stream, origin));
  }
  const UserCapture capture = *found;
  active_.erase(found);
  for (const int member : capture.streams)
    state_.streams()[static_cast<std::size_t>(member)].capturing_thread.reset();
  const auto graph =
      state_.call_as(capture.thread, [&] { return state_.sim().end_capture(origin.ref); });
  if (!graph.is_ok()) {
    if (!capture.is_spoilt && !state_.may_captures_be_lost) {
      state_.fail("a capture was lost: " + quarry::describe(graph.code));
    }
    return;
  }
  if (capture.pools.empty() && capture.input_pools.empty()) {
    static_cast<void>(state_.sim().destroy_graph(graph.value));
    return;
  }
  UserGraph made{capture.number, graph.value, capture.device, {}};
  made.pools.assign(capture.pools.begin(), capture.pools.end());
  if (graphs_.size() == kGraphsKept) destroy(graphs_.front());
  graphs_.push_back(made);
  ++state_.tally.graphs;
}

void Graphs::end_all_of_pool(int pool) {
  while (const UserCapture* capture = find_user_of(pool))
    end(capture->number);
}

void Graphs::lose(UserCapture& capture) {
  if (capture.is_spoilt) return;
  UserStream& origin = state_.streams()[static_cast<std::size_t>(capture.origin)];
  static_cast<void>(state_.sim().destroy_stream(origin.ref));
  capture.is_spoilt = true;
  ++state_.tally.lost_captures;
}

bool Graphs::may_seem_active() const {
  const bool is_any = std::any_of(active_.begin(), active_.end(),
                                  [](const auto& capture) { return !capture.pools.empty(); });
  return is_any || has_captured_thread_streams_;
}

void Graphs::note_losses() {
  const auto lost = state_.sim().get_lost_captures();
  for (; noted_losses_ < lost.size(); ++noted_losses_) {
    for (UserCapture& capture : active_) {
      const UserStream& origin = state_.streams()[static_cast<std::size_t>(capture.origin)];
      capture.is_spoilt |= origin.ref == lost[noted_losses_].origin;
    }
  }
}

// --- Memory ------------------------------------------------------------------------------------

void Graphs::enter_pool(UserCapture& capture, int number) {
  UserPool& pool = state_.pools().at(number);
  if (!capture.pools.emplace(number, pool.incarnation).second) return;
  for (const int member : capture.streams)
    has_captured_thread_streams_ |=
        state_.streams()[static_cast<std::size_t>(member)].thread.has_value();
  ++state_.tally.captures_into_pools;
  if (!pool.replay || state_.options().mutant == Mutant::kUnseenReplay) return;
  if (UserStream* replay = state_.find(*pool.replay)) {
    static_cast<void>(state_.sim().user_synchronizes(replay->ref));
  }
}

void Graphs::use(UserStream& stream, const UserBlock& block) {
  const std::uint64_t number = find_unspoilt(stream);
  const auto& inputs = block.inputs_of;
  const bool is_known =
      number == block.capture || std::find(inputs.begin(), inputs.end(), number) != inputs.end();
  if (number == 0 || !is_known) return;
  if (state_.sim().submit_work(stream.ref, {}, {&block.lifetime, 1}) != DriverCode::kSuccess) {
    state_.fail("the simulator refused captured work: a fault of this test");
  }
}

void Graphs::note_outside_use(const UserStream& stream, const UserBlock& block) {
  if (block.capture == 0) return;
  std::vector<StreamName>& users = state_.pools().at(block.pool).outside_users;
  if (std::find(users.begin(), users.end(), stream.name) == users.end()) {
    users.push_back(stream.name);
  }
}

void Graphs::use_as_input(UserStream& stream, UserBlock& block) {
  UserCapture* const capture = find(stream);
  if (capture == nullptr || capture->is_spoilt || block.capture == capture->number) return;
  capture->input_pools.insert(block.pool);
  block.inputs_of.push_back(capture->number);
  ++state_.tally.captured_inputs;
  use(stream, block);
}

void Graphs::note_free(const UserBlock& block) {
  if (block.capture == 0) return;
  for (UserCapture& capture : active_) {
    if (capture.number != block.capture) continue;
    capture.freed.insert(block.address);
    return;
  }
  ++state_.tally.freed_after_captures;
}

bool Graphs::is_pinned(const UserBlock& block) const {
  return std::any_of(block.inputs_of.begin(), block.inputs_of.end(), [this](std::uint64_t number) {
    const auto is_it = [number](const auto& user) { return user.number == number; };
    return std::any_of(active_.begin(), active_.end(), is_it) ||
           std::any_of(graphs_.begin(), graphs_.end(), is_it);
  });
}

// --- Launches ----------------------------------------------------------------------------------

UserGraph* Graphs::find_graph(int number) {
  if (graphs_.empty()) return nullptr;
  return &graphs_[static_cast<std::size_t>(number) % graphs_.size()];
}

const UserCapture* Graphs::find_user_of(int pool) const {
  const auto found = std::find_if(active_.begin(), active_.end(), [pool](const auto& capture) {
    return capture.pools.count(pool) > 0 || capture.input_pools.count(pool) > 0;
  });
  return found == active_.end() ? nullptr : &*found;
}

bool Graphs::may_launch(const UserGraph& graph, const UserStream& on) {
  if (!state_.is_usable(on)) return false;
  return std::all_of(graph.pools.begin(), graph.pools.end(), [&](const auto& entry) {
    const UserPool& pool = state_.pools().at(entry.first);
    if (pool.use_count == 0 || pool.incarnation != entry.second) return false;
    if (find_user_of(entry.first) != nullptr) return false;
    std::vector<StreamName> users = pool.outside_users;
    if (pool.replay) users.push_back(*pool.replay);
    return std::all_of(users.begin(), users.end(), [this](StreamName name) {
      const UserStream* user = state_.find(name);
      return user == nullptr || state_.is_usable(*user);
    });
  });
}

void Graphs::launch(UserGraph& graph, UserStream& on, Caller as, std::uint64_t work_ns) {
  for (const auto& [number, incarnation] : graph.pools) {
    UserPool& pool = state_.pools().at(number);
    if (pool.replay) pool.outside_users.push_back(*pool.replay);
    for (const StreamName name : pool.outside_users) {
      UserStream* user = state_.find(name);
      if (user != nullptr && user != &on) state_.order(*user, on);
    }
    pool.outside_users.clear();
    pool.replay = on.name;
  }
  state_.tally.launches_in_flight += state_.sim().is_idle(on.ref) ? 0 : 1;
  ++state_.tally.launches;
  ++on.submissions;
  const sim::WorkTime time = sim::WorkTime::lasting_ns(work_ns);
  if (state_.sim().launch_graph(graph.id, on.ref, time) != DriverCode::kSuccess) {
    state_.fail("the simulator refused a launch: a fault of this test");
  }
  for (int slot = 0; slot < kSlots; ++slot) {
    std::optional<UserBlock>& block = state_.block(slot);
    if (!block || block->device != graph.device) continue;
    const auto& inputs = block->inputs_of;
    const bool is_input = std::find(inputs.begin(), inputs.end(), graph.number) != inputs.end();
    if (!is_input) continue;
    state_.record(*block, on, as);
    note_outside_use(on, *block);
  }
}

void Graphs::destroy(UserGraph& graph) {
  if (state_.sim().destroy_graph(graph.id) != DriverCode::kSuccess) {
    state_.fail("the simulator refused to destroy a graph: a fault of this test");
  }
  graphs_.erase(graphs_.begin() + (&graph - graphs_.data()));
}

void Graphs::destroy_all() {
  while (!graphs_.empty())
    destroy(graphs_.back());
}

}  // namespace quarry::model
