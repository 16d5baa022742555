// Builds the model with folded combiners and computes its output projections.
#include "analysis/fold.h"

#include <ATen/ops/einsum.h>
#include <c10/core/GradMode.h>

#include <map>
#include <set>

#include "attention/layer.h"
#include "base/error.h"
#include "base/text.h"

namespace mh::analysis {

at::Tensor fold_matrix(const at::Tensor& matrix, const at::Tensor& weight) {
  const at::Tensor blocks = weight.to(at::kDouble).unflatten(1, {matrix.size(1), weight.size(1) / matrix.size(1)});
  return at::einsum("ji,dic->djc", {matrix.to(at::kDouble), blocks}).flatten(1).to(weight.scalar_type());
}

FoldedModel fold_combiners(const model::ModelConfig& config, model::LanguageModel& model, const std::string& where) {
  const c10::NoGradGuard no_gradient;
  FoldedModel folded_model{config, nullptr, {}};
  std::map<std::string, at::Tensor> matrices;  // combiner matrices, by the name of the output projection's weight
  std::set<std::string> combiners;
  for (const attention::AttentionLayer* layer : model.attention_layers()) {
    const attention::LayerSpec& s = layer->layer_spec();
    const std::vector<std::string>& names = config.attention.layer(s.kind, s.layer).combiner;
    combiners.insert(names.begin(), names.end());
    const at::Tensor matrix = layer->as_linear_map();
    if (!matrix.defined()) continue;
    matrices.emplace(s.name + ".output.weight", matrix);
    folded_model.layer_names.push_back(s.name);
    folded_model.config.attention.set_layer(s.kind, s.layer, layer->options_after_folding());
  }
  if (matrices.empty())
    refuse_usage(
        where, "a last combiner that is one matrix for all inputs, such as alphas",
        (combiners.size() == 1 ? "the combiner " : "the combiners ") + join({combiners.begin(), combiners.end()}, ", "),
        "use a checkpoint with such a combiner; a model with another combiner has nothing to fold");
  folded_model.config.attention.hoist_common_options();
  folded_model.model =
      model::build_language_model(folded_model.config, model.vocabulary_sizes(), model.parameters().device());
  for (nn::Parameter& p : folded_model.model->parameters().all()) {
    const at::Tensor& original = model.parameters().find(p.name())->master();
    const auto matrix = matrices.find(p.name());
    p.master().copy_(matrix == matrices.end() ? original : fold_matrix(matrix->second, original));
  }
  folded_model.model->parameters().refresh_bf16_copies();
  return folded_model;
}

}  // namespace mh::analysis
