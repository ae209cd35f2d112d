// SPDX-License-Identifier: Apache-2.0
// The sections of the facts, each a function that fills its sheet. Each runs in a process of its
// own (child_process.hpp), so that none meets what another left in the driver.
#pragma once

#include "bench/driver_facts/recorder.hpp"

namespace quarry::facts {

struct SectionOptions {
  unsigned alias_rounds = 0;
  bool only_capture_races = false;  // of the captures
};

// In a context on device 0, with all kernels loaded.
void measure_machine(Recorder& recorder, const SectionOptions& options);
void measure_plain_memory(Recorder& recorder, const SectionOptions& options);
void measure_extents(Recorder& recorder, const SectionOptions& options);
void measure_mappings(Recorder& recorder, const SectionOptions& options);
void measure_load(Recorder& recorder, const SectionOptions& options);
void measure_streams(Recorder& recorder, const SectionOptions& options);
void measure_captures(Recorder& recorder, const SectionOptions& options);
void measure_user_objects(Recorder& recorder, const SectionOptions& options);
void measure_aliases(Recorder& recorder, const SectionOptions& options);

struct Section {
  const char* name;
  const char* title;
  const char* about;
  void (*measure)(Recorder&, const SectionOptions&);
};

constexpr Section kSections[] = {
    {"machine", "The machine", "What the figures below were measured on.", measure_machine},
    {"plain", "Plain allocation",
     "Host time of cuMemAlloc, cuMemFree and their stream-ordered kin: medians, each call timed "
     "alone.",
     measure_plain_memory},
    {"extents", "Extents",
     "What virtual memory costs by the size of the extent: medians, in microseconds for one "
     "extent. *Alone*: one call for one mapping; *bulk*: one call over neighbouring mappings, "
     "divided by their number.",
     measure_extents},
    {"mappings", "What mappings permit",
     "Each attempt was made once, on extents of 2 MiB; the result is the driver's code, 0 for "
     "success.",
     measure_mappings},
    {"load", "Mappings under load",
     "What mapping does to kernels that run, what kernels do to mapping, and whether memory made "
     "of many extents is as fast as plain memory.",
     measure_load},
    {"streams", "Streams, events, contexts", "Host time of one call: the median of 21 batches.",
     measure_streams},
    {"captures", "What a capture survives",
     "Each call was made during a fresh capture, which held one kernel, and the capture was then "
     "ended. A cell has the three capture modes in the order global / thread-local / relaxed: "
     "**R** means that the call succeeded and the capture gave its graph; a number is the call's "
     "error with the capture intact; **X** and a number is the call's error with the capture "
     "lost. *Bracket*: the calling thread was in relaxed mode around the call. Calls in one row "
     "behaved alike.",
     measure_captures},
    {"user-objects", "When a graph's user object fires",
     "A user object was moved into a graph whose kernel waits for the host. The state is what was "
     "seen within 200 ms of each step.",
     measure_user_objects},
    {"aliases", "One extent at two addresses",
     "Written through one address, read through the other, in an order that CUDA gives; the words "
     "were compared on the device. The addresses change places every round.",
     measure_aliases},
};

// Calls on a destroyed stream, each tried in a child process: `run_destroyed_stream_cell` makes
// the named one and returns the driver's code, if it returns.
const std::vector<std::string>& get_destroyed_stream_cells();
int run_destroyed_stream_cell(const std::string& name);

// Calls that ask about a stream while another thread begins and ends its captures, each tried in
// a child process, which counts in the file (race_counts.hpp). The table is the captures' last.
const std::vector<std::string>& get_capture_races();
void run_capture_race(const std::string& name, const std::string& counts_path);
void measure_capture_races(Recorder& recorder);

}  // namespace quarry::facts
