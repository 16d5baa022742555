// Detects parameters with NaN or infinite elements.
#pragma once

#include <string>

#include "nn/parameter.h"

namespace mh::nn {

// Logs a warning if parameters loaded from the file `name` have NaN or infinite elements: the number of such
// parameters, and the name of the first. The outputs of such a model are NaN, and so is any mean over outputs that
// includes them.
void warn_not_finite(const std::string& name, const ParameterList& parameters);

}  // namespace mh::nn
