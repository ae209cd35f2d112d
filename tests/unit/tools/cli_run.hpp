// SPDX-License-Identifier: Apache-2.0
// Runs the command line tool in a folder of its own and collects what it printed.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace quarry::test {

struct CliResult {
  int exit_code = -1;  // -1: ended by a signal
  std::string out;
  std::string err;
};

class CliTest : public testing::Test {
 protected:
  CliTest() {
    std::string pattern = testing::TempDir() + "quarry_cli_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~CliTest() override { std::filesystem::remove_all(folder_); }

  // `arguments` is shell text; the tool's working folder is the test's own.
  // `output` says where standard output goes.
  CliResult run(const std::string& arguments, const std::string& output = ">stdout.txt") const {
    return run_command("'" QUARRY_TOOL "' " + arguments, output);
  }
  // Any shell text, likewise.
  CliResult run_command(const std::string& text, const std::string& output = ">stdout.txt") const {
    const std::string command =
        "cd '" + folder_ + "' && rm -f stdout.txt && " + text + " " + output + " 2>stderr.txt";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("stdout.txt"), read("stderr.txt")};
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  void write_gzip(const std::string& name, const std::string& text) const {
    const gzFile file = gzopen((folder_ + "/" + name).c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  bool exists(const std::string& name) const {
    return std::filesystem::exists(folder_ + "/" + name);
  }

  // One JSON value a line.
  static std::vector<nlohmann::json> parse_lines(const std::string& text) {
    std::vector<nlohmann::json> values;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      values.push_back(nlohmann::json::parse(line));
    }
    return values;
  }

  // Two blocks of 5 MiB that live together: one segment of 20 MiB.
  static constexpr const char* kGoodTrace =
      "t_us,op,id,bytes,stream\n0,a,1,5242880,0\n1,a,2,5242880,0\n2,f,1,,0\n3,f,2,,0\n";

 private:
  std::string folder_;
};

}  // namespace quarry::test
