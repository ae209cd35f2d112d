// SPDX-License-Identifier: Apache-2.0
// The generator's part for private pools and graphs: remembers which captures it began, so that
// memory is asked for inside, and mostly ends what was begun.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "tests/model/entropy.hpp"
#include "tests/model/generator.hpp"

namespace quarry::model {

class GraphGenerator {
 public:
  GraphGenerator(Entropy& entropy, Repertoire repertoire)
      : entropy_(entropy), repertoire_(repertoire) {}

  // `slot` probably has a block.
  Operation next(int slot);
  // A stream of a capture that was begun into a pool, now and then.
  std::optional<int> pick_captured_stream();
  // The request may come again, after the block was given back.
  void note_request(const Allocate& request);
  // Of an explicit request; kDefaultPool mostly.
  int pick_explicit_pool();

 private:
  struct Begun {
    std::vector<int> streams;  // the first began it
    int pool = 0;
  };
  struct Routed {
    int pool = 0;
    Caller caller = Caller::kMain;
  };
  Operation make_pool_operation();
  Operation begin_route();
  Operation end_route();
  Operation make_capture_operation(int slot);
  Operation end_capture(std::size_t at);
  RetainPool make_retain();
  Caller make_caller();
  int any_stream() { return static_cast<int>(entropy_.below(64)); }
  int any_pool();
  int any_graph() { return static_cast<int>(entropy_.below(8)); }

  Entropy& entropy_;
  const Repertoire repertoire_;
  std::vector<Begun> begun_;
  std::vector<Routed> routed_;
  std::deque<Operation> queue_;  // to come first
  std::vector<int> retained_;    // pools, about
};

}  // namespace quarry::model
