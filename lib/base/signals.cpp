#include "base/signals.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace mh {

namespace {

volatile std::sig_atomic_t received_signal = 0;

void store_signal(int signal) {
  if (received_signal != 0 && signal == SIGINT) {
    remove_unfinished_outputs();
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  received_signal = signal;
}

void remove_files_and_raise(int signal) {
  remove_unfinished_outputs();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Gives signal handlers on the main thread a stack of their own: the kernels of oneDNN store data below the red zone of
// the stack pointer, where the frame of a handler on the same stack would overwrite the data. Linux delivers a signal
// of the process to the main thread unless the main thread blocks the signal.
void use_alternate_stack() {
  static std::vector<char> memory(std::max<size_t>(1 << 16, static_cast<size_t>(sysconf(_SC_SIGSTKSZ))));
  stack_t stack{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  sigaltstack(&stack, nullptr);
}

void install_handler(std::span<const int> signals, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (int signal : signals) sigaction(signal, &action, nullptr);
}

// Writes text to stderr with a system call only, as a signal handler must.
void print(const char* text) {
  [[maybe_unused]] const ssize_t num_bytes = ::write(STDERR_FILENO, text, std::strlen(text));
}

void report_truncated_file(int signal, siginfo_t* info, void*) {
  const char* name = mapped_file_name_at(info->si_addr);
  if (name == nullptr) return remove_files_and_raise(signal);
  remove_unfinished_outputs();
  print(log_name().c_str());
  print(": error: ");
  print(name);
  print(
      ": expected a file that keeps its size while the tool reads it; found a file that another program has "
      "shortened; restore the file\n");
  _exit(static_cast<int>(Exit::input));
}

}  // namespace

void install_sigbus_handler() {
  struct sigaction action {};
  action.sa_sigaction = report_truncated_file;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

void install_cleanup_handlers() { install_handler(std::span(kStopSignals).first(3), remove_files_and_raise); }

void install_stop_handlers() {
  received_signal = 0;
  use_alternate_stack();
  install_handler(kStopSignals, store_signal);
}

int stop_signal() { return received_signal; }

}  // namespace mh
