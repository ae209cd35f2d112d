// SPDX-License-Identifier: Apache-2.0
#include "api/pool_boundary.hpp"

#include <atomic>
#include <memory>
#include <string>

#include "api/user_call.hpp"
#include "core/thread_state.hpp"

namespace quarry {
namespace {

constexpr unsigned kNumberBits = 48;
constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << kNumberBits) - 1;

SegmentBackend make_backend(const quarry_pool_options& options) {
  SegmentBackend backend;
  void* const user = options.user;
  if (options.unused != nullptr) {
    backend.on_unused = [call = options.unused, user] {
      const UserCallbackScope inside;
      call_safely([&] { call(user); });
    };
  }
  if (options.allocate == nullptr) return backend;
  backend.allocate = [call = options.allocate, user](Bytes bytes, StreamRef stream) {
    const UserCallbackScope inside;
    return call_safely(
        [&] { return to_address(call(bytes, stream.device, to_stream(stream.handle), user)); });
  };
  backend.free = [call = options.free, user](Address address, Bytes bytes, StreamRef stream) {
    const UserCallbackScope inside;
    call_safely(
        [&] { call(to_pointer(address), bytes, stream.device, to_stream(stream.handle), user); });
  };
  return backend;
}

}  // namespace

quarry_pool to_c(PoolName name) {
  if (name.id.first != kUserPools) return QUARRY_POOL_DEFAULT;
  return (static_cast<std::uint64_t>(name.device) << kNumberBits) | name.id.second;
}

Result<PoolName> read_pool(const Allocator& allocator, quarry_pool pool) {
  if (pool == QUARRY_POOL_DEFAULT) {
    return Status(StatusCode::kInvalidArgument,
                  "pool is QUARRY_POOL_DEFAULT; allowed: pools of quarry_pool_create");
  }
  const auto device = pool >> kNumberBits;
  if (device >= static_cast<std::uint64_t>(allocator.device_count())) {
    return Status(StatusCode::kInvalidArgument,
                  "pool is " + std::to_string(pool) + ", which quarry_pool_create never returned");
  }
  return PoolName{static_cast<DeviceId>(device), {kUserPools, pool & kNumberMask}};
}

Result<PoolOptions> read_pool_options(const quarry_pool_options* options) {
  PoolOptions read;
  if (options == nullptr) return read;
  if (Status status = check_struct_size(options->struct_size, "options"); !status.is_ok()) {
    return status;
  }
  quarry_pool_options known = {};
  std::memcpy(&known, options, std::min(options->struct_size, sizeof(known)));
  constexpr std::uint32_t kAllFlags =
      QUARRY_POOL_USE_ON_OOM | QUARRY_POOL_NO_SPLIT | QUARRY_POOL_NO_RECYCLE;
  if ((known.flags & ~kAllFlags) != 0) {
    return Status(StatusCode::kInvalidArgument, "options->flags is " +
                                                    std::to_string(known.flags) +
                                                    "; allowed: a sum of QUARRY_POOL_ flags");
  }
  if ((known.allocate == nullptr) != (known.free == nullptr)) {
    return Status(StatusCode::kInvalidArgument,
                  std::string("options->") + (known.free == nullptr ? "free" : "allocate") +
                      " is NULL; allowed: both functions, or neither");
  }
  read.use_on_oom = (known.flags & QUARRY_POOL_USE_ON_OOM) != 0;
  read.no_split = (known.flags & QUARRY_POOL_NO_SPLIT) != 0;
  read.no_recycle = (known.flags & QUARRY_POOL_NO_RECYCLE) != 0;
  if (known.limit_bytes != 0) read.limit_bytes = known.limit_bytes;
  read.backend = make_backend(known);
  return read;
}

StreamFilter make_safe_filter(std::function<bool(quarry_stream)> filter) {
  auto has_thrown = std::make_shared<std::atomic<bool>>(false);
  return [filter = std::move(filter), has_thrown](StreamHandle handle) {
    const UserCallbackScope inside;
    try {
      return filter(to_stream(handle));
    } catch (...) {
      if (!has_thrown->exchange(true)) call_safely([] { throw; });
      return true;
    }
  };
}

Status refuse_pools_under_kill_switch() {
  return {
      StatusCode::kNotSupported,
      "there are no private pools under the kill switch (QUARRY_DISABLE=1): a free gives memory "
      "to the driver although a graph may still use it"};
}

}  // namespace quarry
