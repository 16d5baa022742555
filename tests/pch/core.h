// Precompiled for core-tests. Not Catch2, which main.cpp asks for more of.
#include <rapidcheck.h>

#include "base/json_types.h"
