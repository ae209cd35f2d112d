// SPDX-License-Identifier: Apache-2.0
// The subcommands of the command line tool. Each adds its options to the application; when the
// user has chosen it, parsing the command line runs it and sets the process's exit code.
#pragma once

#include <string_view>

namespace CLI {
class App;
}

namespace quarry::tools {

enum ExitCode : int {
  kExitSuccess = 0,
  kExitFailure = 1,  // the work failed: a trace is broken, a file cannot be written
  kExitUsage = 2,    // the command line is wrong; nothing was done
};

void add_convert_command(CLI::App& app, int& exit_code);
void add_doctor_command(CLI::App& app, int& exit_code);
void add_pattern_command(CLI::App& app, int& exit_code);
void add_replay_command(CLI::App& app, int& exit_code);

// "quarry replay: " and the text, on standard error.
void print_error(std::string_view command, std::string_view text);

}  // namespace quarry::tools
