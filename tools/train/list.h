// mh-train --list.
#pragma once

#include <string>
#include <vector>

namespace mh::train_setup {

// The values of --list.
const std::vector<std::string>& lists();

// Prints the table of that name: what a configuration can choose, or what checkpoints hold.
void list(const std::string& what);

}  // namespace mh::train_setup
