// SPDX-License-Identifier: Apache-2.0
// What one section of the facts found: tables of cells, rules of Quarry that rest on them, and
// the steps that failed. Values only; fact_sheet_text.cpp prints them, fact_sheet_json.cpp carries
// them between processes.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quarry::facts {

// A text, or a number with three significant digits.
struct Cell {
  Cell(std::string words) : text(std::move(words)) {}  // NOLINT: converts
  Cell(const char* words) : text(words) {}             // NOLINT: converts
  Cell(double value);                                  // NOLINT: converts
  std::string text;
  std::optional<double> number;
};

struct Table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

// A claim that Quarry's code relies on, and whether this machine bears it out.
struct Rule {
  std::string claim;
  bool holds = false;
};

struct FactSheet {
  std::string name;  // of the section, as --only takes it
  std::string title;
  std::string about;  // what was done, for the reader of the tables
  std::vector<Table> tables;
  std::vector<Rule> rules;
  std::vector<std::string> failures;
};

std::string format_number(double value);

// Aligned columns for a terminal, or Markdown with headings of level 2.
void print_text(std::ostream& out, const std::vector<FactSheet>& sheets);
void print_markdown(std::ostream& out, const std::vector<FactSheet>& sheets);

std::string dump_json(const std::vector<FactSheet>& sheets);
// Empty if the text is no list of sheets.
std::vector<FactSheet> parse_json(std::string_view text);

}  // namespace quarry::facts
