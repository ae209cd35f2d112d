// SPDX-License-Identifier: Apache-2.0
#include "api/process.hpp"

#include <pthread.h>

#include <utility>

#include "api/config_parser.hpp"
#include "base/log.hpp"
#include "core/thread_state.hpp"

namespace quarry {

std::atomic<Phase> process_phase{Phase::kNone};
Process* process_instance = nullptr;
std::atomic<Allocator*> running_allocator{nullptr};

namespace {

void log_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    log_warning("event=configuration text=\"" + warning + "\"");
  }
}

// --- Pins ---

constinit std::atomic<int> pin_count{0};

// While it lives the process that it found is not given back: stop_process waits for it. For what
// is no call of the user, and so may meet a quarry_shutdown. Sequentially consistent: either this
// sees the phase that stop_process set, or stop_process sees the pin.
class ProcessPin {
 public:
  ProcessPin() noexcept {
    pin_count.fetch_add(1);
    if (process_phase.load() == Phase::kRunning) process_ = process_instance;
  }
  ~ProcessPin() {
    if (pin_count.fetch_sub(1) == 1) pin_count.notify_all();
  }
  ProcessPin(const ProcessPin&) = delete;
  ProcessPin& operator=(const ProcessPin&) = delete;

  Process* process() const noexcept { return process_; }

 private:
  Process* process_ = nullptr;  // nullptr if there is none that runs
};

void wait_for_pins() {
  for (int count = pin_count.load(); count != 0; count = pin_count.load())
    pin_count.wait(count);
}

// --- Fork ---

// Runs in the child, with the forking thread only. A phase of kNone stays: such a child is free to
// make an allocator of its own.
void mark_child() {
  pin_count.store(0, std::memory_order_relaxed);  // those threads are not here
  const Phase phase = process_phase.load(std::memory_order_relaxed);
  if (phase == Phase::kRunning) process_instance->mark_forked();
  if (phase == Phase::kRunning || phase == Phase::kChanging) {
    process_phase.store(Phase::kForked, std::memory_order_relaxed);
    running_allocator.store(nullptr, std::memory_order_relaxed);
  }
}

// At load, before any thread can be in the middle of anything here.
[[maybe_unused]] const int fork_handler_registered = pthread_atfork(nullptr, nullptr, mark_child);

// --- Thread exit ---

// A key and not a thread_local object: its destructor runs after those of the thread's C++ objects
// (which may free), and not at all when the process exits (then no driver call may be made).
void leave_thread(void*) {
  const ProcessPin pin;
  if (pin.process() == nullptr) return;
  std::size_t begun = 0;
  const std::size_t dropped = pin.process()->visit([&begun](auto& allocator) {
    begun = allocator.end_thread_pools();
    allocator.retire_thread_streams();
    return allocator.free_gate().drop_holds_of_this_thread();
  });
  if (begun > 0) log_warning("event=pool_ended reason=\"a thread ended and had it begun\"");
  if (dropped == 0) return;
  log_warning("event=guard_dropped reason=\"a thread ended while it held the driver-free guard\"");
}

// Made at the first use, since static constructors elsewhere may come before those of this file.
pthread_key_t get_thread_exit_key() {
  static const pthread_key_t made = [] {
    pthread_key_t key{};
    QUARRY_CHECK_EQ(pthread_key_create(&key, leave_thread), 0);
    return key;
  }();
  return made;
}

// --- Phases ---

void set_phase(Phase phase) {
  if (phase == Phase::kRunning) running_allocator.store(process_instance->allocator());
  process_phase.store(phase, std::memory_order_release);
  process_phase.notify_all();
}

template <class AnyAllocator>
Status apply(const ParsedConfig& parsed, AnyAllocator& allocator) {
  allocator.configure(parsed.config);
  if (!parsed.names_memory_fraction) return {};
  const double fraction = parsed.config.per_process_memory_fraction;
  for (DeviceId device = 0; device < allocator.device_count(); ++device) {
    Status status = allocator.set_memory_fraction(device, fraction);
    if (!status.is_ok()) return status;
  }
  return {};
}

// The phase after kChanging, whichever way the change ends: a phase that stayed kChanging would
// block every later call.
class PhaseChange {
 public:
  explicit PhaseChange(Phase before) noexcept : next_(before) {}
  ~PhaseChange() { set_phase(next_); }
  PhaseChange(const PhaseChange&) = delete;
  PhaseChange& operator=(const PhaseChange&) = delete;

  void succeed(Phase next) noexcept { next_ = next; }

 private:
  Phase next_;
};

// Makes the process's allocator if the phase is `from`, and leaves the outcome in `result`. False
// if another thread was faster: look at the phase again.
bool try_start(Phase from, const MakeProcess& make, Status& result) {
  if (!process_phase.compare_exchange_strong(from, Phase::kChanging)) return false;
  PhaseChange change(from);
  auto made = make();
  if (!made.is_ok()) {
    result = std::move(made).status();
    return true;
  }
  process_instance = std::move(made).value().release();
  change.succeed(Phase::kRunning);
  return true;
}

// The phase once no thread is changing it.
Phase wait_for_phase() {
  Phase phase = process_phase.load(std::memory_order_acquire);
  while (phase == Phase::kChanging) {
    process_phase.wait(phase);
    phase = process_phase.load(std::memory_order_acquire);
  }
  return phase;
}

// Under the kill switch a mistake in the text is no reason to fail: the switch must work whatever
// else is wrong.
Result<Config> read_config(const ProcessOptions& options) {
  auto parsed = parse_config(options.conf, Config{}, get_parse_mode_from_environment());
  if (parsed.is_ok()) {
    log_warnings(parsed.value().warnings);
    return parsed.value().config;
  }
  std::string text(parsed.status().message());
  if (!options.conf_source.empty()) text = options.conf_source + ": " + text;
  if (!options.is_disabled) return Status(parsed.status().code(), std::move(text));
  log_warnings({std::move(text)});
  return Config{};
}

// The text first: a mistake in it is told before any driver call. `driver` may be null: the one
// that the options name.
Result<std::unique_ptr<Process>> make_process(std::unique_ptr<Driver> driver,
                                              const ProcessOptions& options) {
  auto config = read_config(options);
  if (!config.is_ok()) return std::move(config).status();
  if (driver == nullptr) {
    auto made = make_driver(options);
    if (!made.is_ok()) return std::move(made).status();
    driver = std::move(made).value();
  }
  return Process::create(std::move(driver), config.value(), options.is_disabled);
}

Result<std::unique_ptr<Process>> make_process_from_environment() {
  auto options = read_environment();
  if (!options.is_ok()) return std::move(options).status();
  return make_process(nullptr, options.value());
}

// A guard of another thread forbids it too: its holder is between two launches, and will unlock.
Status check_may_stop() {
  const ProcessPin pin;
  if (pin.process() == nullptr) return {};
  std::string_view place;
  if (pin.process()->visit([](auto& allocator) { return allocator.free_gate().is_held(); })) {
    place = "while a thread holds the driver-free guard";
  }
  if (is_user_callback_thread())
    place = "inside a callback, whose caller still needs the allocator";
  if (is_driver_callback_thread())
    place = "inside a driver callback, which may not call the driver";
  if (place.empty()) return {};
  return {StatusCode::kBusy,
          "quarry_shutdown was called " + std::string(place) + "; nothing was done"};
}

}  // namespace

// --- Process ---

Result<std::unique_ptr<Process>> Process::create(std::unique_ptr<Driver> driver,
                                                 const Config& config, bool is_disabled) {
  std::unique_ptr<Process> process(new Process(std::move(driver)));
  if (is_disabled) {
    auto made = PassThrough::create(*process->driver_, config);
    if (!made.is_ok()) return std::move(made).status();
    process->pass_through_ = std::move(made).value();
    log_warning("event=disabled effect=\"every malloc and free goes to the driver\"");
    return process;
  }
  auto made = Allocator::create(*process->driver_, config);
  if (!made.is_ok()) return std::move(made).status();
  process->allocator_ = std::move(made).value();
  // The first line of the log: a mistake in its level is told now, not at the first trouble.
  log_debug("event=start devices=" + std::to_string(process->allocator_->device_count()) +
            " conf=\"" + format_config(config) + "\"");
  return process;
}

Status Process::configure(std::string_view conf) {
  std::vector<std::string> warnings;
  {
    MutexLock lock(configure_mutex_);
    const Config now = visit([](auto& allocator) { return allocator.get_config(); });
    auto parsed = parse_config(conf, now, get_parse_mode_from_environment());
    if (!parsed.is_ok()) return std::move(parsed).status();
    Status status = visit([&](auto& allocator) { return apply(parsed.value(), allocator); });
    if (!status.is_ok()) return status;
    warnings = std::move(parsed).value().warnings;
  }
  log_warnings(warnings);
  return {};
}

void Process::mark_forked() noexcept {
  if (allocator_ != nullptr) allocator_->mark_forked();
  if (pass_through_ != nullptr) pass_through_->mark_forked();
}

// --- The one process ---

Result<Process*> find_process_slowly() {
  while (true) {
    const Phase phase = wait_for_phase();
    if (phase == Phase::kRunning) return process_instance;
    if (phase == Phase::kForked || phase == Phase::kStopped) return explain_no_process();
    Status result;
    if (try_start(phase, make_process_from_environment, result) && !result.is_ok()) return result;
  }
}

Status explain_no_process() {
  switch (process_phase.load(std::memory_order_acquire)) {
    case Phase::kForked:
      return {StatusCode::kForked,
              "this process was forked after Quarry was initialised, and the child has no device; "
              "start workers with exec (spawn), or fork before the first use"};
    case Phase::kStopped:
      return {StatusCode::kShutDown,
              "quarry_shutdown was called; quarry_init makes a new allocator"};
    default:
      return {StatusCode::kInvalidPointer, "no memory was allocated yet"};
  }
}

Status start_process(std::unique_ptr<Driver> driver, const ProcessOptions& options) {
  return start_process([&] { return make_process(std::move(driver), options); });
}

Status start_process(const MakeProcess& make) {
  while (true) {
    const Phase phase = wait_for_phase();
    if (phase == Phase::kForked) return explain_no_process();
    if (phase == Phase::kRunning) {
      return {StatusCode::kBusy,
              "there is an allocator already, made by an earlier call; quarry_init with options "
              "must be the first call"};
    }
    Status result;
    if (try_start(phase, make, result)) return result;
  }
}

Status find_or_restart_process() {
  while (true) {
    const Phase phase = wait_for_phase();
    if (phase == Phase::kRunning) return {};
    if (phase == Phase::kForked) return explain_no_process();
    Status result;
    if (try_start(phase, make_process_from_environment, result)) return result;
  }
}

Status stop_process() {
  if (Status status = check_may_stop(); !status.is_ok()) return status;
  Phase running = Phase::kRunning;
  while (!process_phase.compare_exchange_strong(running, Phase::kChanging)) {
    const Phase phase = wait_for_phase();
    if (phase == Phase::kForked) return explain_no_process();
    if (phase == Phase::kNone || phase == Phase::kStopped) return {};
    running = Phase::kRunning;
  }
  running_allocator.store(nullptr);
  wait_for_pins();
  delete std::exchange(process_instance, nullptr);
  set_phase(Phase::kStopped);
  return {};
}

void note_stream_use(StreamHandle stream) noexcept {
  if (stream != StreamHandle::kPerThread) [[likely]]
    return;
  note_thread_exit_duty();
}

void note_thread_exit_duty() noexcept {
  // Any value but null calls the destructor; the phase tells it whom to ask.
  pthread_setspecific(get_thread_exit_key(), &process_phase);
}

}  // namespace quarry
