// SPDX-License-Identifier: Apache-2.0
// Random cases: a device, and operations on it that are mostly sensible, sometimes extreme and
// sometimes wrong. Knows what it asked for, not what was answered.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/model/case.hpp"
#include "tests/model/entropy.hpp"

namespace quarry::model {

// What the operations may be.
enum class Repertoire {
  kEverything,
  kOneThread,   // nothing that needs another one
  kBlocksOnly,  // no private pools, and nothing in captures
  kGraphs,      // with private pools and graphs for certain
};

// At most `count` operations; fewer when the entropy is used up.
Case generate_case(Entropy& entropy, std::size_t count,
                   Repertoire repertoire = Repertoire::kEverything);

}  // namespace quarry::model
