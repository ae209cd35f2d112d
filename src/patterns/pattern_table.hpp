// SPDX-License-Identifier: Apache-2.0
// The patterns' names for the table in pattern.cpp; each is defined in a file of its own or of its
// kind, which says what program it stands for.
#pragma once

#include "patterns/pattern.hpp"

namespace quarry::patterns {

extern const Pattern kBatchWobble;
extern const Pattern kChunkedPrefill;
extern const Pattern kContinuousBatching;
extern const Pattern kGraphBuckets;
extern const Pattern kGrowingScratch;
extern const Pattern kKvConcat;
extern const Pattern kKvStatic;
extern const Pattern kMoe;
extern const Pattern kOneShotStream;
extern const Pattern kRaggedTraining;
extern const Pattern kServerThreads;
extern const Pattern kShardedLayers;
extern const Pattern kTwoBatchOverlap;
extern const Pattern kUnet;
extern const Pattern kWeightSwizzle;

}  // namespace quarry::patterns
