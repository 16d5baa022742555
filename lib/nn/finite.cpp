// Warns about parameters with NaN or infinite elements.
#include "nn/finite.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace mh::nn {

void warn_if_not_finite(const std::string& file_name, const ParameterList& parameters) {
  std::vector<std::string> non_finite_names;
  for (const Parameter& p : parameters.all())
    // The elements of a divided master differ between processes; its bf16 copy has NaN and infinite values where the
    // master has them.
    if (!(p.has_whole_master() ? p.master() : p.value()).isfinite().all().item<bool>())
      non_finite_names.push_back(p.name());
  if (!non_finite_names.empty())
    log_warning(str(file_name, ": found ", non_finite_names.size(), " of ",
                    count_of(parameters.all().size(), "parameter tensor"),
                    " with NaN or infinite values, the first of them ", non_finite_names[0]));
}

}  // namespace mh::nn
