// Detects parameters with NaN or infinite elements.
#pragma once

#include <string>

#include "nn/parameter.h"

namespace mh::nn {

// Logs a warning if parameters loaded from the file `file_name` have NaN or infinite elements. The warning has the
// number of such parameters and the name of the first. The outputs of a model with such parameters may be NaN, and so
// may every mean that includes these outputs.
void warn_if_not_finite(const std::string& file_name, const ParameterList& parameters);

}  // namespace mh::nn
