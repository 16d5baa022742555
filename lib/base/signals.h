// Stop signals: SIGINT, SIGTERM, SIGHUP, and SIGUSR1, which Slurm can send before the time limit of a job. A stop
// signal requests that a training run saves its state and stops; the handler stores the number of the signal, or, for a
// SIGINT after an earlier stop signal, ends the process at once.
#pragma once

namespace mh {

// Installs handlers for SIGINT, SIGTERM and SIGHUP that remove temporary files and then end the process as by default.
// catch_stop_signals() replaces these handlers.
void remove_files_on_signals();

// Installs a handler for SIGBUS from a mapped file (file.h) that another program truncated: the handler prints an error
// message with the name of the file, removes temporary files and exits with status 3. After any other SIGBUS the
// handler removes temporary files and ends the process as by default.
void report_truncated_files();

// Installs handlers that store stop signals; only the main thread may call this function.
void catch_stop_signals();
// Returns the last stop signal since catch_stop_signals(), or 0.
int stop_signal();

}  // namespace mh
