// Headers precompiled for torch-tests.
#include "core.h"
#include "fixtures/aten.h"
