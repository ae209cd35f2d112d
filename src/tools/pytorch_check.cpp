// SPDX-License-Identifier: Apache-2.0
// PyTorch's settings of its own allocator beside Quarry's (docs/tuning.md: the options have the
// same names and grammar, and Quarry reads only QUARRY_CONF).
#include <map>

#include "api/config_options.hpp"
#include "api/config_parser.hpp"
#include "tools/config_text.hpp"
#include "tools/environment_check.hpp"

namespace quarry::tools {
namespace {

constexpr char kOwnReading[] = "Quarry reads QUARRY_CONF only; ";

std::map<std::string, std::string> read_values(std::string_view conf) {
  std::map<std::string, std::string> values;
  const Result<std::vector<ConfigItem>> items = parse_items(conf);
  if (!items.is_ok()) return values;
  for (const ConfigItem& item : items.value())
    values[item.key.text] = format_value(item);
  return values;
}

// One option of PyTorch's, given what QUARRY_CONF says. Nothing to say: an empty subject.
Finding check_option(const std::string& variable, const std::string& key, const std::string& value,
                     const std::map<std::string, std::string>& quarry_values) {
  const std::string item = key + ":" + value;
  if (const auto ours = quarry_values.find(key);
      ours != quarry_values.end() && ours->second != value) {
    return {Severity::kHurts, variable,
            "says " + quote(item) + ", and QUARRY_CONF " + quote(key + ":" + ours->second),
            "make them equal, or take the option out of the one that is not meant"};
  }
  if (find_config_option(key) == nullptr) {
    const std::string_view reason = explain_foreign_key(key);
    return {Severity::kNote, variable,
            "sets " + quote(key) + ", which Quarry does not have" +
                (reason.empty() ? "" : ": it " + std::string(reason)),
            "expect nothing of it where Quarry allocates"};
  }
  const Result<ParsedConfig> alone = parse_config(item, Config{}, ParseMode::kStrict);
  if (!alone.is_ok()) {
    return {key == "backend" ? Severity::kHurts : Severity::kNote, variable,
            "says " + quote(item) +
                ", which Quarry would refuse: " + std::string(alone.status().message()),
            key == "backend"
                ? "take it out: PyTorch would fill the driver's own pool beside Quarry"
                : "expect nothing of it where Quarry allocates"};
  }
  if (alone.value().config == Config{} || quarry_values.count(key) != 0) return {};
  return {Severity::kNote, variable, "says " + quote(item) + ", which QUARRY_CONF does not",
          kOwnReading + ("add " + quote(item) + " there if Quarry shall do the same")};
}

void check_conf(const std::string& variable, std::string_view conf,
                const std::map<std::string, std::string>& quarry_values, Findings& findings) {
  if (const auto items = parse_items(conf); !items.is_ok()) {
    findings.push_back({Severity::kHurts, variable, std::string(items.status().message()),
                        "correct it: PyTorch refuses it too"});
    return;
  }
  for (const auto& [key, value] : read_values(conf)) {
    Finding finding = check_option(variable, key, value, quarry_values);
    if (!finding.subject.empty()) findings.push_back(std::move(finding));
  }
}

}  // namespace

Findings check_pytorch_variables(const Environment& environment) {
  Findings findings;
  const auto quarry_values = read_values(find_variable(environment, "QUARRY_CONF"));
  // In PyTorch's order of precedence: it reads the first that is set.
  std::string read_first;
  for (const char* const name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    const std::string_view conf = find_variable(environment, name);
    if (conf.empty()) continue;
    if (read_first.empty()) {
      read_first = name;
      check_conf(name, conf, quarry_values, findings);
    } else if (conf != find_variable(environment, read_first)) {
      findings.push_back({Severity::kHurts, name,
                          "differs from " + read_first + ", which PyTorch reads first",
                          "set one of the two"});
    }
  }
  if (const auto set = environment.find("PYTORCH_NO_CUDA_MEMORY_CACHING");
      set != environment.end() && set->second != "0" && !set->second.empty()) {
    findings.push_back({Severity::kHurts, set->first,
                        "turns PyTorch's caching off: where Quarry is not its allocator, every "
                        "tensor is a driver call, and graphs cannot be captured",
                        "unset it, except under Quarry's LD_PRELOAD shim"});
  }
  return findings;
}

}  // namespace quarry::tools
