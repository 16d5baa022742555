// Checks that parameters are finite.
#include "nn/finite.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace mh::nn {

void warn_not_finite(const std::string& name, const ParameterList& parameters) {
  std::vector<std::string> bad;
  for (const Parameter& p : parameters.all())
    if (!p.master().isfinite().all().item<bool>()) bad.push_back(p.name());
  if (!bad.empty())
    log_warning(str(name, ": ", bad.size(), " of ", parameters.all().size(),
                    " parameters contain NaN or infinite values, such as ", bad[0]));
}

}  // namespace mh::nn
