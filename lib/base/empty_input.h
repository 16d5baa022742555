// Error about an input without bytes.
#pragma once

#include <string>

#include "base/error.h"
#include "base/file.h"

namespace mh {

// Returns the Error(input) about an input without bytes. `name`: input_name() of the input; `advice`: what the user can
// do about an empty file.
inline Error empty_input_error(const std::string& name, const std::string& expected, const std::string& advice) {
  if (name == input_name("-"))
    return {Exit::input, Problem{name, expected, "no input", "check the command that writes to standard input"}};
  return {Exit::input, Problem{name, expected, "an empty file", advice}};
}

}  // namespace mh
