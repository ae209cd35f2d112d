// SPDX-License-Identifier: Apache-2.0
// `quarry doctor`: gathers what there is to know (this process's environment or another's, the
// machine, loaded libraries) and prints it. What it means is the checks' business.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "tools/commands.hpp"
#include "tools/doctor_report.hpp"
#include "tools/environment_check.hpp"
#include "tools/machine_probe.hpp"
#include "tools/number_text.hpp"
#include "tools/option_check.hpp"
#include "tools/standard_output.hpp"

namespace quarry::tools {
namespace {

constexpr std::uint64_t kMostPid = 1u << 22;  // the kernel's own limit

struct DoctorCommandLine {
  std::string pid;
  bool json = false;
};

Environment read_own_environment() {
  std::string block;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    block += *entry;
    block += '\0';
  }
  return parse_environment(block);
}

Result<std::string> read_process_file(const std::string& pid, const char* name) {
  const std::string path = "/proc/" + pid + "/" + name;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  // Files of another user's process may open, and then refuse to be read.
  if (file.is_open() && (!text.empty() || errno == 0)) return text;
  return Status(StatusCode::kInvalidArgument,
                path + ": cannot read: " + std::strerror(errno != 0 ? errno : ENOENT));
}

// The environment that the named process started with, and what it has loaded.
Status read_process(const std::string& pid, DoctorReport& report, Environment& environment) {
  Result<std::string> maps = read_process_file(pid, "maps");
  if (!maps.is_ok()) return std::move(maps).status();
  report.libraries = list_loaded_libraries(maps.value());
  Result<std::string> block = read_process_file(pid, "environ");
  if (!block.is_ok()) return std::move(block).status();
  environment = parse_environment(block.value());
  report.pid = std::stoi(pid);
  return Status::ok();
}

// The device list of CUDA_VISIBLE_DEVICES can be held against the machine only where the machine
// was asked under the same list: in this process.
int count_own_visible_devices(const Environment& own, const Environment& checked) {
  const bool is_same =
      find_variable(own, "CUDA_VISIBLE_DEVICES") == find_variable(checked, "CUDA_VISIBLE_DEVICES");
  return is_same ? count_visible_devices(checked) : -1;
}

void append(Findings& findings, Findings more) {
  std::move(more.begin(), more.end(), std::back_inserter(findings));
}

void examine(const Environment& own, const Environment& environment, DoctorReport& report) {
  const Result<ProcessOptions> options = read_process_options(environment);
  ProcessOptions probed = options.is_ok() ? options.value() : ProcessOptions{};
  // Another variable that is refused does not turn the simulated device into the GPU.
  if (find_variable(environment, "QUARRY_DRIVER") == "sim") probed.driver = DriverKind::kSim;
  report.is_simulated = probed.driver == DriverKind::kSim;
  report.machine = probe_machine(probed);
  report.choices = explain_choices(environment, report.machine);
  const auto has_magazines = [](const Choice& choice) {
    return choice.what == "thread cache" && choice.value == "on";
  };
  if (std::any_of(report.choices.begin(), report.choices.end(), has_magazines)) {
    report.choices.push_back(explain_owner_order(get_owner_order()));
  }
  const int visible = report.is_simulated ? -1 : count_own_visible_devices(own, environment);
  append(report.findings, check_machine(report.machine, visible));
  append(report.findings, check_environment(environment));
  if (!report.pid.has_value()) return;
  append(report.findings,
         check_loaded_libraries(report.libraries, "process " + std::to_string(*report.pid)));
}

int run_doctor(const DoctorCommandLine& line) {
  DoctorReport report;
  const Environment own = read_own_environment();
  Environment environment = own;
  if (!line.pid.empty()) {
    const Result<std::uint64_t> pid = parse_whole_number(line.pid, 1, kMostPid);
    if (!pid.is_ok()) {
      print_error("doctor", "--pid: " + std::string(pid.status().message()));
      return kExitUsage;
    }
    const Status status = read_process(std::to_string(pid.value()), report, environment);
    if (!status.is_ok()) {
      print_error("doctor", "--pid: " + std::string(status.message()));
      return kExitFailure;
    }
  }
  examine(own, environment, report);
  const Status status =
      write_standard_output(line.json ? format_doctor_json(report) : format_doctor_text(report));
  if (!status.is_ok()) {
    print_error("doctor", status.message());
    return kExitFailure;
  }
  return report.hurts() ? kExitFailure : kExitSuccess;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  CLI::App* const command = app.add_subcommand(
      "doctor", "Say what this machine offers, what Quarry will use and why, and what is wrong");
  auto line = std::make_shared<DoctorCommandLine>();
  command
      ->add_option("--pid", line->pid,
                   "A running process: check the environment that it started with, and which "
                   "allocators it has loaded")
      ->check(refuse_empty());
  command->add_flag("--json", line->json, "One JSON object instead of text");
  command->footer(
      "Makes a CUDA context on each device (to learn how much memory is free) and nothing "
      "else.\n\n"
      "Examples:\n"
      "  quarry doctor\n"
      "  QUARRY_CONF=max_split_size_mb:256 quarry doctor --json\n"
      "  quarry doctor --pid 4711       # which allocators are in there?\n"
      "Exit code: 0 if nothing hurts, 1 if a finding does (no usable GPU is one, unless\n"
      "QUARRY_DRIVER=sim) or a process cannot be read, 2 for a wrong command line.");
  command->callback([line, &exit_code] { exit_code = run_doctor(*line); });
}

}  // namespace quarry::tools
