// Precompiled for torch-tests.
#include <ATen/ATen.h>

#include "core.h"
