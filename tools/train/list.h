// mh-train --list.
#pragma once

#include <string>

namespace mh::train_setup {

// Prints what can be chosen: "stages", "keys" or "backbones".
void list(const std::string& what);

}  // namespace mh::train_setup
