// SPDX-License-Identifier: Apache-2.0
// How the functions for PyTorch fail: by an exception that PyTorch passes on.
#pragma once

#include "quarry/quarry.h"

namespace quarry {

// Throws what quarry_torch.h says, with the text of the thread's last failure. To be called on the
// thread of the failure, before another.
void throw_unless_ok(quarry_status status);

}  // namespace quarry
