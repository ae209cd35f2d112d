// SPDX-License-Identifier: Apache-2.0
// What the driver suite needs beside a Driver: the user's side of a GPU. Each driver brings one
// implementation and links it with the suite (sim_fixture.cpp is the simulated device's); the
// suite itself knows only this file and driver.hpp.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "driver/driver.hpp"

namespace quarry {

class DriverFixture {
 public:
  enum class Kind { kBlocking, kNonBlocking };

  virtual ~DriverFixture() = default;
  virtual Driver& driver() = 0;

  virtual StreamRef create_stream(Kind kind) = 0;
  // Also ends what the stream still has to do.
  virtual void destroy_stream(StreamRef stream) = 0;
  // Work that does not end before `release`. One piece at a time for each stream.
  virtual void hold(StreamRef stream) = 0;
  // Ends the held work, from any thread; when it returns, the stream is idle.
  virtual void release(StreamRef stream) = 0;
  // Short work that ends by itself; into the graph on a capturing stream.
  virtual DriverCode submit_work(StreamRef stream) = 0;

  virtual DriverCode begin_capture(StreamRef stream, CaptureMode mode) = 0;
  // What ending the capture says; the graph is thrown away.
  virtual DriverCode end_capture(StreamRef stream) = 0;
  enum class Graph : std::uint64_t {};
  // Ends the capture of a whole graph and makes it ready to run.
  virtual Graph make_graph(StreamRef stream) = 0;
  virtual void launch(Graph graph, StreamRef stream) = 0;
  virtual void destroy(Graph graph) = 0;
  // True when `has_happened` is true within a while: callbacks may come on threads of the driver.
  virtual bool await(const std::function<bool()>& has_happened) = 0;
};

// Device 0, nothing allocated. Defined once in each program of the suite.
std::unique_ptr<DriverFixture> make_driver_fixture();

inline void run_on_other_thread(const std::function<void()>& work) {
  std::thread(work).join();
}

}  // namespace quarry
