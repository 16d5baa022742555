// Precompiled header of the tools: these headers dominate the time to compile a tool.
#include <CLI/CLI.hpp>

#include "base/json_types.h"
#include "nn/aten.h"
