// SPDX-License-Identifier: Apache-2.0
// A whole experiment: a device, and what is done with it. A value; printed as the C++ that makes
// it.
#pragma once

#include <string>
#include <vector>

#include "tests/model/operations.hpp"

namespace quarry::model {

// What is wrong on purpose, to prove that the model would notice.
enum class Mutant {
  kNone,
  kLostFence,            // the driver: every event seems to have passed
  kDroppedRecord,        // the driver: events are not recorded, and so have passed at once
  kRecordElsewhere,      // the driver: events are recorded on a stream without work
  kDroppedRecordStream,  // the user's work on another stream is not told
  kDroppedPin,           // what is registered by its address is not told
  kWrongStream,          // the user names another stream than the one that works
  kUnseenCapture,        // the driver: no stream is ever said to capture
  kSameCapture,          // the driver: all captures have one number
  kPendingCaptured,      // the driver: of streams that a capture's request asks for, all seem done
  kUnseenReplay,         // the user captures anew before the pool's launches were seen done
  kDroppedWait,          // the driver: streams do not wait for events
  kFreshFence,           // the driver: the event recorded last seems to have passed
  kMoveUnmapsOld,        // the driver: an extent mapped anew is no longer where it was
  kSuddenDeath,          // the process ends when a block that other streams used is freed
};

// As in the code: "kLostFence".
const char* get_name(Mutant mutant);

struct CaseOptions {
  int device_count = 1;
  // That make calls; each has default streams of its own.
  int threads = 3;
  // Streams that the user makes on each device, besides the legacy one and one a thread. 0: the
  // legacy stream is the only one that is ever used.
  int made_streams = 3;
  Bytes physical_bytes = 256_MiB;
  bool reuse_addresses = true;
  bool reuse_stream_handles = true;
  bool calls_take_time = false;
  bool thread_cache = true;  // at the start; Configure may change it
  bool expandable = false;   // segments; on devices so small that all extents are of 2 MiB
  bool has_pools = false;    // the generator uses private pools and graphs
  Mutant mutant = Mutant::kNone;
};

struct Case {
  CaseOptions options;
  std::vector<Operation> operations;
};

std::string format(const Case& experiment);

}  // namespace quarry::model
