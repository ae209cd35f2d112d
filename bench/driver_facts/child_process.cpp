// SPDX-License-Identifier: Apache-2.0
#include "bench/driver_facts/child_process.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

extern char** environ;

namespace quarry::facts {

std::string ChildResult::describe() const {
  if (has_timed_out) return "timed out";
  if (signal != 0) return "ended by signal " + std::to_string(signal);
  return "exit status " + std::to_string(status);
}

ChildResult run_child(const std::vector<std::string>& arguments, int limit_s) {
  std::vector<std::string> words = {"/proc/self/exe"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  ChildResult result;
  pid_t child = 0;
  if (posix_spawn(&child, argv[0], nullptr, nullptr, argv.data(), environ) != 0) return result;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(limit_s);
  int state = 0;
  while (waitpid(child, &state, WNOHANG) == 0) {
    if (!result.has_timed_out && std::chrono::steady_clock::now() > end) {
      result.has_timed_out = true;
      kill(child, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (WIFSIGNALED(state)) result.signal = WTERMSIG(state);
  if (WIFEXITED(state)) result.status = WEXITSTATUS(state);
  return result;
}

AnswerFile::AnswerFile() {
  std::string pattern = (std::filesystem::temp_directory_path() / "driver_facts_XXXXXX").string();
  const int file = mkstemp(pattern.data());
  if (file >= 0) close(file);
  path_ = pattern;
}

AnswerFile::~AnswerFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

std::string AnswerFile::read() const {
  std::ostringstream text;
  text << std::ifstream(path_).rdbuf();
  return text.str();
}

}  // namespace quarry::facts
