// SPDX-License-Identifier: Apache-2.0
// Waiting for another thread to get out of a few instructions, in a loop that looks again each
// time. That thread may have lost its processor: after a moment it is let run, and if yielding is
// not enough (it has a lower priority than this thread, or the machine is crowded) this thread
// sleeps for as long as a wake-up takes.
#pragma once

namespace quarry {

class Backoff {
 public:
  void pause() noexcept;

 private:
  int tries_ = 0;
};

}  // namespace quarry
