// SPDX-License-Identifier: Apache-2.0
#include "tests/support/scenario.hpp"

#include <utility>

namespace quarry::test {

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

StreamHandle Scenario::make_stream() {
  return sim_->create_stream(0, sim::StreamKind::kNonBlocking).handle;
}

Address Scenario::malloc(Bytes bytes, StreamHandle stream, Bytes alignment) {
  const Result<Address> result = allocator_->allocate({0, stream}, bytes, alignment);
  if (!keep(result.status()).is_ok() || result.value() == 0) return 0;
  Live live{sim_->begin_lifetime(0, result.value(), bytes, {0, stream}), stream, {}};
  sim_->use(live.lifetime, {0, stream});
  const bool is_new = live_.emplace(result.value(), std::move(live)).second;
  EXPECT_TRUE(is_new) << "an address was handed out twice";
  allocator_->validate_segment(result.value());
  return result.value();
}

StatusCode Scenario::free(Address address) {
  if (const auto found = live_.find(address); found != live_.end()) {
    const Live& live = found->second;
    sim_->use(live.lifetime, {0, live.stream});
    for (StreamHandle stream : live.recorded)
      sim_->use(live.lifetime, {0, stream});
    sim_->end_lifetime(live.lifetime);
    live_.erase(found);
  }
  const StatusCode code = keep(allocator_->free(address)).code();
  allocator_->validate_segment(address);
  return code;
}

StatusCode Scenario::record(Address address, StreamHandle stream) {
  if (const auto found = live_.find(address); found != live_.end()) {
    static_cast<void>(sim_->user_orders({0, found->second.stream}, {0, stream}));
    sim_->use(found->second.lifetime, {0, stream});
    found->second.recorded.insert(stream);
  }
  return keep(allocator_->record_stream(address, stream)).code();
}

void Scenario::busy(StreamHandle stream) {
  static_cast<void>(sim_->submit_work({0, stream}, sim::WorkTime::endless()));
}

void Scenario::complete(StreamHandle stream) {
  sim_->complete({0, stream});
}

}  // namespace quarry::test
