#include "base/version.h"

namespace mh {

const char* version() { return MH_VERSION; }

}  // namespace mh
