// SPDX-License-Identifier: Apache-2.0
#include "sim/user_object.hpp"

#include <algorithm>
#include <utility>

namespace quarry::sim {

void UserObject::add_launch(const Position& position) {
  // A later position of a timeline says all that an earlier one does.
  auto& launches = callback_.launches;
  const auto same = std::find_if(launches.begin(), launches.end(), [&](const Position& known) {
    return known.timeline == position.timeline;
  });
  if (same == launches.end()) {
    launches.push_back(position);
  } else {
    *same = position;
  }
}

void UserObjects::add_launch(const std::vector<UserObjectHold>& objects, const Mark& mark) {
  if (objects.empty()) return;
  for (const UserObjectHold& object : objects)
    object->add_launch(mark.position);
  in_flight_.push_back({mark, objects});
}

std::vector<DueCallback> UserObjects::take_due() {
  std::erase_if(in_flight_,
                [this](const Launch& launch) { return streams_.has_passed(launch.mark); });
  for (const DueCallback& due : due_) {
    for (const Position& position : due.launches)
      timelines_.host_sees(position);
  }
  return std::exchange(due_, {});
}

}  // namespace quarry::sim
