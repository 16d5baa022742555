#include "base/signals.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <initializer_list>
#include <vector>

#include "base/file.h"

namespace mh {

namespace {

volatile std::sig_atomic_t received_signal = 0;

void store_signal(int signal) {
  if (received_signal != 0 && signal == SIGINT) {
    unlink_unfinished_files();
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  received_signal = signal;
}

void remove_files_and_raise(int signal) {
  unlink_unfinished_files();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Provides a separate stack for the signal handlers of this thread, to which the system delivers the signals of the
// process first. The kernels of oneDNN store data below the red zone of the stack pointer, where the frame of a signal
// handler on the same stack would overwrite them.
void use_alternate_stack() {
  static std::vector<char> memory(std::max<size_t>(1 << 16, static_cast<size_t>(sysconf(_SC_SIGSTKSZ))));
  stack_t stack{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  sigaltstack(&stack, nullptr);
}

void install_handler(std::initializer_list<int> signals, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (int signal : signals) sigaction(signal, &action, nullptr);
}

}  // namespace

void remove_files_on_signals() { install_handler({SIGINT, SIGTERM, SIGHUP}, remove_files_and_raise); }

void catch_stop_signals() {
  received_signal = 0;
  use_alternate_stack();
  install_handler({SIGINT, SIGTERM, SIGHUP, SIGUSR1}, store_signal);
}

int stop_signal() { return received_signal; }

}  // namespace mh
