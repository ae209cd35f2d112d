// SPDX-License-Identifier: Apache-2.0
// Proof of order inside one capture, from the graph under construction: which freed blocks are
// behind all work that other streams did with them. A block waits for its *markers*, the nodes at
// which those streams stood when it was freed; they have been passed where the frontier of the
// stream that wants the block comes after each of them. Looks at every node once.
//
// Points to blocks, owns nothing. Guarded by the device's mutex.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/block.hpp"
#include "driver/driver.hpp"

namespace quarry {

class CaptureOrder {
 public:
  bool is_empty() const noexcept { return waiting_.empty(); }
  // False if all markers have been passed before: then the block does not wait.
  bool add(Block& block, const std::vector<GraphNode>& markers);
  // Follows the stream as far as its capture has come; appends the blocks that wait no longer.
  // After a failure of the driver some wait longer than they need.
  DriverCode advance(Driver& driver, StreamRef stream, std::vector<Block*>& passed);
  // The capture has ended: nobody waits any longer.
  void end(std::vector<Block*>& passed);

  // Calls visit(const Block&) for each that waits.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Waiting& waiting : waiting_)
      visit(*waiting.block);
  }

 private:
  struct Waiting {
    Block* block = nullptr;
    std::size_t markers = 0;  // not passed yet
  };
  void pass(GraphNode node, std::vector<Block*>& passed);

  std::list<Waiting> waiting_;
  std::unordered_map<GraphNode, std::vector<std::list<Waiting>::iterator>> by_marker_;
  std::unordered_set<GraphNode> passed_;
  std::vector<GraphNode> to_visit_;  // scratch, kept for its capacity
};

}  // namespace quarry
