// Precompiled for the sources of libmultihead: ATen alone takes 7 s to parse.
#include <ATen/ATen.h>

#include "base/json_types.h"
