// SPDX-License-Identifier: Apache-2.0
// libquarry_torch.so: makes a request that Quarry cannot meet a torch.OutOfMemoryError in Python.
// Includes only c10's exceptions, so that it builds where PyTorch has no CUDA. Built against the
// installed PyTorch, whose classes may differ from version to version. It works by being loaded,
// after `import torch`.
#include <c10/util/Exception.h>

#include "quarry/quarry_torch.h"

namespace {

// PyTorch turns this class, and no other, into torch.OutOfMemoryError.
[[noreturn]] void throw_out_of_memory(const char* text) {
  throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, text);
}

[[gnu::constructor]] void register_thrower() {
  quarry_torch_set_oom_thrower(throw_out_of_memory);
}

}  // namespace
