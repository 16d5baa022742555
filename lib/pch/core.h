// Precompiled header of the sources of libmultihead-core.
#include <filesystem>
#include <functional>
#include <map>
#include <sstream>

#include "base/json_types.h"
