// Precompiled for the sources of libmultihead: ATen alone takes 7 s to parse.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/json_types.h"
