// The common part of the main functions of all tools: --help, --version, --quiet, --verbose, error messages and exit
// statuses.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace mh {

struct ToolInfo {
  std::string name;      // such as "mh-prep"
  std::string purpose;   // one line, shown at the start of --help
  std::string examples;  // one shell command line per line, shown at the end of --help
};

// A CLI11 app with the shared options (--help, --version, -q/--quiet, -v/--verbose) and with the examples as its
// footer. Its subcommands inherit the shared options. The error for an unknown option suggests the new name of a
// renamed option, or else the nearest option.
class Tool {
 public:
  explicit Tool(ToolInfo info);
  ~Tool();
  CLI::App& app() { return *app_; }
  // Parses the command line, calls `body`, and returns the exit status: the value of set_status() if no exception is
  // thrown, the status of an Error, 4 for std::bad_alloc and for an exception of LibTorch that reports exhausted
  // memory, 1 for all other exceptions. --help and --version print on stdout and return 0.
  int run(int argc, char** argv, const std::function<void()>& body);
  // Calls run() and ends the process with the status that it returns, or with 1 if closing standard output fails.
  // Static objects are not destroyed, since the destructors of LibTorch take 0.1 s of CPU time, a third of a short
  // command.
  [[noreturn]] void run_and_exit(int argc, char** argv, const std::function<void()>& body);
  // Sets the exit status for the case that `body` throws nothing; 0 by default, 128 + n for a stop by signal n.
  void set_status(int status) { status_ = status; }

 private:
  ToolInfo info_;
  std::unique_ptr<CLI::App> app_;
  bool is_quiet_ = false;
  bool is_verbose_ = false;
  int status_ = 0;
};

}  // namespace mh
