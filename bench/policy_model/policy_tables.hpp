// SPDX-License-Identifier: Apache-2.0
// The tables of quarry_policy_model, in Markdown, on standard output.
#pragma once

#include <cstdint>
#include <span>

#include "bench/policy_model/recycling_model.hpp"
#include "bench/policy_model/upstream_expandable.hpp"

namespace quarry::policy_model {

void print_upstream_table(std::span<const PolicyTrace> traces);
// A row for each trace and lag.
void print_recycling_table(std::span<const PolicyTrace> traces, const RecyclingOptions& options,
                           std::span<const std::uint64_t> lags_us);
// A row for `options` and for each variation of one of them; a column for each trace, with the
// worst of the lags.
void print_sweep_table(std::span<const PolicyTrace> traces, const RecyclingOptions& options,
                       std::span<const std::uint64_t> lags_us);

}  // namespace quarry::policy_model
