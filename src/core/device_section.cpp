// SPDX-License-Identifier: Apache-2.0
#include "core/device_section.hpp"

#include <utility>

#include "base/log.hpp"

namespace quarry {

DeviceAllocator::Section::Section(DeviceAllocator& device) : device_(device) {
  device_.mutex_.lock();
}

DeviceAllocator::Section::~Section() {
  device_.note_unsettled();
  if (device_.notices_.empty() && device_.unused_hooks_.empty()) [[likely]] {
    device_.mutex_.unlock();
    return;
  }
  const auto notices = std::exchange(device_.notices_, {});
  const auto hooks = std::exchange(device_.unused_hooks_, {});
  device_.mutex_.unlock();
  for (const std::string& line : notices)
    log_warning(line);
  for (const auto& hook : hooks)
    hook();
}

}  // namespace quarry
