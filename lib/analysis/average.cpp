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
      refuse_input(checkpoint->name(), expected, found, "average checkpoints of one model");
    };
    const auto config_changes = config_difference_texts(config, model::config_of(*checkpoint).toml(), {""});
    if (!config_changes.empty())
      refuse("the configuration of " + first.name(), "differences (expected -> found): " + join(config_changes, "; "));
    const text::Tokenizers other_tokenizers = text::tokenizers_of(*checkpoint);
    auto require_equal = [&](const char* label, const text::Tokenizer& first_tokenizer,
                             const text::Tokenizer& other_tokenizer) {
      if (first_tokenizer.fingerprint() != other_tokenizer.fingerprint())
        refuse(str("the ", label, " of ", first.name(), ", fingerprint ", first_tokenizer.fingerprint()),
               other_tokenizer.fingerprint());
    };
    require_equal("vocabulary", *tokenizers.target, *other_tokenizers.target);
    require_equal("source vocabulary", tokenizers.source_or_target(), other_tokenizers.source_or_target());
  }
}

model::LoadedModel average_checkpoints(const std::vector<const io::Checkpoint*>& checkpoints) {
  const c10::NoGradGuard no_gradient;
  require_same_config(checkpoints);
  model::LoadedModel mean = model::load_model(*checkpoints.front(), at::kCPU);
  nn::ParameterList& parameters = mean.model->parameters();
  std::vector<at::Tensor> sums;
  for (const nn::Parameter& p : parameters.all()) sums.push_back(p.master().to(at::kDouble));
  for (size_t i = 1; i < checkpoints.size(); ++i) {
    model::load_parameters(*checkpoints[i], parameters);
    size_t sum_index = 0;
    for (const nn::Parameter& p : parameters.all()) sums[sum_index++].add_(p.master());
  }
  size_t sum_index = 0;
  for (nn::Parameter& p : parameters.all())
    p.master().copy_(sums[sum_index++] / static_cast<double>(checkpoints.size()));
  parameters.refresh_bf16_copies();
  return mean;
}

}  // namespace mh::analysis
