// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/driver_facts/fact_sheet.hpp"

namespace quarry::facts {
namespace {

using Json = nlohmann::ordered_json;

// A number keeps its full value, and its text is made again from it. JSON has no infinity.
Json to_json(const Cell& cell) {
  const bool is_number = cell.number.has_value() && std::isfinite(*cell.number);
  return is_number ? Json(*cell.number) : Json(cell.text);
}

Cell to_cell(const Json& json) {
  return json.is_number() ? Cell(json.get<double>()) : Cell(json.get<std::string>());
}

Json to_json(const FactSheet& sheet) {
  Json json{{"name", sheet.name},      {"title", sheet.title},   {"about", sheet.about},
            {"tables", Json::array()}, {"rules", Json::array()}, {"failures", sheet.failures}};
  for (const Table& table : sheet.tables) {
    Json rows = Json::array();
    for (const auto& row : table.rows) {
      Json cells = Json::array();
      for (const Cell& cell : row)
        cells.push_back(to_json(cell));
      rows.push_back(std::move(cells));
    }
    json["tables"].push_back(
        {{"title", table.title}, {"columns", table.columns}, {"rows", std::move(rows)}});
  }
  for (const Rule& rule : sheet.rules)
    json["rules"].push_back({{"claim", rule.claim}, {"holds", rule.holds}});
  return json;
}

FactSheet to_sheet(const Json& json) {
  FactSheet sheet;
  sheet.name = json.at("name");
  sheet.title = json.at("title");
  sheet.about = json.at("about");
  for (const Json& from : json.at("tables")) {
    Table table{from.at("title"), from.at("columns"), {}};
    for (const Json& row : from.at("rows")) {
      table.rows.emplace_back();
      for (const Json& cell : row)
        table.rows.back().push_back(to_cell(cell));
    }
    sheet.tables.push_back(std::move(table));
  }
  for (const Json& rule : json.at("rules"))
    sheet.rules.push_back({rule.at("claim"), rule.at("holds")});
  for (const Json& failure : json.at("failures"))
    sheet.failures.push_back(failure);
  return sheet;
}

}  // namespace

std::string dump_json(const std::vector<FactSheet>& sheets) {
  Json json = Json::array();
  for (const FactSheet& sheet : sheets)
    json.push_back(to_json(sheet));
  return json.dump(1);
}

std::vector<FactSheet> parse_json(std::string_view text) {
  std::vector<FactSheet> sheets;
  try {
    for (const Json& sheet : Json::parse(text))
      sheets.push_back(to_sheet(sheet));
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return sheets;
}

}  // namespace quarry::facts
