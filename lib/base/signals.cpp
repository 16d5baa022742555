#include "base/signals.h"

#include <csignal>
#include <cstdlib>
#include <initializer_list>

namespace mh {

namespace {

volatile std::sig_atomic_t received = 0;

void note(int signal) {
  if (received != 0 && signal == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  received = signal;
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaction(signal, &action, nullptr);
}

int stop_signal() { return received; }

}  // namespace mh
