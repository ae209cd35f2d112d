// SPDX-License-Identifier: Apache-2.0
// The command line tool `quarry`: its options, and the choice of a subcommand. What a subcommand
// does is in its own file.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "api/config_parser.hpp"
#include "tools/commands.hpp"
#include "tools/standard_output.hpp"
#include "trace/csv_row.hpp"

namespace quarry::tools {
namespace {

// How many letters to change, add or leave out to get from one word to the other.
std::size_t calculate_distance(const std::string& from, const std::string& to) {
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t i = 0; i < row.size(); ++i)
    row[i] = i;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t changed = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[to.size()];
}

bool is_command(const CLI::App& app, const std::string& word) {
  return !app.get_subcommands(
                 [&word](const CLI::App* command) { return command->get_name() == word; })
              .empty();
}

// `kind`: what the words of `app` are, "command" or "pattern".
std::string explain_unknown_command(const CLI::App& app, const std::string& kind,
                                    const std::string& word) {
  constexpr std::size_t kLikeness = 2;
  std::string known;
  std::string likely;
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string& name = command->get_name();
    known += name + ", ";
    const bool is_like =
        name.starts_with(word.substr(0, 3)) || calculate_distance(word, name) <= kLikeness;
    if (is_like && likely.empty()) likely = name;
  }
  if (kind == "command") known += "help, ";
  known.resize(known.size() - 2);
  return "no " + kind + " " + quote_input(word) +
         (likely.empty() ? "" : "; did you mean " + likely + "?") + " (" + kind + "s: " + known +
         ")";
}

// Says so, and returns false, where a word stands in the place of a command, or of a pattern, and
// is none. CLI11 would call it one argument too many.
bool check_command_words(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* level = &app;
  for (const std::string& word : arguments) {
    const bool is_leaf = level->get_subcommands([](const CLI::App*) { return true; }).empty();
    if (is_leaf || word.starts_with('-')) return true;
    if (!is_command(*level, word)) {
      const bool is_top = level == &app;
      std::fprintf(
          stderr, "quarry%s: %s\n", is_top ? "" : (" " + level->get_name()).c_str(),
          explain_unknown_command(*level, is_top ? "command" : level->get_name(), word).c_str());
      return false;
    }
    level = level->get_subcommand(word);
  }
  return true;
}

// `quarry help`, `quarry help replay`, `quarry help pattern NAME` mean the option --help.
void translate_help(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] != "help") return;
  arguments.erase(arguments.begin());
  arguments.resize(std::min<std::size_t>(arguments.size(), 2));
  arguments.emplace_back("--help");
}

std::string explain_unexpected(const std::string& argument) {
  return (argument.starts_with('-') ? "no option " : "one argument too many: ") +
         quote_input(argument);
}

// Prints what is wrong with the command line.
int report_misuse(const CLI::App& app, const CLI::ParseError& error) {
  std::string command = app.get_name();
  for (const CLI::App* level = &app; !level->get_subcommands().empty();) {
    level = level->get_subcommands().front();
    command += " " + level->get_name();
  }
  // CLI11 misses what is required before it names what it does not know.
  const std::vector<std::string> unexpected = app.remaining(true);
  const std::string cause =
      unexpected.empty() ? error.what() : explain_unexpected(unexpected.front());
  std::fprintf(stderr, "%s: %s\nRun %s --help for more information.\n", command.c_str(),
               cause.c_str(), command.c_str());
  return kExitUsage;
}

// Prints help or the version.
int print_request(const CLI::App& app, const CLI::ParseError& request) {
  std::ostringstream out;
  app.exit(request, out, out);
  const Status status = write_standard_output(out.str());
  if (status.is_ok()) return kExitSuccess;
  std::fprintf(stderr, "quarry: %s\n", std::string(status.message()).c_str());
  return kExitFailure;
}

int run(const std::vector<std::string>& command_line) {
  CLI::App app(
      "Quarry, a caching allocator for GPU memory: tools that work on allocation traces, "
      "and a look at the machine. Only replay --driver cuda needs a GPU.",
      "quarry");
  app.set_version_flag("--version", "quarry " QUARRY_VERSION);
  // CLI11 prints the text of this exception, whatever it is, and ends well.
  app.add_flag_callback(
      "--help-conf", [] { throw CLI::CallForVersion(format_config_help(), 0); },
      "Print the options of QUARRY_CONF and --conf, with what is allowed, and exit");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  quarry replay examples/traces/*.csv.gz      # how much memory would these need?\n"
      "  quarry doctor                               # what is here, and what is wrong?\n"
      "  quarry help replay\n"
      "Exit code: 0 if everything ran, 1 if something failed, 2 for a wrong command line.");
  int exit_code = kExitSuccess;
  add_replay_command(app, exit_code);
  add_convert_command(app, exit_code);
  add_pattern_command(app, exit_code);
  add_doctor_command(app, exit_code);
  std::vector<std::string> arguments = command_line;
  translate_help(arguments);
  if (!check_command_words(app, arguments)) return kExitUsage;
  try {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes a vector
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? print_request(app, error) : report_misuse(app, error);
  }
  return exit_code;
}

}  // namespace

void print_error(std::string_view command, std::string_view text) {
  const std::string line = "quarry " + std::string(command) + ": " + std::string(text) + "\n";
  std::fputs(line.c_str(), stderr);
}

}  // namespace quarry::tools

int main(int argc, char** argv) {
  quarry::tools::reserve_standard_streams();
  return quarry::tools::run(std::vector<std::string>(argv + 1, argv + argc));
}
