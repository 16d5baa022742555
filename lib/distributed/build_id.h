// The build id of the running program.
#pragma once

#include <string>

namespace mh::distributed {

// Returns the build ids, in hexadecimal, that the linker wrote into the program and into the loaded libraries of this
// project; "" if the linker wrote none. Programs of different builds have different ids.
std::string build_id();

}  // namespace mh::distributed
