#include "base/tool.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/renamed_keys.h"
#include "base/signals.h"
#include "base/system_message.h"
#include "base/text.h"
#include "base/version.h"

namespace mh {

namespace {

// Appends the long option names of the app and of its parsed subcommands to `names`, as candidates for "did you mean".
void collect_options(const CLI::App& app, std::vector<std::string>& names) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const CLI::App* sub : app.get_subcommands()) collect_options(*sub, names);
}

// Returns the command without its options: `name`, or "mh-prune rank" if a subcommand was parsed.
std::string command_name(const CLI::App& app, const std::string& name) {
  const auto subcommands = app.get_subcommands();
  return subcommands.empty() ? name : name + " " + subcommands.back()->get_name();
}

// Returns the parts of the message of `error` before and after `verb`. Returns none if the type of the error in CLI11
// is not `type`, or if its message does not contain `verb`.
std::optional<std::pair<std::string, std::string>> split_message_at(const CLI::ParseError& error, const char* type,
                                                                    std::string_view verb) {
  const std::string message = error.what();
  const size_t begin = message.find(verb);
  if (error.get_name() != type || begin == message.npos) return std::nullopt;
  return std::pair{message.substr(0, begin), message.substr(begin + verb.size())};
}

// Returns the placeholder and the help text of a positional argument of the app or of its parsed subcommands, such as
// "DATA (shard)"; the name if there is no such argument.
std::string describe_positional(const CLI::App& app, const std::string& name) {
  if (const CLI::Option* option = app.get_option_no_throw(name))
    return str(option->get_type_name(), " (", option->get_description(), ")");
  for (const CLI::App* sub : app.get_subcommands())
    if (sub->get_option_no_throw(name) != nullptr) return describe_positional(*sub, name);
  return name;
}

// Returns the message for a command without a known subcommand.
std::string missing_subcommand_message(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
  const std::vector<std::string> words = app.remaining(true);
  const std::string found = words.empty() ? "none" : words.front();
  const std::string hint = did_you_mean(found, names);
  return str("expected a subcommand: ", join(names, ", "), "; found ", found, hint.empty() ? "" : "; ", hint);
}

// Returns the message for an error of CLI11. The message states what was expected and found if options or arguments
// exclude or require each other or are missing, and suggests the new name of a renamed option, or else the nearest
// option for an unknown option, before any other error, which may be due to the misspelt option. For other errors
// returns the message of CLI11.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  std::vector<std::string> known_options;
  collect_options(app, known_options);
  std::string near_name_message;  // message for the first option with a near name
  for (const std::string& word : app.remaining(true)) {
    const std::string option = word.substr(0, word.find('='));
    const std::string new_name = new_option_name(option);
    if (std::find(known_options.begin(), known_options.end(), new_name) != known_options.end())
      return str("expected a known option; found ", option, ", the name of an option in earlier versions; write ",
                 new_name);
    if (!near_name_message.empty()) continue;
    if (const std::string hint = did_you_mean(option, known_options); !hint.empty())
      near_name_message = str("expected a known option; found ", word, "; ", hint);
  }
  if (!near_name_message.empty()) return near_name_message;
  if (const auto names = split_message_at(error, "ExcludesError", " excludes ")) {
    const auto& [option, other] = *names;
    const CLI::Option* positional = other[0] == '-' ? nullptr : app.get_option_no_throw(other);
    return positional == nullptr ? str(option, ": expected no ", other, " together with ", option,
                                       "; found both; leave ", option, " or ", other, " out")
                                 : str(option, ": expected only arguments of ", option,
                                       "; found the additional argument ", join(positional->results(), " "));
  }
  if (const auto names = split_message_at(error, "RequiresError", " requires ")) {
    const auto& [option, other] = *names;
    return str(option, ": expected ", other, " with this option; found no ", other, "; add ", other, ", or leave ",
               option, " out");
  }
  if (const auto names = split_message_at(error, "RequiredError", " is required")) {
    const std::string& missing_name = names->first;
    if (missing_name == "A subcommand") return missing_subcommand_message(app);
    if (missing_name[0] == '-') return str("expected the option ", missing_name, "; found none");
    return str("expected the argument ", describe_positional(app, missing_name), "; found none");
  }
  const std::string message = error.what();
  // CLI11 lists the arguments after a colon.
  if (const size_t colon = message.find(": ");
      colon != std::string::npos && error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError))
    return "expected no further argument; found " + message.substr(colon + 2);
  return message;
}

// Returns the error for a failed write to standard output; errno has the cause.
Error standard_output_error() {
  return {Exit::failed, Problem{kStandardOutput, "a writable output", system_message(errno),
                                "redirect standard output to another file"}};
}

}  // namespace

Tool::Tool(ToolInfo info) : info_(std::move(info)), app_(std::make_unique<CLI::App>(info_.purpose, info_.name)) {
  app_->set_version_flag("--version", info_.name + " " + version(), "print the version and exit");
  app_->set_help_flag("-h,--help", "print this help and exit");
  app_->add_flag("-q,--quiet", is_quiet_, "print only warnings and errors on stderr");
  app_->add_flag("-v,--verbose", is_verbose_, "print more messages on stderr");
  app_->footer("Examples:\n" + info_.examples);
  app_->fallthrough();
  app_->get_formatter()->column_width(34);
}

Tool::~Tool() = default;

int Tool::run(int argc, char** argv, const std::function<void()>& body) {
  // Ignores SIGPIPE and SIGXFSZ, so that a write to a closed pipe or beyond the file size limit fails with an error
  // instead of ending the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  install_cleanup_handlers();
  install_sigbus_handler();
  set_log_name(info_.name);
  try {
    try {
      app_->parse(argc, argv);
    } catch (const CLI::Success& success) {  // --help, --version
      app_->exit(success);
      std::cout.flush();
      if (!std::cout && errno != EPIPE) throw standard_output_error();
      return static_cast<int>(Exit::done);
    } catch (const CLI::ParseError& error) {
      throw Error(Exit::usage,
                  usage_message(*app_, error) + "; " + command_name(*app_, info_.name) + " --help shows all options");
    }
    set_log_level(is_quiet_ ? LogLevel::quiet : is_verbose_ ? LogLevel::verbose : LogLevel::normal);
    body();
    if (std::fflush(stdout) != 0) throw standard_output_error();
    return status_;
  } catch (const Error& error) {
    log_error(error.what());
    return static_cast<int>(error.exit());
  } catch (const std::bad_alloc&) {
    log_error("out of memory; free memory, or use a machine with more memory");
    return static_cast<int>(Exit::device);
  } catch (const std::exception& error) {
    // In an exception of LibTorch, the first line is the message and the rest is a stack trace.
    std::string message = error.what();
    message.resize(std::min(message.size(), message.find('\n')));
    // "CUDA out of memory. Tried to allocate …", "DefaultCPUAllocator: can't allocate memory: …"
    const bool says_out_of_memory = message.find("out of memory") != std::string::npos;
    const bool is_out_of_memory = says_out_of_memory || message.find("allocate memory") != std::string::npos;
    log_error(is_out_of_memory && !says_out_of_memory ? "out of memory: " + message : message);
    return static_cast<int>(is_out_of_memory ? Exit::device : Exit::failed);
  }
}

void Tool::run_and_exit(int argc, char** argv, const std::function<void()>& body) {
  int status = run(argc, argv, body);
  std::fflush(nullptr);
  // A network file system may report a full disk only when the file is closed.
  if (status == 0 && ::close(STDOUT_FILENO) != 0 && errno != EINTR && errno != EBADF) {
    log_error(standard_output_error().what());
    status = static_cast<int>(Exit::failed);
  }
  std::_Exit(status);
}

}  // namespace mh
