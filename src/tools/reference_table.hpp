// SPDX-License-Identifier: Apache-2.0
// A small CSV file of what PyTorch reserved when a trace was recorded: a header with the columns
// `trace` and `pytorch_peak_reserved_bytes` among others, and one line a trace. A plain value.
#pragma once

#include <istream>
#include <map>
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/status.hpp"

namespace quarry::tools {

class ReferenceTable {
 public:
  // A failure names the line and the cause.
  static Result<ReferenceTable> read(std::istream& input);

  // By the trace's label, see make_trace_label.
  std::optional<Bytes> find(const std::string& label) const;

 private:
  std::map<std::string, Bytes> reserved_bytes_;
};

}  // namespace quarry::tools
