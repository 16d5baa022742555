// mh-train --list: tables of the choices in a configuration and of the contents of a checkpoint.
#pragma once

#include <string>
#include <vector>

namespace mh::train_setup {

// Returns the valid values of --list.
const std::vector<std::string>& lists();

// Prints the table called `table`, one of lists().
void list(const std::string& table);

}  // namespace mh::train_setup
