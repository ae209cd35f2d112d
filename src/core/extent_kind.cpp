// SPDX-License-Identifier: Apache-2.0
#include "core/extent_kind.hpp"

#include <algorithm>

namespace quarry {
namespace {

using HandleType = ExtentKind::HandleType;

// The strongest first.
constexpr HandleType kHandleTypes[] = {HandleType::kFabric, HandleType::kFileDescriptor,
                                       HandleType::kNone};

// Whether a driver can make handles of fabric it says only when it is asked for one.
bool is_possible(const ExtentKind& kind, const DeviceProperties& properties) {
  if (kind.gpu_direct_rdma && !properties.has_rdma) return false;
  return kind.handle_type != HandleType::kFileDescriptor || properties.has_fd_handles;
}

}  // namespace

ExtentKind get_wanted_kind(const Config& config) {
  return {config.extent_handle_types, config.rdma};
}

ExtentKind choose_kind(const ExtentKind& wanted, const DeviceProperties& properties,
                       std::span<const ExtentKind> refused) {
  for (auto type = std::ranges::find(kHandleTypes, wanted.handle_type);
       type != std::end(kHandleTypes); ++type) {
    for (const bool has_rdma : {true, false}) {
      const ExtentKind kind{*type, has_rdma};
      if (has_rdma && !wanted.gpu_direct_rdma) continue;
      if (!is_possible(kind, properties)) continue;
      if (std::ranges::find(refused, kind) == refused.end()) return kind;
    }
  }
  return {};
}

std::string describe(const ExtentKind& kind) {
  std::string text = kind.handle_type == HandleType::kFabric           ? "fabric handles"
                     : kind.handle_type == HandleType::kFileDescriptor ? "posix_fd handles"
                                                                       : "no handles";
  if (kind.gpu_direct_rdma) text += ", rdma";
  return text;
}

}  // namespace quarry
