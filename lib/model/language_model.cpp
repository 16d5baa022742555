// The functions that all language models share: losses, limits on the input length, and the choice of attention paths.
#include "model/language_model.h"

#include <map>
#include <utility>

#include "attention/layer.h"
#include "base/error.h"
#include "base/text.h"
#include "model/output.h"

namespace mh::model {

namespace {

// Returns the smallest limit on the input length, in tokens, and the configuration key that sets it; 0: unlimited.
std::pair<int64_t, std::string> max_length_and_key(LanguageModel& model) {
  std::pair<int64_t, std::string> minimum{model.max_positions(), "model.max_positions"};
  for (const attention::AttentionLayer* layer : model.attention_layers())
    if (auto bound = layer->max_length_and_key();
        bound.first > 0 && (minimum.first == 0 || bound.first < minimum.first))
      minimum = std::move(bound);
  return minimum;
}

}  // namespace

Input Input::to(at::Device device) const {
  // A non-blocking copy: the host does not wait for pending kernels, nor for the copy itself if x is in pinned memory.
  const auto move_to_device = [&](const at::Tensor& x) {
    return x.defined() ? x.to(device, x.scalar_type(), !device.is_cpu()) : x;
  };
  Input device_input{move_to_device(tokens), move_to_device(source), lengths};
  device_input.segments = move_to_device(segments);
  return device_input;
}

at::Tensor LanguageModel::logits(const at::Tensor& hidden) const { return output_layer().logits(hidden); }

at::Tensor LanguageModel::next_sentence_logits(const at::Tensor& hidden) const {
  return output_layer().next_sentence_logits(hidden);
}

nn::SlicedLoss LanguageModel::loss(const at::Tensor& hidden, const Targets& targets, double label_smoothing,
                                   const nn::ForwardContext& forward_context) const {
  return output_layer().loss(hidden, targets, label_smoothing, forward_context);
}

at::Tensor LanguageModel::target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const {
  return output_layer().target_log_probabilities(hidden, targets);
}

int64_t LanguageModel::max_length() { return max_length_and_key(*this).first; }

void LanguageModel::require_length(const std::string& length_option, int64_t length, int64_t default_length) {
  if (const auto [limit, key] = max_length_and_key(*this); limit > 0 && length > limit)
    refuse_usage(length_option, str("at most ", key, ", ", count_of(limit, "token")),
                 found_value(length, default_length),
                 str(length_option.find(' ') == length_option.npos ? "lower " + length_option : "use shorter texts",
                     ", or use a model with a higher ", key));
}

void LanguageModel::require_incremental() {
  for (const attention::AttentionLayer* layer : attention_layers())
    if (layer->layer_spec().kind != attention::AttentionKind::encoder_self &&
        !layer->capabilities().supports_incremental_decoding)
      refuse_usage(layer->layer_spec().name, "stages that support incremental decoding", "a stage without this support",
                   str("only score whole ", has_encoder() ? "sentences" : "texts", " with this model"));
}

void LanguageModel::set_path(attention::Path path, const std::string& line_prefix) {
  const auto fallback_log = std::make_shared<attention::FallbackLog>(line_prefix);
  for (attention::AttentionLayer* layer : attention_layers()) layer->set_path(path, fallback_log);
}

void LanguageModel::require_fused(bool training) {
  for (const attention::AttentionLayer* layer : attention_layers()) layer->require_fused(training);
}

std::vector<std::string> LanguageModel::describe_paths(bool training) {
  std::map<std::pair<std::string, std::string>, int64_t> path_counts;
  for (const attention::AttentionLayer* layer : attention_layers())
    ++path_counts[{attention::name_of(layer->layer_spec().kind), layer->describe_path(training)}];
  std::vector<std::string> lines;
  lines.reserve(path_counts.size());
  for (const auto& [kind_and_path, count] : path_counts)
    lines.push_back(str(kind_and_path.first, ", ", count_of(count, "layer"), ": ", kind_and_path.second));
  return lines;
}

}  // namespace mh::model
