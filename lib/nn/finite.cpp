// Warns about parameters with NaN or infinite elements.
#include "nn/finite.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace mh::nn {

void warn_not_finite(const std::string& name, const ParameterList& parameters) {
  std::vector<std::string> non_finite;
  for (const Parameter& p : parameters.all())
    if (!p.master().isfinite().all().item<bool>()) non_finite.push_back(p.name());
  if (!non_finite.empty())
    log_warning(str(name, ": ", non_finite.size(), " of ", parameters.all().size(),
                    " parameter tensors contain NaN or infinite values, the first of them ", non_finite[0]));
}

}  // namespace mh::nn
