// SIGINT, SIGTERM, SIGHUP and SIGUSR1 (Slurm's warning) ask a long run to save and stop; the handler only stores the
// signal. A second SIGINT ends the process at once.
#pragma once

namespace mh {

// Until catch_stop_signals(), lets SIGINT, SIGTERM and SIGHUP end the process as by default, but removes temporary
// files.
void tidy_up_on_signals();

// Starts storing the signals; called by the main thread.
void catch_stop_signals();
// Returns the signal that asked for a stop since then, or 0.
int stop_signal();

}  // namespace mh
