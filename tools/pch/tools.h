// Precompiled for the tools: these take most of the time to compile one.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>

#include "base/json_types.h"
