// SPDX-License-Identifier: Apache-2.0
#include "tests/support/scenario.hpp"

#include <algorithm>
#include <utility>

namespace quarry::test {
namespace {

bool has_magazines_ = false;

}  // namespace

bool has_magazines() {
  return has_magazines_;
}

void set_magazines(bool has_magazines) {
  has_magazines_ = has_magazines;
}

Config make_config() {
  Config config;
  config.thread_cache = has_magazines_;
  return config;
}

Scenario::Scenario(const ScenarioOptions& options)
    : sim_(std::make_unique<SimDriver>(options.sim)),
      allocator_(Allocator::create(*sim_, options.config).value()) {}

Scenario::~Scenario() {
  allocator_->validate();
  for (const sim::Hazard& hazard : sim_->get_hazards())
    ADD_FAILURE() << hazard.text;
  for (const sim::Misuse& misuse : sim_->get_misuses())
    ADD_FAILURE() << misuse.text;
  for (const sim::LostCapture& lost : sim_->get_lost_captures()) {
    if (!lost.by_user) ADD_FAILURE() << "a capture was lost by " << get_name(lost.entry);
  }
}

const Status& Scenario::keep(const Status& status) {
  if (!status.is_ok()) {
    last_code_ = status.code();
    last_message_ = status.message();
  }
  return status;
}

StreamHandle Scenario::make_stream(DeviceId device) {
  return sim_->create_stream(device, sim::StreamKind::kNonBlocking).handle;
}

StreamRef Scenario::resolve(StreamRef stream) {
  if (stream.handle != StreamHandle::kPerThread) return stream;
  return sim_->get_per_thread_stream(stream.device, sim::get_this_thread());
}

Address Scenario::malloc(Bytes bytes, StreamRef stream, Bytes alignment) {
  return begin_life(allocator_->allocate(stream, bytes, alignment), bytes, stream);
}

Address Scenario::malloc_in_pool(Bytes bytes, StreamHandle stream, PoolId pool) {
  const StreamRef ref{0, stream};
  return begin_life(allocator_->allocate_in_pool(ref, bytes, 512, pool), bytes, ref);
}

void Scenario::follow(const RestoredPool& restored, StreamHandle stream, Bytes bytes) {
  for (const Address address : restored.stale) {
    sim_->end_lifetime(live_.at(address).lifetime);
    live_.erase(address);
  }
  for (const Address address : restored.live) {
    const bool is_held = live_.contains(address);
    if (!is_held) begin_life(address, std::min(bytes, Bytes{512}), {0, stream});
  }
}

Address Scenario::begin_life(const Result<Address>& result, Bytes bytes, StreamRef stream) {
  if (!keep(result.status()).is_ok() || result.value() == 0) return 0;
  const Address address = result.value();
  Live live{sim_->begin_lifetime(stream.device, address, bytes, stream), resolve(stream), {}};
  sim_->use(live.lifetime, live.stream);
  const bool is_new = live_.emplace(address, std::move(live)).second;
  EXPECT_TRUE(is_new) << "an address was handed out twice";
  allocator_->validate_segment(address);
  return address;
}

StatusCode Scenario::free(Address address) {
  if (const auto found = live_.find(address); found != live_.end()) {
    const Live& live = found->second;
    sim_->use(live.lifetime, live.stream);
    for (StreamHandle stream : live.recorded)
      sim_->use(live.lifetime, {live.stream.device, stream});
    sim_->end_lifetime(live.lifetime);
    live_.erase(found);
  }
  const StatusCode code = keep(allocator_->free(address)).code();
  allocator_->validate_segment(address);
  return code;
}

void Scenario::free_all() {
  while (!live_.empty())
    free(live_.begin()->first);
}

StatusCode Scenario::free_on_stream(Address address, StreamHandle stream) {
  if (const auto found = live_.find(address); found != live_.end()) {
    const Live& live = found->second;
    const StreamRef next = resolve({live.stream.device, stream});
    static_cast<void>(sim_->user_orders(live.stream, next));
    for (StreamHandle recorded : live.recorded)
      static_cast<void>(sim_->user_orders({next.device, recorded}, next));
    sim_->end_lifetime(live.lifetime);
    live_.erase(found);
  }
  const StatusCode code = keep(allocator_->free_on_stream(address, stream)).code();
  allocator_->validate_segment(address);
  return code;
}

StatusCode Scenario::record(Address address, StreamHandle stream) {
  if (const auto found = live_.find(address); found != live_.end()) {
    Live& live = found->second;
    const StreamRef user = resolve({live.stream.device, stream});
    static_cast<void>(sim_->user_orders(live.stream, user));
    sim_->use(live.lifetime, user);
    live.recorded.insert(user.handle);
  }
  return keep(allocator_->record_stream(address, stream)).code();
}

void Scenario::busy(StreamRef stream) {
  static_cast<void>(sim_->submit_work(stream, sim::WorkTime::endless()));
}

void Scenario::complete(StreamRef stream) {
  sim_->complete(stream);
}

}  // namespace quarry::test
