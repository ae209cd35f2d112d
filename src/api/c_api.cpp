// SPDX-License-Identifier: Apache-2.0
// The C API: lifetime, configuration, memory and limits. Each function checks its arguments, finds
// the process's allocator and forwards; boundary.hpp is what they share.
#include <fmt/format.h>

#include <atomic>

#include "api/boundary.hpp"
#include "api/config_parser.hpp"
#include "api/process.hpp"
#include "base/log.hpp"

using namespace quarry;

static_assert(QUARRY_VERSION_MAJOR == QUARRY_PROJECT_VERSION_MAJOR);
static_assert(QUARRY_VERSION_MINOR == QUARRY_PROJECT_VERSION_MINOR);
static_assert(QUARRY_VERSION_PATCH == QUARRY_PROJECT_VERSION_PATCH);

static_assert(QUARRY_OK == static_cast<int>(StatusCode::kOk));
static_assert(QUARRY_ERROR_INVALID_ARGUMENT == static_cast<int>(StatusCode::kInvalidArgument));
static_assert(QUARRY_ERROR_OUT_OF_MEMORY == static_cast<int>(StatusCode::kOutOfMemory));
static_assert(QUARRY_ERROR_INVALID_POINTER == static_cast<int>(StatusCode::kInvalidPointer));
static_assert(QUARRY_ERROR_DOUBLE_FREE == static_cast<int>(StatusCode::kDoubleFree));
static_assert(QUARRY_ERROR_SIZE_MISMATCH == static_cast<int>(StatusCode::kSizeMismatch));
static_assert(QUARRY_ERROR_DRIVER == static_cast<int>(StatusCode::kDriverError));
static_assert(QUARRY_ERROR_FORKED == static_cast<int>(StatusCode::kForked));
static_assert(QUARRY_ERROR_NOT_SUPPORTED == static_cast<int>(StatusCode::kNotSupported));
static_assert(QUARRY_ERROR_BUSY == static_cast<int>(StatusCode::kBusy));
static_assert(QUARRY_ERROR_INTERNAL == static_cast<int>(StatusCode::kInternal));
static_assert(QUARRY_ERROR_SHUT_DOWN == static_cast<int>(StatusCode::kShutDown));

namespace {

// C lets an enum hold any int. To load one that is no enumerator is undefined in C++.
template <class Enum>
int read_enum(const Enum& from_c) {
  static_assert(sizeof(Enum) == sizeof(int));
  int number = 0;
  std::memcpy(&number, &from_c, sizeof(number));
  return number;
}

// The environment's options with what the caller says in their place.
Result<ProcessOptions> read_options(const quarry_init_options& given) {
  if (Status status = check_struct_size(given.struct_size, "options"); !status.is_ok()) {
    return status;
  }
  quarry_init_options known = {};
  std::memcpy(&known, &given, std::min(given.struct_size, sizeof(known)));
  auto options = read_environment();
  if (!options.is_ok()) return options;
  ProcessOptions merged = options.value();
  if (known.conf != nullptr) {
    merged.conf = known.conf;
    merged.conf_source = "options->conf";
  }
  const int driver = read_enum(known.driver);
  if (driver == QUARRY_DRIVER_CUDA) merged.driver = DriverKind::kCuda;
  if (driver == QUARRY_DRIVER_SIM) merged.driver = DriverKind::kSim;
  if (driver < QUARRY_DRIVER_DEFAULT || driver > QUARRY_DRIVER_SIM) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("options->driver is {}; allowed: a quarry_driver_kind", driver));
  }
  if (known.sim_device_count < 0 || known.sim_device_count > kMostSimDevices) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("options->sim_device_count is {}; allowed: 0 to {}",
                              known.sim_device_count, kMostSimDevices));
  }
  if (known.sim_device_count != 0) merged.sim_device_count = known.sim_device_count;
  if (known.sim_memory_bytes != 0) merged.sim_memory_bytes = known.sim_memory_bytes;
  return merged;
}

// quarry_free tells nobody what went wrong: the first failure of each kind is logged.
void log_first_of_kind(const Status& status) noexcept {
  static std::atomic<unsigned> logged_codes{0};
  const unsigned bit = 1u << static_cast<int>(status.code());
  if ((logged_codes.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) return;
  // In a forked child a thread of the parent may hold the log's lock for ever.
  if (status.code() == StatusCode::kForked) return;
  try {
    log_error(fmt::format("event=free_failed text=\"{}\" note=\"later ones are only counted\"",
                          status.message()));
  } catch (...) {
    // Without host memory there is nothing to say it with; the failure is counted.
  }
}

// Frees make no allocator: without one there is nothing to free.
template <class Body>
Status free_with_allocator(void* ptr, Body&& body) {
  Process* process = peek_process();
  if (process == nullptr) [[unlikely]]
    return ptr == nullptr ? Status() : explain_no_process();
  return process->visit([&](auto& allocator) -> Status { return body(allocator); });
}

// What neither the thread's magazines nor the stream's lane could serve.
Status allocate(void** ptr, size_t bytes, size_t alignment, int device, quarry_stream stream) {
  if (Status status = require(ptr, "ptr"); !status.is_ok()) return status;
  *ptr = nullptr;
  auto process = find_process();
  if (!process.is_ok()) return std::move(process).status();
  const StreamRef ref{device, to_handle(stream)};
  note_stream_use(ref.handle);
  auto address = process.value()->visit([&]<class Any>(Any& allocator) -> Result<Address> {
    if constexpr (std::is_same_v<Any, Allocator>) {
      return allocator.allocate_from_device(ref, bytes, alignment);
    } else {
      return allocator.allocate(ref, bytes, alignment);
    }
  });
  if (!address.is_ok()) return std::move(address).status();
  *ptr = to_pointer(address.value());
  return {};
}

[[gnu::noinline]] quarry_status allocate_slowly(void** ptr, size_t bytes, size_t alignment,
                                                int device, quarry_stream stream) noexcept {
  return run([&] { return allocate(ptr, bytes, alignment, device, stream); });
}

// What no second glance at the thread's magazines is enough for.
[[gnu::noinline]] quarry_status malloc_slowly(void** ptr, size_t bytes, int device,
                                              quarry_stream stream) noexcept {
  Allocator* const allocator = peek_allocator();
  if (allocator != nullptr && ptr != nullptr) {
    if (const Address address = allocator->take_from_lane({device, to_handle(stream)}, bytes)) {
      *ptr = to_pointer(address);
      return QUARRY_OK;
    }
  }
  return allocate_slowly(ptr, bytes, kMinBlock, device, stream);
}

[[gnu::noinline]] void free_slowly(void* ptr) noexcept {
  const Status status =
      free_with_allocator(ptr, [ptr](auto& allocator) { return allocator.free(to_address(ptr)); });
  if (!status.is_ok()) log_first_of_kind(status);
}

Status write_conf(const std::string& text, char* buffer, size_t buffer_bytes,
                  size_t* needed_bytes) {
  const std::size_t needed = text.size() + 1;
  if (needed_bytes != nullptr) *needed_bytes = needed;
  if (buffer_bytes == 0) return {};
  if (Status status = require(buffer, "buffer"); !status.is_ok()) return status;
  const std::size_t copied = std::min(text.size(), buffer_bytes - 1);
  std::memcpy(buffer, text.data(), copied);
  buffer[copied] = '\0';
  if (needed <= buffer_bytes) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("buffer_bytes is {}; the text needs {}", buffer_bytes, needed)};
}

}  // namespace

// --- Errors and version ---

const char* quarry_get_status_name(quarry_status status) {
  return get_name(StatusCode{read_enum(status)}).data();
}

const char* quarry_get_last_error(void) {
  return get_last_error();
}

int quarry_get_version(void) {
  return 10000 * QUARRY_VERSION_MAJOR + 100 * QUARRY_VERSION_MINOR + QUARRY_VERSION_PATCH;
}

// --- Lifetime and configuration ---

quarry_status quarry_init(const quarry_init_options* options) {
  if (options == nullptr) {
    return run([] { return find_or_restart_process(); });
  }
  return run([&]() -> Status {
    auto merged = read_options(*options);
    if (!merged.is_ok()) return std::move(merged).status();
    return start_process(nullptr, merged.value());
  });
}

quarry_status quarry_shutdown(void) {
  return run([] { return stop_process(); });
}

quarry_status quarry_configure(const char* conf) {
  return run([&]() -> Status {
    if (Status status = require(conf, "conf"); !status.is_ok()) return status;
    auto process = find_process();
    if (!process.is_ok()) return std::move(process).status();
    return process.value()->configure(conf);
  });
}

quarry_status quarry_get_conf(char* buffer, size_t buffer_bytes, size_t* needed_bytes) {
  return run_with_allocator([&](auto& allocator) {
    return write_conf(format_config(allocator.get_config()), buffer, buffer_bytes, needed_bytes);
  });
}

quarry_status quarry_get_device_count(int* count) {
  return run_with_allocator([&](auto& allocator) {
    if (Status status = require(count, "count"); !status.is_ok()) return status;
    *count = allocator.device_count();
    return Status();
  });
}

// --- Memory ---

// Most calls are served from the calling thread's magazines, most others from the stream's lane.
// The two functions of a pair call nothing but in their last line, so that they save no registers.
quarry_status quarry_malloc(void** ptr, size_t bytes, int device, quarry_stream stream) {
  Allocator* const allocator = peek_allocator();
  if (allocator != nullptr && ptr != nullptr) [[likely]] {
    const Block* const block = allocator->take_parked({device, to_handle(stream)}, bytes);
    if (block != nullptr) [[likely]] {
      *ptr = to_pointer(block->address);
      return QUARRY_OK;
    }
  }
  return malloc_slowly(ptr, bytes, device, stream);
}

quarry_status quarry_malloc_aligned(void** ptr, size_t bytes, size_t alignment, int device,
                                    quarry_stream stream) {
  if (alignment == kMinBlock) return quarry_malloc(ptr, bytes, device, stream);
  return allocate_slowly(ptr, bytes, alignment, device, stream);
}

void quarry_free(void* ptr) {
  Allocator* const allocator = peek_allocator();
  if (allocator != nullptr && allocator->try_free(to_address(ptr))) [[likely]]
    return;
  free_slowly(ptr);
}

quarry_status quarry_free_checked(void* ptr) {
  return run([&] {
    return free_with_allocator(ptr,
                               [ptr](auto& allocator) { return allocator.free(to_address(ptr)); });
  });
}

quarry_status quarry_free_sized(void* ptr, size_t bytes) {
  return run([&] {
    return free_with_allocator(
        ptr, [&](auto& allocator) { return allocator.free_sized(to_address(ptr), bytes); });
  });
}

quarry_status quarry_free_on_stream(void* ptr, quarry_stream stream) {
  return run([&] {
    return free_with_allocator(ptr, [&](auto& allocator) {
      note_stream_use(to_handle(stream));
      return allocator.free_on_stream(to_address(ptr), to_handle(stream));
    });
  });
}

quarry_status quarry_record_stream(void* ptr, quarry_stream stream) {
  return run([&] {
    return free_with_allocator(ptr, [&](auto& allocator) {
      note_stream_use(to_handle(stream));
      return allocator.record_stream(to_address(ptr), to_handle(stream));
    });
  });
}

quarry_status quarry_stream_retire(int device, quarry_stream stream) {
  return run_with_allocator([&](auto& allocator) {
    return allocator.retire_stream({device, to_handle(stream)});
  });
}

quarry_status quarry_empty_cache(int device) {
  return run_with_allocator([&](auto& allocator) { return allocator.empty_cache(device); });
}

quarry_status quarry_get_block_info(const void* ptr, quarry_block_info* info) {
  return run_with_allocator([&](auto& allocator) -> Status {
    auto found = allocator.find_block(to_address(ptr));
    if (!found.is_ok()) return std::move(found).status();
    const BlockInfo& block = found.value();
    const quarry_block_info value = {
        sizeof(value),         to_pointer(block.address),         block.bytes,
        block.requested_bytes, to_pointer(block.segment_address), block.segment_bytes,
        block.stream.device,   to_stream(block.stream.handle)};
    return write_struct(value, info, "info");
  });
}

// --- Limits ---

quarry_status quarry_set_memory_fraction(int device, double fraction) {
  return run_with_allocator(
      [&](auto& allocator) { return allocator.set_memory_fraction(device, fraction); });
}

quarry_status quarry_get_memory_fraction(int device, double* fraction) {
  return run_with_allocator([&](auto& allocator) -> Status {
    if (Status status = require(fraction, "fraction"); !status.is_ok()) return status;
    return store(allocator.get_memory_fraction(device), fraction);
  });
}

quarry_status quarry_set_limit(int device, uint64_t bytes) {
  return run_with_allocator([&](auto& allocator) { return allocator.set_limit(device, bytes); });
}

quarry_status quarry_get_limit(int device, uint64_t* bytes) {
  return run_with_allocator([&](auto& allocator) -> Status {
    if (Status status = require(bytes, "bytes"); !status.is_ok()) return status;
    return store(allocator.get_limit(device), bytes);
  });
}
