// Stop signals: SIGINT, SIGTERM, SIGHUP, and SIGUSR1, which Slurm can send before the time limit of a job. A stop
// signal requests that a training run saves its state and stops; the handler stores the number of the signal, or, for a
// SIGINT after an earlier stop signal, ends the process at once.
#pragma once

#include <array>
#include <csignal>

namespace mh {

// Installs handlers for SIGINT, SIGTERM and SIGHUP that remove temporary files and then end the process as by default.
// install_stop_handlers() replaces these handlers.
void install_cleanup_handlers();

// Installs a handler for SIGBUS from a mapped file (file.h) that another program truncated: the handler prints an error
// message with the name of the file, removes temporary files and exits with status 3. After any other SIGBUS the
// handler removes temporary files and ends the process as by default.
void install_sigbus_handler();

// Installs handlers that store stop signals; only the main thread may call this function.
void install_stop_handlers();
// The signals that install_stop_handlers() stores; install_cleanup_handlers() handles all but SIGUSR1.
constexpr std::array<int, 4> kStopSignals{SIGINT, SIGTERM, SIGHUP, SIGUSR1};
// Returns the last stop signal since install_stop_handlers(), or 0.
int stop_signal();

}  // namespace mh
