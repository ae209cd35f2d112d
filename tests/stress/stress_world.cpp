// SPDX-License-Identifier: Apache-2.0
#include "tests/stress/stress_world.hpp"

#include <thread>

namespace quarry::stress {
namespace {

sim::SimOptions make_options(Bytes physical_bytes, int devices) {
  sim::SimOptions options;
  options.device_count = devices;
  options.physical_bytes = physical_bytes;
  options.reuse_addresses = true;
  options.reuse_stream_handles = true;
  return options;
}

}  // namespace

World::World(Bytes physical_bytes, int shared_streams, const Config& config, int devices)
    : sim_(make_options(physical_bytes, devices)),
      allocator_(Allocator::create(driver_, config).value()) {
  for (int i = 0; i < shared_streams; ++i)
    shared_streams_.push_back(sim_.create_stream(0, sim::StreamKind::kNonBlocking));
}

std::optional<Held> World::allocate(StreamRef stream, Bytes bytes, Bytes alignment) {
  const auto address = allocator_->allocate(stream, bytes, alignment);
  if (!address.is_ok()) {
    EXPECT_TRUE(address.code() == StatusCode::kOutOfMemory || address.code() == StatusCode::kBusy)
        << address.status().message();
    return std::nullopt;
  }
  const Held held{address.value(), sim_.begin_lifetime(0, address.value(), bytes, stream)};
  static_cast<void>(sim_.submit_work(stream, sim::WorkTime::lasting_us(20), {&held.lifetime, 1}));
  return held;
}

void World::record(const Held& held, StreamRef owner, StreamRef stream) {
  static_cast<void>(sim_.user_orders(owner, stream));
  EXPECT_TRUE(allocator_->record_stream(held.address, stream.handle).is_ok());
  static_cast<void>(sim_.submit_work(stream, sim::WorkTime::lasting_us(100), {&held.lifetime, 1}));
}

void World::free(const Held& held) {
  sim_.end_lifetime(held.lifetime);
  EXPECT_TRUE(allocator_->free(held.address).is_ok());
}

void World::free_on_stream(const Held& held, StreamRef owner, StreamRef to) {
  static_cast<void>(sim_.user_orders(owner, to));
  sim_.end_lifetime(held.lifetime);
  EXPECT_TRUE(allocator_->free_on_stream(held.address, to.handle).is_ok());
}

void World::free_in_callback(const Held& held) {
  sim_.end_lifetime(held.lifetime);
  sim_.set_callback_thread(true);
  {
    DriverCallbackScope scope;
    EXPECT_TRUE(allocator_->free(held.address).is_ok());
    EXPECT_EQ(allocator_->empty_cache(0).code(), StatusCode::kBusy);
  }
  sim_.set_callback_thread(false);
}

void World::post(const Held& held) {
  std::lock_guard lock(mailbox_mutex_);
  mailbox_.push_back(held);
}

std::optional<Held> World::fetch() {
  std::lock_guard lock(mailbox_mutex_);
  if (mailbox_.empty()) return std::nullopt;
  const Held held = mailbox_.back();
  mailbox_.pop_back();
  return held;
}

void World::run_threads(const std::function<void(int)>& body, int count) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back(body, i);
  for (std::thread& thread : threads)
    thread.join();
}

void World::finish() {
  while (const std::optional<Held> held = fetch())
    free(*held);
  allocator_->validate();
  EXPECT_TRUE(allocator_->empty_cache(0).is_ok());
  const DeviceStats stats = allocator_->get_stats(0).value();
  EXPECT_EQ(stats.allocation.all.current, 0);
  EXPECT_EQ(stats.allocated_bytes.all.current, 0);
  EXPECT_EQ(stats.active_bytes.all.current, 0);
  EXPECT_EQ(stats.requested_bytes.all.current, 0);
  EXPECT_EQ(stats.reserved_bytes.all.current, 0);
  allocator_->validate();
  allocator_.reset();
  const SimDriver::Holdings holdings = sim_.get_holdings(0);
  EXPECT_EQ(holdings.physical_bytes, 0u);
  EXPECT_EQ(holdings.events, 0u);
  EXPECT_EQ(holdings.extents, 0u);
  EXPECT_EQ(holdings.mappings, 0u);
  EXPECT_EQ(holdings.reservations, 0u);
  for (const sim::Hazard& hazard : sim_.get_hazards())
    ADD_FAILURE() << hazard.text;
  for (const sim::Misuse& misuse : sim_.get_misuses())
    ADD_FAILURE() << misuse.text;
  for (const sim::LostCapture& lost : sim_.get_lost_captures())
    ADD_FAILURE() << "a capture was lost by " << get_name(lost.entry);
}

}  // namespace quarry::stress
