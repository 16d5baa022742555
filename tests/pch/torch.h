// Headers precompiled for torch-tests.
// Must precede Catch2, which replaces its macro CHECK; a header of a test could include it after Catch2.
#include <c10/util/Logging.h>

#include "core.h"
#include "fixtures/aten.h"
