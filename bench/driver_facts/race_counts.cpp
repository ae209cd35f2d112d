// SPDX-License-Identifier: Apache-2.0
#include "bench/driver_facts/race_counts.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <stdexcept>

namespace quarry::facts {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(SharedRaceCounts::Counters) == sizeof(RaceCounts));

SharedRaceCounts::SharedRaceCounts(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) throw std::runtime_error("cannot open " + path);
  void* memory = MAP_FAILED;
  if (ftruncate(file, sizeof(Counters)) == 0) {
    memory = mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + path);
  counters_ = new (memory) Counters;
}

SharedRaceCounts::~SharedRaceCounts() {
  munmap(counters_, sizeof(Counters));
}

RaceCounts parse_race_counts(const std::string& content) {
  RaceCounts counts;
  if (content.size() == sizeof(counts)) std::memcpy(&counts, content.data(), sizeof(counts));
  return counts;
}

std::string describe_race(const ChildResult& child, const RaceCounts& counts) {
  std::string text = child.is_ok() ? "survives" : child.describe();
  if (counts.lost != 0) text += ", captures lost: " + std::to_string(counts.lost);
  if (counts.errors != 0) {
    text += ", errors: " + std::to_string(counts.errors) + ", the last of them " +
            std::to_string(counts.last_error);
  }
  return text;
}

bool is_harmless(const ChildResult& child, const RaceCounts& counts) {
  return child.is_ok() && counts.lost == 0 && counts.errors == 0 && counts.in_capture != 0;
}

}  // namespace quarry::facts
