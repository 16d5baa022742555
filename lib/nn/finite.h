// Finds parameters that hold NaN or infinite numbers.
#pragma once

#include <string>

#include "nn/parameter.h"

namespace mh::nn {

// Logs a warning with the number of parameters of the file `name` that hold NaN or infinite numbers, and the name of
// the first; logs nothing if there are none. The outputs of such a model are NaN, and so is any mean that includes
// them.
void warn_not_finite(const std::string& name, const ParameterList& parameters);

}  // namespace mh::nn
