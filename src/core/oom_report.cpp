// SPDX-License-Identifier: Apache-2.0
#include "core/oom_report.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace quarry {
namespace {

Bytes find_largest_of_others(const OomReport& report) {
  Bytes largest = 0;
  for (const StreamCache& cache : report.caches) {
    if (cache.stream != report.stream) largest = std::max(largest, cache.largest_free_block);
  }
  return largest;
}

bool exceeds(Bytes more, Bytes taken, Bytes limit) {
  return limit != kUnlimited && (more > limit || taken > limit - more);
}

bool was_refused_by_pool(const OomReport& report) {
  return exceeds(report.segment_bytes, report.pool_reserved_bytes, report.pool_limit_bytes);
}

bool was_refused_by_limit(const OomReport& report) {
  return was_refused_by_pool(report) ||
         exceeds(report.segment_bytes, report.reserved_bytes, report.limit_bytes);
}

OomReport::Reason find_reason(const OomReport& report, bool is_free_forbidden) {
  using Reason = OomReport::Reason;
  if (report.has_own_functions)
    return was_refused_by_limit(report) ? Reason::kLimit : Reason::kDeviceFull;
  if (report.segment_bytes > report.device_total_bytes) return Reason::kImpossible;
  if (is_free_forbidden && report.cached_bytes > 0) return Reason::kFreeForbidden;
  if (was_refused_by_limit(report)) return Reason::kLimit;
  if (report.cached_bytes < report.rounded_bytes + report.others_cached_bytes)
    return Reason::kDeviceFull;
  // The caches by stream are the default pool's.
  return report.pool.is_default() && find_largest_of_others(report) >= report.rounded_bytes
             ? Reason::kStranded
             : Reason::kFragmentation;
}

std::string get_advice(const OomReport& report) {
  switch (report.reason) {
    case OomReport::Reason::kImpossible:
      return "The request is larger than the device; no setting helps.";
    case OomReport::Reason::kFreeForbidden:
      return "The calling thread holds the driver-free guard, so cached memory could not be given "
             "back; ask again after releasing it.";
    case OomReport::Reason::kLimit:
      if (was_refused_by_pool(report)) {
        return fmt::format("The limit of pool {} refused it: raise it above {}, or free memory.",
                           to_text(report.pool), format_bytes(report.pool_limit_bytes));
      }
      return fmt::format(
          "The limit of this process refused it: raise it above {}, or free memory.",
          format_bytes(report.limit_bytes));
    case OomReport::Reason::kStranded:
      if (report.is_expandable) {
        return "A large enough block is cached, but this stream may not have it: look at "
               "cross_stream_reuse, or retire streams that are done.";
      }
      return "A large enough block is cached, but for another stream and in a segment in use; "
             "allocate on fewer streams, retire streams that are done, or try "
             "segments:expandable.";
    case OomReport::Reason::kFragmentation:
      if (report.is_expandable) {
        return "Enough is cached, but this request may not have it: look at recycle and "
               "cross_stream_reuse, and at the pools that hold it.";
      }
      return "Enough is cached, but in pieces that are too small; segments:expandable puts them "
             "together, and max_split_size_mb keeps large blocks whole.";
    case OomReport::Reason::kDeviceFull:
      break;
  }
  if (report.has_own_functions) {
    return fmt::format("The functions that pool {} gets its memory from gave no more.",
                       to_text(report.pool));
  }
  if (report.external_bytes > report.reserved_bytes) {
    return "Most of the device is in use by others than this allocator.";
  }
  if (report.others_cached_bytes >= report.rounded_bytes) {
    return fmt::format(
        "{} are cached in other private pools, which alone may use them: release pools whose "
        "graphs are gone, or let graphs share one.",
        format_bytes(report.others_cached_bytes));
  }
  return "Live blocks fill the device: free some, or make requests smaller.";
}

std::string get_stream_name(std::uint64_t stream) {
  return stream == ~std::uint64_t{0} ? "any stream" : fmt::format("stream {:#x}", stream);
}

}  // namespace

std::string_view get_name(OomReport::Reason reason) {
  switch (reason) {
    case OomReport::Reason::kDeviceFull:
      return "device_full";
    case OomReport::Reason::kFragmentation:
      return "fragmentation";
    case OomReport::Reason::kStranded:
      return "stranded";
    case OomReport::Reason::kLimit:
      return "limit";
    case OomReport::Reason::kFreeForbidden:
      return "free_forbidden";
    case OomReport::Reason::kImpossible:
      return "impossible";
  }
  return "unknown";
}

void add_driver_ledger(OomReport& report, Driver& driver, bool is_free_forbidden) {
  CaptureModeBracket bracket(driver);
  if (const auto info = driver.get_memory_info(report.device); info.is_ok()) {
    report.device_total_bytes = info.value.total_bytes;
    report.device_free_bytes = info.value.free_bytes;
    const Bytes used = info.value.total_bytes - info.value.free_bytes;
    report.external_bytes = used > report.reserved_bytes ? used - report.reserved_bytes : 0;
  }
  report.reason = find_reason(report, is_free_forbidden);
}

std::string format(const OomReport& report) {
  std::string text = fmt::format(
      "CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which {} is "
      "free. ",
      format_bytes(report.segment_bytes), report.device, format_bytes(report.device_total_bytes),
      format_bytes(report.device_free_bytes));
  if (report.limit_bytes != kUnlimited) {
    text += fmt::format("{} allowed; ", format_bytes(report.limit_bytes));
  }
  // As PyTorch: what private pools cache counts as allocated, since nobody else may have it.
  const Bytes taken = report.allocated_bytes + report.private_cached_bytes;
  const std::string private_part =
      report.private_cached_bytes == 0
          ? ""
          : fmt::format("with {} allocated in private pools (e.g., CUDA Graphs), ",
                        format_bytes(report.private_cached_bytes));
  text += fmt::format(
      "Of the allocated memory {} is allocated by Quarry, {}and {} is reserved by Quarry but "
      "unallocated. {}",
      format_bytes(taken), private_part, format_bytes(report.reserved_bytes - taken),
      get_advice(report));
  text += fmt::format(
      "\n  reason={} requested={} rounded={} segment={} stream={:#x}"
      "\n  allocator: reserved={} allocated={} pending={} cached={} largest_free_block={}"
      "\n  driver: free={} external={}",
      get_name(report.reason), report.requested_bytes, report.rounded_bytes, report.segment_bytes,
      report.stream, report.reserved_bytes, report.allocated_bytes, report.pending_bytes,
      report.cached_bytes, report.largest_free_block, report.device_free_bytes,
      report.external_bytes);
  if (!report.pool.is_default()) {
    text +=
        fmt::format("\n  pool {}: reserved={}", to_text(report.pool), report.pool_reserved_bytes);
  }
  constexpr std::size_t kMaxStreams = 8;
  for (std::size_t i = 0; i < std::min(report.caches.size(), kMaxStreams); ++i) {
    const StreamCache& cache = report.caches[i];
    text +=
        fmt::format("\n  cached for {}: {} bytes, largest block {}", get_stream_name(cache.stream),
                    cache.cached_bytes, cache.largest_free_block);
  }
  if (report.caches.size() > kMaxStreams) {
    text += fmt::format("\n  and for {} more streams", report.caches.size() - kMaxStreams);
  }
  return text;
}

}  // namespace quarry
