// SPDX-License-Identifier: Apache-2.0
#include "sim/cost_model.hpp"

#include <algorithm>
#include <iterator>
#include <span>

namespace quarry::sim {
namespace {

struct Point {
  Bytes bytes;
  std::uint64_t ns;
};

// Alone, idle context. The 2 GiB figures split the measured pair (1.7 ms) as 256 MiB divides.
constexpr Point kAllocate[] = {
    {2_MiB, 77'000}, {20_MiB, 84'000}, {256_MiB, 105'000}, {2_GiB, 530'000}};
constexpr Point kFree[] = {
    {2_MiB, 56'000}, {20_MiB, 72'000}, {256_MiB, 231'000}, {2_GiB, 1'170'000}};
constexpr Point kCreate[] = {{2_MiB, 12'900},  {8_MiB, 12'000},   {32_MiB, 14'900},
                             {64_MiB, 16'300}, {256_MiB, 21'300}, {1_GiB, 37'300}};
constexpr Point kMap[] = {{2_MiB, 1'900},  {8_MiB, 900},     {32_MiB, 900},
                          {64_MiB, 1'000}, {256_MiB, 1'100}, {1_GiB, 1'500}};
constexpr Point kSetAccess[] = {{2_MiB, 32'000},  {8_MiB, 31'000},   {32_MiB, 30'000},
                                {64_MiB, 33'000}, {256_MiB, 44'000}, {1_GiB, 76'000}};
constexpr Point kUnmap[] = {{2_MiB, 22'000},  {8_MiB, 20'000},   {32_MiB, 19'000},
                            {64_MiB, 21'000}, {256_MiB, 25'000}, {1_GiB, 32'000}};
constexpr Point kRelease[] = {{2_MiB, 15'000},  {8_MiB, 18'000},    {32_MiB, 34'000},
                              {64_MiB, 59'000}, {256_MiB, 181'000}, {1_GiB, 638'000}};

constexpr std::uint64_t kSmallAllocateNs = 3'700;
constexpr std::uint64_t kSmallFreeNs = 3'100;
constexpr std::uint64_t kFailedAllocateNs = 307'000;
constexpr std::uint64_t kContextRecordNs = 187;
constexpr std::uint64_t kContextRecordPer64StreamsNs = 813 - kContextRecordNs;

// Straight lines between the measured points; the last line goes on, the first point is the least.
std::uint64_t interpolate(std::span<const Point> points, Bytes bytes) {
  if (bytes <= points.front().bytes) return points.front().ns;
  auto upper = std::find_if(points.begin(), points.end(),
                            [bytes](const Point& point) { return point.bytes >= bytes; });
  if (upper == points.end()) --upper;
  const Point& low = *std::prev(upper);
  const double slope = (static_cast<double>(upper->ns) - static_cast<double>(low.ns)) /
                       static_cast<double>(upper->bytes - low.bytes);
  const double ns = static_cast<double>(low.ns) + slope * static_cast<double>(bytes - low.bytes);
  return static_cast<std::uint64_t>(ns);
}

std::uint64_t calculate_allocate_ns(const CallSize& size) {
  if (size.has_failed) return kFailedAllocateNs;
  return size.fits_open_page ? kSmallAllocateNs : interpolate(kAllocate, size.bytes);
}

std::uint64_t calculate_free_ns(const CallSize& size) {
  return size.fits_open_page ? kSmallFreeNs : interpolate(kFree, size.bytes);
}

std::uint64_t per_mapping_ns(std::span<const Point> points, const CallSize& size) {
  const std::uint64_t count = std::max<std::uint64_t>(size.count, 1);
  return count * interpolate(points, size.bytes / count);
}

}  // namespace

std::uint64_t calculate_cost_ns(DriverEntry entry, const CallSize& size) {
  switch (entry) {
    case DriverEntry::kGetDeviceCount:
      return 12;
    case DriverEntry::kGetDeviceProperties:
      return 12;
    case DriverEntry::kGetMemoryInfo:
      return 4'900;
    case DriverEntry::kEnablePeerAccess:
      return 30'000;  // not measured: as a reservation
    case DriverEntry::kAllocate:
      return calculate_allocate_ns(size);
    case DriverEntry::kFree:
      return calculate_free_ns(size);
    case DriverEntry::kReserveAddresses:
      return 30'000;
    case DriverEntry::kFreeAddresses:
      return 37'000;
    case DriverEntry::kCreateExtent:
      return interpolate(kCreate, size.bytes);
    case DriverEntry::kReleaseExtent:
      return interpolate(kRelease, size.bytes);
    case DriverEntry::kMap:
      return interpolate(kMap, size.bytes);
    case DriverEntry::kUnmap:
      return per_mapping_ns(kUnmap, size);
    case DriverEntry::kRevokeAccess:  // not measured: as the other
    case DriverEntry::kSetAccess:
      return per_mapping_ns(kSetAccess, size);
    case DriverEntry::kCreateEvent:
      return 90;  // half of the measured pair
    case DriverEntry::kDestroyEvent:
      return 89;
    case DriverEntry::kRecordEvent:
      return 237;
    case DriverEntry::kRecordContextEvent:
      return kContextRecordNs + kContextRecordPer64StreamsNs * size.count / 64;
    case DriverEntry::kQueryEvent:
      return size.has_failed ? 129 : 158;  // pending, done
    case DriverEntry::kSynchronizeEvent:
      return 158;
    case DriverEntry::kWaitEvent:
      return 234;
    case DriverEntry::kGetCaptureStatus:
      return 17;
    case DriverEntry::kGetCaptureInfo:
      return 17;  // not measured: as the status
    case DriverEntry::kCallWhenGraphIsGone:
      return 180;  // not measured: as making two events
    case DriverEntry::kGetCaptureFrontier:
      return 17;  // not measured: as the status
    case DriverEntry::kGetPredecessors:
      return 17;  // not measured: as the status
    case DriverEntry::kGetStreamId:
      return 16;
    case DriverEntry::kExchangeCaptureMode:
      return 10;
  }
  return 0;
}

}  // namespace quarry::sim
