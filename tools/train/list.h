// mh-train --list: tables of the choices in a configuration and of the contents of a checkpoint.
#pragma once

#include <string>
#include <vector>

namespace mh::train_setup {

// Returns the valid values of --list.
const std::vector<std::string>& lists();

// Prints the table called `what`, one of lists().
void list(const std::string& what);

}  // namespace mh::train_setup
