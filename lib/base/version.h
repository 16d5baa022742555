#pragma once

namespace mh {

// The project's version, "0.1.0".
const char* version();

}  // namespace mh
