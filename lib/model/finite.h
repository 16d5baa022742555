// Whether the numbers of a model are numbers.
#pragma once

#include <string>

#include "model/parameter.h"

namespace mh::model {

// Logs a warning that names the first parameter with a NaN or an infinity, and how many parameters hold one, if any
// does: what such a model computes is no number, and neither is what is averaged with it. `name` is the file.
void warn_not_finite(const std::string& name, const ParameterList& parameters);

}  // namespace mh::model
