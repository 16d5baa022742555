// The lines of log.jsonl that a resumed run keeps.
#pragma once

#include <cstdint>
#include <string>

namespace mh::io {

// Returns the lines of the log `text` that a run keeps when it resumes from the checkpoint after update number
// `update`. Drops the lines of later updates, which the run writes again, and lines that are not JSON objects, such as
// a truncated last line. `is_update_complete`: whether the run had finished the validation and the log of `update` when
// it saved the checkpoint (TrainState::is_complete); if false, also drops the lines about the loss, the validation and
// the return to the best weights after `update`, which the resumed run writes again. Throws Error(input), with the file
// `name`, for an object without the number of an update, and for a line of more than 1 MiB.
std::string rewind_log(const std::string& text, int64_t update, bool is_update_complete, const std::string& name);

}  // namespace mh::io
