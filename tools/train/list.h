// mh-train --list: tables of configuration choices and checkpoint contents.
#pragma once

#include <string>
#include <vector>

namespace mh::train_setup {

// Returns the valid values of --list.
const std::vector<std::string>& lists();

// Prints the table of this name: choices of configurations, or contents of checkpoints.
void list(const std::string& what);

}  // namespace mh::train_setup
