// Warns about parameters with NaN or infinite elements.
#include "nn/finite.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace mh::nn {

bool is_finite(const at::Tensor& x) {
  constexpr int64_t kSliceElements = 1 << 18;  // a slice and its temporary results stay in the second-level cache
  if (!x.is_cpu()) return x.isfinite().all().item<bool>();
  const at::Tensor elements = x.detach().reshape(-1);
  for (int64_t first = 0; first < elements.numel(); first += kSliceElements)
    if (!elements.narrow(0, first, std::min(kSliceElements, elements.numel() - first)).isfinite().all().item<bool>())
      return false;
  return true;
}

void FiniteCheck::add(const std::string& name, const at::Tensor& x) {
  ++num_tensors_;
  if (!is_finite(x)) non_finite_names_.push_back(name);
}

void FiniteCheck::warn(const std::string& file_name) const {
  if (!non_finite_names_.empty())
    log_warning(str(file_name, ": found ", non_finite_names_.size(), " of ", count_of(num_tensors_, "parameter tensor"),
                    " with NaN or infinite values, the first of them ", non_finite_names_[0]));
}

void warn_if_not_finite(const std::string& file_name, const ParameterList& parameters) {
  FiniteCheck check;
  for (const Parameter& p : parameters.all())
    // The elements of a divided master differ between processes; its bf16 copy has NaN and infinite values where the
    // master has them.
    check.add(p.name(), p.has_whole_master() ? p.master() : p.value());
  check.warn(file_name);
}

}  // namespace mh::nn
