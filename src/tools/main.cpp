// SPDX-License-Identifier: Apache-2.0
// The command line tool `quarry`: its options, and the choice of a subcommand. What a subcommand
// does is in its own file.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "tools/commands.hpp"

namespace quarry::tools {

void print_error(const char* command, const char* text) {
  std::fprintf(stderr, "quarry %s: %s\n", command, text);
}

}  // namespace quarry::tools

int main(int argc, char** argv) {
  using namespace quarry::tools;
  CLI::App app(
      "Quarry, a caching allocator for GPU memory: tools that work on recorded allocation traces. "
      "No GPU is needed.",
      "quarry");
  app.set_version_flag("--version", "quarry " QUARRY_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  quarry replay examples/traces/*.csv.gz      # how much memory would these need?\n"
      "  quarry replay --help\n"
      "Exit code: 0 if everything ran, 1 if something failed, 2 for a wrong command line.");
  int exit_code = kExitSuccess;
  add_replay_command(app, exit_code);
  add_convert_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitSuccess : kExitUsage;
  }
  return exit_code;
}
