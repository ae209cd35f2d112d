// SPDX-License-Identifier: Apache-2.0
// Quarry's and CUDA's variables, and LD_PRELOAD. PyTorch's are in pytorch_check.cpp.
#include "tools/environment_check.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "api/config_grammar.hpp"
#include "api/config_parser.hpp"
#include "tools/known_library.hpp"

namespace quarry::tools {
namespace {

constexpr char kPreload[] = "LD_PRELOAD";

bool is_set(const Environment& environment, std::string_view name) {
  return environment.find(name) != environment.end();
}

void add(Findings& findings, Severity severity, std::string_view subject, std::string text,
         std::string advice) {
  findings.push_back({severity, std::string(subject), std::move(text), std::move(advice)});
}

void append(Findings& findings, Findings more) {
  std::move(more.begin(), more.end(), std::back_inserter(findings));
}

std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(separators), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// Each of Quarry's variables alone, so that one wrong value hides no other.
void check_values(const Environment& environment, Findings& findings) {
  for (const char* const name :
       {"QUARRY_DRIVER", "QUARRY_SIM_DEVICES", "QUARRY_SIM_MEMORY", "QUARRY_DISABLE"}) {
    const Result<ProcessOptions> alone = read_environment([&](const char* asked) {
      return std::string_view(asked) == name ? find_variable(environment, name)
                                             : std::string_view();
    });
    if (alone.is_ok()) continue;
    add(findings, Severity::kHurts, name, std::string(alone.status().message()),
        "correct or unset it; until then Quarry refuses every call");
  }
}

// Names that begin as Quarry's do, and that nobody reads: most likely misspelt.
void check_names(const Environment& environment, Findings& findings) {
  constexpr std::string_view kPrefix = "QUARRY_";
  constexpr std::array<std::string_view, 8> kKnown = {
      "QUARRY_CONF",       "QUARRY_CONF_LENIENT", "QUARRY_DISABLE",
      "QUARRY_DRIVER",     "QUARRY_LOG_LEVEL",    "QUARRY_SIM_DEVICES",
      "QUARRY_SIM_MEMORY", "QUARRY_LIBRARY_DIR"};  // of examples/pytorch
  for (auto place = environment.lower_bound(kPrefix);
       place != environment.end() && place->first.starts_with(kPrefix); ++place) {
    if (std::find(kKnown.begin(), kKnown.end(), place->first) != kKnown.end()) continue;
    add(findings, Severity::kNote, place->first, "is no variable that Quarry reads",
        "correct its name (docs/tuning.md has them all), or unset it");
  }
}

Result<ParsedConfig> parse_conf(const Environment& environment) {
  const bool is_lenient = find_variable(environment, "QUARRY_CONF_LENIENT") == "1";
  return parse_config(find_variable(environment, "QUARRY_CONF"), Config{},
                      is_lenient ? ParseMode::kLenient : ParseMode::kStrict);
}

void check_conf(const Environment& environment, Findings& findings) {
  const std::string_view lenient = find_variable(environment, "QUARRY_CONF_LENIENT");
  const Result<ParsedConfig> parsed = parse_conf(environment);
  if (!parsed.is_ok()) {
    add(findings, Severity::kHurts, "QUARRY_CONF", std::string(parsed.status().message()),
        "correct it (docs/tuning.md has every option); until then Quarry refuses every call");
  } else {
    for (const std::string& warning : parsed.value().warnings) {
      add(findings, Severity::kNote, "QUARRY_CONF", warning, "take it out if it is not meant");
    }
  }
  if (lenient.empty() || lenient == "1") return;
  add(findings, Severity::kNote, "QUARRY_CONF_LENIENT",
      "is " + quote(lenient) + ", which means nothing: only 1 ignores unknown options",
      "set it to 1 or unset it");
}

void check_log_level(const Environment& environment, Findings& findings) {
  constexpr std::array<std::string_view, 6> kLevels = {"",        "debug", "info",
                                                       "warning", "error", "off"};
  const std::string_view level = find_variable(environment, "QUARRY_LOG_LEVEL");
  if (std::find(kLevels.begin(), kLevels.end(), level) != kLevels.end()) return;
  add(findings, Severity::kNote, "QUARRY_LOG_LEVEL",
      "is " + quote(level) + ", which is no level: warning is taken",
      "set it to debug, info, warning, error or off");
}

void check_kinds_of_device(const Environment& environment, Findings& findings) {
  const bool is_sim = find_variable(environment, "QUARRY_DRIVER") == "sim";
  if (is_sim) {
    add(findings, Severity::kNote, "QUARRY_DRIVER",
        "is sim: memory is simulated, and no kernel can use it", "unset it to use the GPU");
    return;
  }
  for (const char* const name : {"QUARRY_SIM_DEVICES", "QUARRY_SIM_MEMORY"}) {
    if (find_variable(environment, name).empty()) continue;
    add(findings, Severity::kNote, name, "does nothing without QUARRY_DRIVER=sim",
        "unset it, or set QUARRY_DRIVER=sim");
  }
}

}  // namespace

Environment parse_environment(std::string_view block) {
  Environment environment;
  while (!block.empty()) {
    const std::size_t end = std::min(block.find('\0'), block.size());
    const std::string_view entry = block.substr(0, end);
    const std::size_t equals = entry.find('=');
    if (equals != std::string_view::npos) {
      environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    }
    block.remove_prefix(std::min(end + 1, block.size()));
  }
  return environment;
}

std::string_view find_variable(const Environment& environment, std::string_view name) {
  const auto place = environment.find(name);
  return place != environment.end() ? std::string_view(place->second) : std::string_view();
}

Result<ProcessOptions> read_process_options(const Environment& environment) {
  return read_environment(
      [&environment](const char* name) { return find_variable(environment, name); });
}

Result<Config> read_config(const Environment& environment) {
  Result<ParsedConfig> parsed = parse_conf(environment);
  if (!parsed.is_ok()) return std::move(parsed).status();
  return parsed.value().config;
}

Findings check_environment(const Environment& environment) {
  Findings findings = check_quarry_variables(environment);
  append(findings, check_pytorch_variables(environment));
  append(findings, check_cuda_variables(environment));
  append(findings, check_preloads(environment));
  return findings;
}

Findings check_quarry_variables(const Environment& environment) {
  Findings findings;
  check_values(environment, findings);
  check_conf(environment, findings);
  if (find_variable(environment, "QUARRY_DISABLE") == "1") {
    add(findings, Severity::kHurts, "QUARRY_DISABLE",
        "is 1: nothing is cached, every request goes to the driver",
        "unset it when you know whether the fault that you look for is Quarry's");
  }
  check_kinds_of_device(environment, findings);
  check_log_level(environment, findings);
  check_names(environment, findings);
  return findings;
}

Findings check_cuda_variables(const Environment& environment) {
  Findings findings;
  const std::string_view blocking = find_variable(environment, "CUDA_LAUNCH_BLOCKING");
  if (!blocking.empty() && blocking != "0") {
    add(findings, Severity::kHurts, "CUDA_LAUNCH_BLOCKING",
        "makes every launch wait for the GPU; times measured so mean nothing",
        "unset it unless you look for the kernel that fails");
  }
  if (!is_set(environment, "CUDA_VISIBLE_DEVICES")) return findings;
  const std::string_view visible = find_variable(environment, "CUDA_VISIBLE_DEVICES");
  const std::vector<std::string> words = split(visible, ", ");
  if (count_visible_devices(environment) == 0) {
    add(findings, Severity::kHurts, "CUDA_VISIBLE_DEVICES",
        "is " + quote(visible) + ", which hides every GPU", "unset it, or name the GPUs to use");
  } else if (std::set<std::string>(words.begin(), words.end()).size() != words.size()) {
    add(findings, Severity::kHurts, "CUDA_VISIBLE_DEVICES",
        "is " + quote(visible) + ", which names a GPU twice: CUDA then finds none",
        "name each GPU once");
  } else {
    add(findings, Severity::kNote, "CUDA_VISIBLE_DEVICES",
        "is " + quote(visible) + ": device 0 is the first of these",
        "count devices within this list wherever Quarry takes a device");
  }
  return findings;
}

Findings check_preloads(const Environment& environment) {
  Findings findings;
  int shims = 0;
  for (const std::string& path : split(find_variable(environment, "LD_PRELOAD"), ": ")) {
    const KnownLibrary library = recognise_library(path);
    if (library.kind == LibraryKind::kQuarryShim) {
      shims += 1;
    } else if (library.kind == LibraryKind::kCudaHook ||
               library.kind == LibraryKind::kCudaDriver) {
      add(findings, Severity::kHurts, kPreload,
          path + " (" + library.name + ") stands between programs and the CUDA driver",
          "leave it out beside Quarry, unless its limits are what you want: what it allocates or "
          "holds back is external memory to Quarry");
    } else if (library.kind == LibraryKind::kUnknown) {
      add(findings, Severity::kNote, kPreload, path + " is not a library that doctor knows",
          "make sure that it does not replace CUDA's allocation calls");
    } else if (library.kind == LibraryKind::kHostAllocator) {
      add(findings, Severity::kNote, kPreload,
          path + " (" + library.name + ") replaces host memory only, which is fine",
          "nothing needs to be done");
    } else {
      add(findings, Severity::kNote, kPreload,
          path + " (" + library.name + ") is loaded into every child process too",
          "link or load it in the program that needs it instead");
    }
  }
  if (shims > 1) {
    add(findings, Severity::kHurts, kPreload,
        "names Quarry's shim " + std::to_string(shims) + " times", "name it once");
  }
  return findings;
}

int count_visible_devices(const Environment& environment) {
  if (!is_set(environment, "CUDA_VISIBLE_DEVICES")) return -1;
  int count = 0;
  for (const std::string& word : split(find_variable(environment, "CUDA_VISIBLE_DEVICES"), ", ")) {
    // CUDA takes the devices before the first entry that names none.
    if (word.starts_with('-') || word == "NoDevFiles") break;
    ++count;
  }
  return count;
}

}  // namespace quarry::tools
