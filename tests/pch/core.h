// Headers precompiled for core-tests. Catch2 is not among them, since some files define macros (CATCH_CONFIG_…) before
// they include it.
#include <rapidcheck.h>

#include "base/json_types.h"
