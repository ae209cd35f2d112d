// SPDX-License-Identifier: Apache-2.0
// quarry_driver_facts: measures what the CUDA driver costs and does, as far as Quarry's design
// rests on it, and prints it (docs/driver-facts.md holds such a print). Runs each section in a
// child process and puts the sheets together; measures nothing itself.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>

#include "bench/driver_facts/alias_kernels.hpp"
#include "bench/driver_facts/child_process.hpp"
#include "bench/driver_facts/driver_calls.hpp"
#include "bench/driver_facts/gpu_work.hpp"
#include "bench/driver_facts/sections.hpp"

namespace quarry::facts {
namespace {

constexpr int kSectionLimitS = 150;
constexpr int kSkipped = 77;

struct Arguments {
  std::string json;
  bool is_markdown = false;
  unsigned rounds = 2000;
  std::vector<std::string> only;
  bool only_capture_races = false;
  std::string section;
  std::string cell;
  std::string race;
};

const Section* find_section(const std::string& name) {
  for (const Section& section : kSections) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

bool has_gpu() {
  try {
    enter_context();
    return true;
  } catch (const DriverError& error) {
    std::fprintf(stderr, "no usable GPU: %s\n", error.what());
    return false;
  }
}

int run_section(const Section& section, const Arguments& arguments) {
  if (!has_gpu()) return kSkipped;
  Recorder recorder({section.name, section.title, section.about, {}, {}, {}}, arguments.json);
  recorder.step("loading kernels", [] {
    require(load_work_kernels(), "loading kernels");
    require(load_alias_kernels(), "loading kernels");
  });
  section.measure(recorder, {arguments.rounds, arguments.only_capture_races});
  recorder.save();
  return 0;
}

// Written and not exited with: an exit status has no room for the driver's codes.
int run_cell(const Arguments& arguments) {
  const int code = run_destroyed_stream_cell(arguments.cell);
  std::ofstream(arguments.json) << "returns " << code;
  return 0;
}

int run_race(const Arguments& arguments) {
  run_capture_race(arguments.race, arguments.json);
  return 0;
}

FactSheet run_section_in_child(const Section& section, const Arguments& arguments,
                               bool& is_skipped) {
  const AnswerFile answer;
  std::vector<std::string> words = {"--section",   section.name, "--json",
                                    answer.path(), "--rounds",   std::to_string(arguments.rounds)};
  if (arguments.only_capture_races) words.emplace_back("--capture-races");
  const ChildResult child = run_child(words, kSectionLimitS);
  is_skipped = child.status == kSkipped && child.signal == 0;
  FactSheet sheet{section.name, section.title, section.about, {}, {}, {}};
  const std::vector<FactSheet> sheets = parse_json(answer.read());
  if (sheets.size() == 1) {
    sheet = sheets[0];
  } else {
    sheet.failures.push_back("the section: it left no sheet");
  }
  if (!child.is_ok()) sheet.failures.push_back("the section: " + child.describe());
  return sheet;
}

int run_all(const Arguments& arguments) {
  std::vector<FactSheet> sheets;
  for (const Section& section : kSections) {
    if (!arguments.only.empty() && std::find(arguments.only.begin(), arguments.only.end(),
                                             section.name) == arguments.only.end()) {
      continue;
    }
    bool is_skipped = false;
    sheets.push_back(run_section_in_child(section, arguments, is_skipped));
    if (is_skipped) return kSkipped;
  }
  if (!arguments.json.empty()) std::ofstream(arguments.json) << dump_json(sheets) << "\n";
  if (arguments.is_markdown) {
    print_markdown(std::cout, sheets);
  } else {
    print_text(std::cout, sheets);
  }
  const bool is_good = std::all_of(sheets.begin(), sheets.end(), [](const FactSheet& sheet) {
    return sheet.failures.empty() && std::all_of(sheet.rules.begin(), sheet.rules.end(),
                                                 [](const Rule& rule) { return rule.holds; });
  });
  return is_good ? 0 : 1;
}

int run(int argc, char** argv) {
  Arguments arguments;
  std::vector<std::string> names;
  for (const Section& section : kSections)
    names.emplace_back(section.name);
  CLI::App app(
      "Measures what the CUDA driver costs and does, as far as Quarry rests on it. Exit status: "
      "0 if everything was measured and every rule holds, 1 if not, 77 without a GPU.");
  app.add_option("--json", arguments.json, "write the sheets here too");
  app.add_flag("--markdown", arguments.is_markdown, "print what docs/driver-facts.md holds");
  app.add_option("--rounds", arguments.rounds, "rounds of each alias trial")
      ->check(CLI::Range(1u, 1000000u))
      ->capture_default_str();
  app.add_option("--only", arguments.only, "these sections only")->check(CLI::IsMember(names));
  app.add_flag("--capture-races", arguments.only_capture_races,
               "of the captures, only what is asked while they begin and end");
  app.add_option("--section", arguments.section, "run one section in this process")
      ->check(CLI::IsMember(names))
      ->group("For the program's own children");
  app.add_option("--cell", arguments.cell, "make one call on a destroyed stream")
      ->check(CLI::IsMember(get_destroyed_stream_cells()))
      ->group("For the program's own children");
  app.add_option("--race", arguments.race, "ask about a stream while its captures begin and end")
      ->check(CLI::IsMember(get_capture_races()))
      ->group("For the program's own children");
  CLI11_PARSE(app, argc, argv);
  if (!arguments.cell.empty()) return run_cell(arguments);
  if (!arguments.race.empty()) return run_race(arguments);
  if (!arguments.section.empty()) return run_section(*find_section(arguments.section), arguments);
  return run_all(arguments);
}

}  // namespace
}  // namespace quarry::facts

int main(int argc, char** argv) {
  // A crash in a child is a result here, and its core would be of no use.
  const rlimit none{0, 0};
  static_cast<void>(setrlimit(RLIMIT_CORE, &none));
  try {
    return quarry::facts::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
