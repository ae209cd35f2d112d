// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "bench/driver_facts/fact_sheet.hpp"

namespace quarry::facts {
namespace {

std::vector<std::size_t> calculate_widths(const Table& table) {
  std::vector<std::size_t> widths;
  for (const std::string& column : table.columns)
    widths.push_back(column.size());
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i)
      widths[i] = std::max(widths[i], row[i].text.size());
  }
  return widths;
}

void print_padded(std::ostream& out, const std::string& text, std::size_t width) {
  out << text << std::string(width > text.size() ? width - text.size() : 0, ' ') << "  ";
}

// A bar would end the cell.
std::string escape(const std::string& text) {
  std::string escaped;
  for (char c : text)
    escaped += c == '|' ? std::string("\\|") : c == '\n' ? std::string(" ") : std::string(1, c);
  return escaped;
}

void print_markdown_table(std::ostream& out, const Table& table) {
  if (!table.title.empty()) out << "**" << table.title << "**\n\n";
  out << "|";
  for (const std::string& column : table.columns)
    out << " " << escape(column) << " |";
  out << "\n|";
  for (std::size_t i = 0; i < table.columns.size(); ++i)
    out << "---|";
  out << "\n";
  for (const auto& row : table.rows) {
    out << "|";
    for (const Cell& cell : row)
      out << " " << escape(cell.text) << " |";
    out << "\n";
  }
  out << "\n";
}

}  // namespace

Cell::Cell(double value) : text(format_number(value)), number(value) {}

std::string format_number(double value) {
  char text[64];
  if (std::abs(value) >= 1000 || value == std::floor(value)) {
    std::snprintf(text, sizeof text, "%.0f", value);
  } else if (std::abs(value) >= 100) {
    std::snprintf(text, sizeof text, "%.0f", value);
  } else if (std::abs(value) >= 10) {
    std::snprintf(text, sizeof text, "%.1f", value);
  } else {
    std::snprintf(text, sizeof text, "%.2f", value);
  }
  return text;
}

void print_text(std::ostream& out, const std::vector<FactSheet>& sheets) {
  for (const FactSheet& sheet : sheets) {
    out << "== " << sheet.title << "\n" << sheet.about << "\n\n";
    for (const Table& table : sheet.tables) {
      const std::vector<std::size_t> widths = calculate_widths(table);
      if (!table.title.empty()) out << table.title << "\n";
      for (std::size_t i = 0; i < widths.size(); ++i)
        print_padded(out, table.columns[i], widths[i]);
      out << "\n";
      for (const auto& row : table.rows) {
        for (std::size_t i = 0; i < row.size(); ++i)
          print_padded(out, row[i].text, i < widths.size() ? widths[i] : 0);
        out << "\n";
      }
      out << "\n";
    }
    for (const Rule& rule : sheet.rules)
      out << (rule.holds ? "holds  " : "BROKEN ") << rule.claim << "\n";
    for (const std::string& failure : sheet.failures)
      out << "FAILED " << failure << "\n";
    out << "\n";
  }
}

void print_markdown(std::ostream& out, const std::vector<FactSheet>& sheets) {
  for (const FactSheet& sheet : sheets) {
    out << "## " << sheet.title << "\n\n" << sheet.about << "\n\n";
    for (const Table& table : sheet.tables)
      print_markdown_table(out, table);
    if (!sheet.rules.empty()) {
      Table rules{"", {"what Quarry relies on", "here"}, {}};
      for (const Rule& rule : sheet.rules)
        rules.rows.push_back({rule.claim, rule.holds ? "holds" : "**does not hold**"});
      print_markdown_table(out, rules);
    }
    for (const std::string& failure : sheet.failures)
      out << "- not measured: " << escape(failure) << "\n";
    if (!sheet.failures.empty()) out << "\n";
  }
}

}  // namespace quarry::facts
