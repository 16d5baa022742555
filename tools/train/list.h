// mh-train --list: tables of the names that configurations, options and files use.
#pragma once

#include <string>
#include <vector>

namespace mh::train_setup {

// Returns the valid values of --list.
const std::vector<std::string>& list_names();

// Prints the table called `name`, one of list_names().
void print_list(const std::string& name);

}  // namespace mh::train_setup
