// The build id of the running program.
#pragma once

#include <string>

namespace mh::distributed {

// Returns the build ids, in hexadecimal, that the linker wrote into the program and into the libraries of this project
// that the program has loaded; differs between programs of different builds. "" if the linker wrote none.
std::string build_id();

}  // namespace mh::distributed
