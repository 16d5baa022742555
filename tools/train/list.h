// mh-train --list: tables of the names that configurations, options and files use.
#pragma once

#include <string>
#include <vector>

namespace mh::train_setup {

// Returns the valid values of --list.
const std::vector<std::string>& lists();

// Prints the table called `name`, one of lists().
void list(const std::string& name);

}  // namespace mh::train_setup
