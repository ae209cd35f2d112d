// SPDX-License-Identifier: Apache-2.0
#include "core/capture_order.hpp"

namespace quarry {

bool CaptureOrder::add(Block& block, const std::vector<GraphNode>& markers) {
  std::unordered_set<GraphNode> ahead;
  for (const GraphNode node : markers) {
    if (!passed_.contains(node)) ahead.insert(node);
  }
  if (ahead.empty()) return false;
  const auto waiting = waiting_.insert(waiting_.end(), {&block, ahead.size()});
  for (const GraphNode node : ahead)
    by_marker_[node].push_back(waiting);
  return true;
}

DriverCode CaptureOrder::advance(Driver& driver, StreamRef stream, std::vector<Block*>& passed) {
  to_visit_.clear();
  DriverCode code = driver.get_capture_frontier(stream, to_visit_);
  while (code == DriverCode::kSuccess && !to_visit_.empty()) {
    const GraphNode node = to_visit_.back();
    to_visit_.pop_back();
    if (passed_.contains(node)) continue;
    code = driver.get_predecessors(node, to_visit_);
    // What comes before a node that is not noted would not be looked at again.
    if (code == DriverCode::kSuccess) pass(node, passed);
  }
  return code;
}

void CaptureOrder::pass(GraphNode node, std::vector<Block*>& passed) {
  passed_.insert(node);
  const auto found = by_marker_.find(node);
  if (found == by_marker_.end()) return;
  for (const auto& waiting : found->second) {
    if (--waiting->markers > 0) continue;
    passed.push_back(waiting->block);
    waiting_.erase(waiting);
  }
  by_marker_.erase(found);
}

void CaptureOrder::end(std::vector<Block*>& passed) {
  for (const Waiting& waiting : waiting_)
    passed.push_back(waiting.block);
  waiting_.clear();
  by_marker_.clear();
}

}  // namespace quarry
