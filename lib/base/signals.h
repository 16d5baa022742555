// SIGINT, SIGTERM, SIGHUP and SIGUSR1 (Slurm's warning) ask a long run to save and stop; nothing is done in the handler
// but to note the signal. A second SIGINT ends the process at once.
#pragma once

namespace mh {

// Until catch_stop_signals(), SIGINT, SIGTERM and SIGHUP end the process as they do by default, but leave no temporary
// file behind.
void tidy_up_on_signals();

// From now on they are noted. To be called by the main thread.
void catch_stop_signals();
// The signal that has asked for a stop since then, or 0.
int stop_signal();

}  // namespace mh
