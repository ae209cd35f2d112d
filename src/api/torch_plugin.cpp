// SPDX-License-Identifier: Apache-2.0
// PyTorch's plug-in: the C API with failures as exceptions. Nothing here knows PyTorch; what its
// side of each call does with an exception is in docs/integrations.md. The calls of quarry.h bind
// inside the library (-Bsymbolic-functions), so that a hit costs one direct call more than there.
#include <fmt/format.h>

#include <atomic>
#include <string>

#include "api/torch_failure.hpp"
#include "base/log.hpp"
#include "quarry/quarry.hpp"
#include "quarry/quarry_torch.h"

namespace {

std::atomic<quarry_torch_oom_thrower> oom_thrower{nullptr};

// To be called on the thread of the failure, before another.
[[noreturn, gnu::cold, gnu::noinline]] void throw_failure(quarry_status status) {
  const std::string text = quarry_get_last_error();
  if (status != QUARRY_ERROR_OUT_OF_MEMORY) throw quarry::Error(status, "Quarry: " + text);
  if (const auto thrower = oom_thrower.load(std::memory_order_acquire)) thrower(text.c_str());
  throw quarry::OutOfMemory(text);
}

}  // namespace

namespace quarry {

void throw_unless_ok(quarry_status status) {
  if (status != QUARRY_OK) [[unlikely]]
    throw_failure(status);
}

}  // namespace quarry

using quarry::throw_unless_ok;

void* quarry_torch_malloc(size_t bytes, int device, quarry_stream stream) {
  void* ptr = nullptr;
  throw_unless_ok(quarry_malloc(&ptr, bytes, device, stream));
  return ptr;
}

void quarry_torch_free(void* ptr, size_t, int, quarry_stream) {
  quarry_free(ptr);
}

void quarry_torch_init(int device_count) {
  int count = 0;
  throw_unless_ok(quarry_get_device_count(&count));
  if (count >= device_count) return;
  throw quarry::Error(QUARRY_ERROR_INVALID_ARGUMENT,
                      fmt::format("Quarry: PyTorch has {} devices, this allocator {}; did "
                                  "CUDA_VISIBLE_DEVICES change, or is QUARRY_DRIVER set?",
                                  device_count, count));
}

void quarry_torch_reset(void) {
  int count = 0;
  throw_unless_ok(quarry_get_device_count(&count));
  quarry_status failed = QUARRY_OK;
  // The last failure's text is the one that is kept; the other devices get their turn.
  for (int device = 0; device < count; ++device) {
    const quarry_status status = quarry_empty_cache(device);
    if (status != QUARRY_OK) failed = status;
  }
  throw_unless_ok(failed);
}

void quarry_torch_memory_fraction(double fraction, int device) {
  throw_unless_ok(quarry_set_memory_fraction(device, fraction));
}

void* quarry_torch_base_alloc(void* ptr, size_t* bytes) {
  quarry_block_info info = {};
  info.struct_size = sizeof(info);
  throw_unless_ok(quarry_get_block_info(ptr, &info));
  if (bytes != nullptr) *bytes = info.segment_bytes;
  return info.segment_address;
}

void quarry_torch_record_stream(void* ptr, quarry_stream stream) {
  const quarry_status status = quarry_record_stream(ptr, stream);
  if (status != QUARRY_ERROR_INVALID_POINTER) return throw_unless_ok(status);
  // PyTorch passes the storage of any CUDA tensor, also of one that it imported.
  static std::atomic_flag is_logged;
  if (is_logged.test_and_set(std::memory_order_relaxed)) return;
  quarry::log_warning(
      fmt::format("event=record_stream_ignored text=\"{}\" note=\"later ones are not logged\"",
                  quarry_get_last_error()));
}

void quarry_torch_set_oom_thrower(quarry_torch_oom_thrower thrower) {
  oom_thrower.store(thrower, std::memory_order_release);
}
