#include "base/signals.h"

#include <csignal>
#include <cstdlib>
#include <initializer_list>

#include "base/file.h"

namespace mh {

namespace {

volatile std::sig_atomic_t received = 0;

void note(int signal) {
  if (received != 0 && signal == SIGINT) {
    unlink_unfinished_files();
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  received = signal;
}

void tidy_up(int signal) {
  unlink_unfinished_files();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void handle(std::initializer_list<int> signals, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int signal : signals) sigaction(signal, &action, nullptr);
}

}  // namespace

void tidy_up_on_signals() { handle({SIGINT, SIGTERM, SIGHUP}, tidy_up); }

void catch_stop_signals() { handle({SIGINT, SIGTERM, SIGHUP, SIGUSR1}, note); }

int stop_signal() { return received; }

}  // namespace mh
