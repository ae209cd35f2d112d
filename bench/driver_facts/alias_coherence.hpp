// SPDX-License-Identifier: Apache-2.0
// Does memory that is mapped at two addresses stay one memory? Each trial writes through one
// address and reads through the other, in an order that CUDA gives (one stream, an event, a
// dependent launch, a graph), and counts on the device the words that came out wrong. Recycling
// (docs/design.md) moves extents under running kernels and is right only where the answer is none.
//
// START HERE for the test (tests/gpu) and the section of the facts program; alias_trials.cpp says
// what each trial does, alias_kernels.cu how.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "bench/driver_facts/alias_kernels.hpp"
#include "bench/driver_facts/device_objects.hpp"

namespace quarry::facts {

// Memory with two addresses, plain memory of the same size beside it, host memory, two streams,
// and the counters.
class AliasLab {
 public:
  // Without an alias both addresses are one: the control that tells a fault of the alias from one
  // of the order that the trial relies on.
  AliasLab(std::uint64_t bytes, bool has_alias);
  ~AliasLab();
  AliasLab(const AliasLab&) = delete;
  AliasLab& operator=(const AliasLab&) = delete;

  // The address to write through in this round, and the one to read through: they change places.
  const View& old_view(unsigned round) const { return views_[round % 2]; }
  const View& new_view(unsigned round) const { return views_[(round + 1) % 2]; }
  const View& plain_view() const { return views_[2]; }
  CUstream stream(int index = 0) const { return streams_[index].get(); }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t words() const { return bytes_ / 4; }
  bool has_alias() const { return has_alias_; }
  void* host() const { return host_; }
  WordCounts* counts() const { return reinterpret_cast<WordCounts*>(counts_.address()); }

  // Waits for the device, and returns what was counted.
  WordCounts read_counts() const;

 private:
  std::uint64_t bytes_;
  bool has_alias_;
  Extent extent_;
  AddressRange ranges_[2];
  PlainMemory plain_;
  PlainMemory counts_;
  void* host_ = nullptr;
  OwnStream streams_[2];
  View views_[3];  // both addresses of the extent, the plain memory
};

// A view with descriptors for tensor copies made from its address.
View make_view(CUdeviceptr address, std::uint64_t bytes);

struct AliasTrial {
  std::string name;  // fit for a test's name
  std::string what;
  // False where CUDA does not promise it even for one address: told, not demanded.
  bool is_demanded = true;
  // Runs the rounds and returns how many words they compare.
  std::function<std::uint64_t(AliasLab&, unsigned rounds)> run;
};

// How GoogleTest prints one.
inline void PrintTo(const AliasTrial& trial, std::ostream* out) {
  *out << trial.what;
}

// All trials, in the order in which they are told.
const std::vector<AliasTrial>& get_alias_trials();
// Trials with graphs, and those that map and unmap while kernels run.
std::vector<AliasTrial> make_graph_trials();
std::vector<AliasTrial> make_moving_trials();

struct AliasOutcome {
  std::uint64_t expected = 0;  // words that the rounds should have compared
  WordCounts counts;
  double seconds = 0;
};
AliasOutcome run_alias_trial(const AliasTrial& trial, std::uint64_t bytes, unsigned rounds,
                             bool has_alias = true);

// Spoils `spoiled` words of a written pattern (at most one a tile), reads it in `way`, and returns
// what was counted: a checker that works counts exactly these.
WordCounts count_spoiled_words(Way way, std::uint64_t bytes, unsigned spoiled);

}  // namespace quarry::facts
