// Compares the configurations of checkpoints and averages their parameters.
#include "analysis/average.h"

#include <c10/core/GradMode.h>

#include "base/config.h"
#include "base/error.h"
#include "base/text.h"

namespace mh::analysis {

void require_same_config(const std::vector<const io::Checkpoint*>& checkpoints) {
  const io::Checkpoint& first = *checkpoints.front();
  const std::string config = model::config_of(first).toml();
  const text::Tokenizers tokenizers = text::tokenizers_of(first);
  for (const io::Checkpoint* checkpoint : checkpoints) {
    auto refuse = [&](const std::string& expected, const std::string& found) {
      throw Error(Exit::input, Problem{checkpoint->name(), expected, found, "average checkpoints of one model"});
    };
    const auto different = changes(config, model::config_of(*checkpoint).toml(), {""});
    if (!different.empty()) refuse("the configuration of " + first.name(), join(different, "; "));
    const text::Tokenizers others = text::tokenizers_of(*checkpoint);
    auto same = [&](const char* side, const text::Tokenizer& one, const text::Tokenizer& other) {
      if (one.fingerprint() != other.fingerprint())
        refuse(str("the ", side, " of ", first.name(), ", fingerprint ", one.fingerprint()), other.fingerprint());
    };
    same("vocabulary", *tokenizers.target, *others.target);
    same("source vocabulary", tokenizers.of_source(), others.of_source());
  }
}

model::LoadedModel average(const std::vector<const io::Checkpoint*>& checkpoints) {
  const c10::NoGradGuard no_gradient;
  require_same_config(checkpoints);
  model::LoadedModel mean = model::load_model(*checkpoints.front(), at::kCPU);
  nn::ParameterList& parameters = mean.model->parameters();
  std::vector<at::Tensor> sums;
  for (const nn::Parameter& p : parameters.all()) sums.push_back(p.master().to(at::kDouble));
  for (size_t i = 1; i < checkpoints.size(); ++i) {
    model::load_parameters(*checkpoints[i], parameters);
    size_t at = 0;
    for (const nn::Parameter& p : parameters.all()) sums[at++].add_(p.master());
  }
  size_t at = 0;
  for (nn::Parameter& p : parameters.all()) p.master().copy_(sums[at++] / static_cast<double>(checkpoints.size()));
  parameters.refresh_copies();
  return mean;
}

}  // namespace mh::analysis
