// The frame of every tool's main: --help, --version, --quiet, -v, error messages and exit statuses.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace mh {

struct ToolInfo {
  std::string name;      // "mh-prep"
  std::string purpose;   // one line
  std::string examples;  // one pipeline a line, shown at the end of --help
};

// A CLI11 app with the shared options (--help, --version, -q/--quiet, -v/--verbose) and the examples as its footer.
// Subcommands made from it inherit the shared options. Unknown options name the nearest one.
class Tool {
 public:
  explicit Tool(ToolInfo info);
  ~Tool();
  CLI::App& app() { return *app_; }
  // Parses and runs `body`; returns the exit status: that of an Error (printers of text catch BrokenPipe themselves); 4
  // for bad_alloc; 1 for other exceptions. --help and --version print on stdout and return 0.
  int run(int argc, char** argv, const std::function<void()>& body);
  // Calls run() and ends the process with its status. Static objects are not destroyed: LibTorch's take 0.1 s of CPU
  // time, a third of a short call.
  [[noreturn]] void run_and_exit(int argc, char** argv, const std::function<void()>& body);
  // Sets the status if no error is thrown (128 + n after a signal).
  void set_status(int status) { status_ = status; }

 private:
  ToolInfo info_;
  std::unique_ptr<CLI::App> app_;
  bool quiet_ = false;
  bool verbose_ = false;
  int status_ = 0;
};

}  // namespace mh
