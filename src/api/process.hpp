// SPDX-License-Identifier: Apache-2.0
// The allocator of this process: the one global of the library, leaked on purpose so that frees
// from static destructors and from threads that outlive main find it, and so that nothing calls
// the driver at exit. Made by the first call, or by start_process; given back by stop_process
// only.
//
// Fork: a handler in the child (registered when the library is loaded) turns the phase to kForked
// if there was an allocator, or one being made. No lock is taken on the way to that answer, so it
// does not matter what other threads held in the parent.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "api/environment.hpp"
#include "api/pass_through.hpp"
#include "base/status.hpp"
#include "core/allocator.hpp"

namespace quarry {

class Process {
 public:
  static Result<std::unique_ptr<Process>> create(std::unique_ptr<Driver> driver,
                                                 const Config& config, bool is_disabled);

  // Calls `f` with the Allocator, or with the PassThrough under the kill switch; they answer to
  // the same names.
  template <class F>
  auto visit(F&& f) {
    return allocator_ != nullptr ? f(*allocator_) : f(*pass_through_);
  }

  Driver& driver() noexcept { return *driver_; }
  // nullptr under the kill switch.
  Allocator* allocator() noexcept { return allocator_.get(); }

  // Applies a configuration text to the settings as they are; all of it or nothing.
  Status configure(std::string_view conf);
  // Async-signal-safe.
  void mark_forked() noexcept;

 private:
  explicit Process(std::unique_ptr<Driver> driver) : driver_(std::move(driver)) {}

  std::unique_ptr<Driver> driver_;  // first: outlives what uses it
  // Exactly one of these two.
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<PassThrough> pass_through_;
  Mutex configure_mutex_{LockRank::kProcess};  // one configure at a time: read, change, write
};

enum class Phase : int {
  kNone,      // no allocator yet: the next call makes it
  kChanging,  // a thread makes it or gives it back; the others wait
  kRunning,
  kStopped,  // given back; only start_process makes a new one
  kForked,   // in the child of a process that had one
};
extern std::atomic<Phase> process_phase;
extern Process* process_instance;                  // valid while the phase is kRunning
extern std::atomic<Allocator*> running_allocator;  // its allocator then; else nullptr

// The process's allocator, made from the environment if there is none yet. The error says why
// there cannot be one.
Result<Process*> find_process_slowly();
// The same without a call where it runs already: for every function of the C API.
inline Result<Process*> find_process() {
  if (process_phase.load(std::memory_order_acquire) == Phase::kRunning) [[likely]] {
    return process_instance;
  }
  return find_process_slowly();
}
// Never makes one. nullptr if there is none that runs.
inline Process* peek_process() noexcept {
  return process_phase.load(std::memory_order_acquire) == Phase::kRunning ? process_instance
                                                                          : nullptr;
}
// Its allocator, for the short ways: also nullptr under the kill switch. One load.
inline Allocator* peek_allocator() noexcept {
  return running_allocator.load(std::memory_order_acquire);
}
// Why peek_process found none.
Status explain_no_process();

using MakeProcess = std::function<Result<std::unique_ptr<Process>>()>;

// kBusy if there is one. A null driver is the one that the options name; tests bring their own.
Status start_process(std::unique_ptr<Driver> driver, const ProcessOptions& options);
// What `make` throws passes through, here and in every function that makes one, and leaves none.
Status start_process(const MakeProcess& make);
// For quarry_init without options: success if there is one; after stop_process a new one.
Status find_or_restart_process();
// Success if there is none. Waits for threads that end; no other thread may be inside a call.
// kBusy, with nothing done, inside a callback of either kind and while any thread holds the
// driver-free guard.
Status stop_process();

// To be called when a thread names a stream: its per-thread default streams are retired when it
// ends. Not at exit of the process, which ends no thread in this sense.
void note_stream_use(StreamHandle stream) noexcept;
// To be called before a thread takes the driver-free guard, or begins a pool for itself: both are
// given up when it ends.
void note_thread_exit_duty() noexcept;

}  // namespace quarry
