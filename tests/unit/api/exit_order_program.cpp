// SPDX-License-Identifier: Apache-2.0
// A program that frees after main: from a thread_local object, an atexit function and a static
// destructor; leaves a block unfreed; and ends well only if nothing of that called the driver.
// Exit status 0, or the number of the claim that did not hold.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "api/process.hpp"
#include "quarry/quarry.h"
#include "sim/sim_driver.hpp"

namespace {

quarry::SimDriver* sim = nullptr;
std::uint64_t calls_at_end_of_main = 0;
int frees_after_main = 0;

void claim(bool holds, int number) {
  if (holds) return;
  std::fprintf(stderr, "claim %d does not hold: %s\n", number, quarry_get_last_error());
  ::_exit(number);
}

// Constructed before everything else, so destroyed after it.
struct LastCheck {
  ~LastCheck() {
    claim(frees_after_main == 4, 1);
    claim(sim->call_count() == calls_at_end_of_main, 2);
    claim(sim->misuse_count() == 0, 3);
    int on_the_host = 0;
    claim(quarry_free_checked(&on_the_host) == QUARRY_ERROR_INVALID_POINTER, 4);
    claim(quarry_get_last_error()[0] != '\0', 5);
    void* ptr = nullptr;
    claim(quarry_malloc(&ptr, 1000, 0, nullptr) == QUARRY_OK && ptr != nullptr, 6);
  }
} last_check;

struct Holder {
  void* ptr = nullptr;
  ~Holder() {
    if (ptr == nullptr) return;
    claim(quarry_free_checked(ptr) == QUARRY_OK, 7);
    ++frees_after_main;
  }
};

Holder at_static_destruction;
thread_local Holder at_thread_exit;
void* at_exit = nullptr;

void free_at_exit() {
  claim(quarry_free_checked(at_exit) == QUARRY_OK, 8);
  ++frees_after_main;
}

void* allocate(quarry_stream stream) {
  void* ptr = nullptr;
  claim(quarry_malloc(&ptr, 1000, 0, stream) == QUARRY_OK, 9);
  return ptr;
}

}  // namespace

int main() {
  auto driver = std::make_unique<quarry::SimDriver>();
  sim = driver.get();
  claim(quarry::start_process(std::move(driver), {}).is_ok(), 10);
  const auto per_thread = reinterpret_cast<quarry_stream>(2);
  at_static_destruction.ptr = allocate(nullptr);
  at_thread_exit.ptr = allocate(per_thread);
  at_exit = allocate(per_thread);
  static Holder in_main;
  in_main.ptr = allocate(nullptr);
  std::atexit(free_at_exit);
  allocate(nullptr);  // held to the end
  calls_at_end_of_main = sim->call_count();
  return 0;
}
