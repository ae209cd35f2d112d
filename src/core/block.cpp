// SPDX-License-Identifier: Apache-2.0
#include "core/block.hpp"

namespace quarry {

std::string_view get_name(BlockState state) {
  switch (state) {
    case BlockState::kFree:
      return "free";
    case BlockState::kAllocated:
      return "allocated";
    case BlockState::kPending:
      return "pending";
    case BlockState::kRetiring:
      return "retiring";
    case BlockState::kUnmapped:
      return "unmapped";
  }
  return "unknown";
}

}  // namespace quarry
