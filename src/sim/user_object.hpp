// SPDX-License-Identifier: Apache-2.0
// User objects of graphs: callbacks that come once, when nothing holds their object any more. An
// object is held by the capture that it was given to, then by the graph, and by each launch of the
// graph until virtual time is past its end. This file says when a callback is due; SimState makes
// the call, with no lock held.
#pragma once

#include <memory>
#include <vector>

#include "sim/sim_stream.hpp"
#include "sim/timeline.hpp"

namespace quarry::sim {

struct DueCallback {
  GraphGoneCallback callback = nullptr;
  void* user = nullptr;
  std::vector<Position> launches;  // what the host knows to be done when the callback comes
};

class UserObject {
 public:
  UserObject(std::vector<DueCallback>& due, GraphGoneCallback callback, void* user)
      : due_(due), callback_{callback, user, {}} {}
  ~UserObject() { due_.push_back(std::move(callback_)); }
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;

  // A launch of a graph that holds the object.
  void add_launch(const Position& position);

 private:
  std::vector<DueCallback>& due_;
  DueCallback callback_;
};
using UserObjectHold = std::shared_ptr<UserObject>;

class UserObjects {
 public:
  UserObjects(StreamTable& streams, Timelines& timelines)
      : streams_(streams), timelines_(timelines) {}

  UserObjectHold create(GraphGoneCallback callback, void* user) {
    return std::make_shared<UserObject>(due_, callback, user);
  }
  // A launch of a graph with these objects ends at the mark.
  void add_launch(const std::vector<UserObjectHold>& objects, const Mark& mark);
  // The callbacks whose time has come. The host is taken to know now that their launches are done.
  std::vector<DueCallback> take_due();

 private:
  struct Launch {
    Mark mark;
    std::vector<UserObjectHold> objects;
  };

  StreamTable& streams_;
  Timelines& timelines_;
  std::vector<DueCallback> due_;   // outlives what follows, whose end adds to it
  std::vector<Launch> in_flight_;  // that had not ended when somebody last looked
};

}  // namespace quarry::sim
