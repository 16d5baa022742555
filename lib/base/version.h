#pragma once

namespace mh {

// Returns the version of the project, such as "0.1.0".
const char* version();

}  // namespace mh
