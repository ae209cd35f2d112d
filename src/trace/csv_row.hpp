// SPDX-License-Identifier: Apache-2.0
// One row of the CSV trace format: the parser of the common case, which only says yes or no, and
// the explanation of a row that it refused, which may be slow. Pure functions of text.
#pragma once

#include <string>
#include <string_view>

#include "trace/trace_event.hpp"

namespace quarry {

inline constexpr std::string_view kCsvHeader = "t_us,op,id,bytes,stream";

// Parses the row at `cursor`, which must lie in text that contains a line end ('\n') further on.
// On success fills `event` and moves `cursor` past the line end.
bool parse_csv_row(const char*& cursor, TraceEvent& event) noexcept;

// Why `line` (without its line end) is not a row: one sentence for people.
std::string explain_csv_row(std::string_view line);

// The text in quotes, shortened, with unprintable bytes as \xNN: what errors show of an input.
std::string quote_input(std::string_view text);

// What to say of a file that is in no known format and begins with `start`.
std::string explain_unknown_format(std::string_view start);

}  // namespace quarry
