// Chooses pairs of heads, reads optimiser moments and rewrites a checkpoint.
#include "analysis/swap_checkpoint.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "attention/layer.h"
#include "base/error.h"
#include "base/text.h"
#include "model/load.h"
#include "nn/aten.h"

namespace mh::analysis {

PairSelection pair_selection_named(const std::string& name) {
  for (const PairSelectionName& candidate : kPairSelections)
    if (name == candidate.name) return candidate.selection;
  return PairSelection::random;
}

std::vector<HeadPair> choose_pairs(const PairOptions& options,
                                   const std::map<AttentionKind, std::vector<int64_t>>& head_counts,
                                   const std::map<AttentionKind, LayerScores>& scores) {
  std::vector<HeadPair> pairs;
  for (const auto& [kind, layers] : head_counts) {
    RandomSequence random(RandomStream(options.seed, str(name_of(kind), ".rotation")));
    const auto kind_pairs = uses_importance(options.selection)
                                ? pair_ranked(options.selection, kind, scores.at(kind), options.k, options.t_max)
                                : pair_random(kind, layers, options.k, random);
    pairs.insert(pairs.end(), kind_pairs.begin(), kind_pairs.end());
  }
  return pairs;
}

std::string differing_layers_text(model::LanguageModel& model, const std::vector<HeadPair>& pairs) {
  std::map<std::pair<AttentionKind, int64_t>, const attention::AttentionLayer*> layers;
  for (const attention::AttentionLayer* layer : model.attention_layers())
    layers[{layer->layer_spec().kind, layer->layer_spec().layer}] = layer;
  // Layers of one kind that differ in the same options share one part of the text.
  std::map<std::pair<AttentionKind, std::string>, std::set<std::pair<int64_t, int64_t>>> layers_by_keys;
  for (const HeadPair& pair : pairs) {
    const auto keys =
        layers.at({pair.kind, pair.a.layer})->differing_head_options(*layers.at({pair.kind, pair.b.layer}));
    if (!keys.empty()) layers_by_keys[{pair.kind, join(keys, ", ")}].insert(std::minmax(pair.a.layer, pair.b.layer));
  }
  std::vector<std::string> parts;
  for (const auto& [kind_and_keys, layer_pairs] : layers_by_keys) {
    const auto& [kind, keys] = kind_and_keys;
    std::vector<std::string> texts;
    for (const auto& [a, b] : layer_pairs) texts.push_back(str(a, " and ", b));
    parts.push_back(str("layers ", join(texts, ", "), " of ", name_of(kind), " in ", keys));
  }
  return join(parts, "; ");
}

OptimizerMoments::OptimizerMoments(const io::Checkpoint& checkpoint, const nn::ParameterList& parameters,
                                   const std::string& where) {
  for (const nn::Parameter& p : parameters.all())
    for (const io::TensorInfo& tensor : checkpoint.tensors()) {
      if (tensor.name.rfind(model::kOptimizerPrefix + p.name() + ".", 0) != 0) continue;
      at::Tensor moment = at::empty(p.master().sizes(), at::kFloat);
      model::load_tensor(checkpoint, tensor.name, moment);
      tensors_.emplace(tensor.name, moment);
      names_by_parameter_[p.name()].push_back(tensor.name);
    }
  if (tensors_.empty())
    refuse_usage(where, "a checkpoint with a training state, such as last.safetensors",
                 checkpoint.name() + ", which has no training state", "leave optimizer out of --with");
}

std::vector<at::Tensor> OptimizerMoments::moments_of(const nn::Parameter& parameter) const {
  std::vector<at::Tensor> moments;
  if (const auto it = names_by_parameter_.find(parameter.name()); it != names_by_parameter_.end())
    for (const std::string& name : it->second) moments.push_back(tensors_.at(name));
  return moments;
}

void rewrite_checkpoint(ByteSink& sink, const io::Checkpoint& checkpoint, nn::ParameterList& parameters,
                        const std::map<std::string, at::Tensor>& moments) {
  // Orders the tensors by the position of their data in the file.
  std::vector<io::TensorInfo> tensors = checkpoint.tensors();
  std::stable_sort(tensors.begin(), tensors.end(), [&](const io::TensorInfo& a, const io::TensorInfo& b) {
    return std::less<>()(checkpoint.data(a.name), checkpoint.data(b.name));
  });
  std::vector<at::Tensor> cpu_tensors;
  std::vector<io::TensorView> views;
  for (const io::TensorInfo& tensor : tensors) {
    const auto moment = moments.find(tensor.name);
    const nn::Parameter* p = parameters.find(tensor.name);
    if (p == nullptr && moment == moments.end()) {
      views.push_back({tensor, checkpoint.data(tensor.name)});
      continue;
    }
    const at::Tensor& values = p != nullptr ? p->master() : moment->second;
    // The conversion to the type of the file is exact, since a swap only moves values that were read from the file.
    cpu_tensors.push_back(values.detach().to(at::kCPU, model::parameter_scalar_type(tensor.type).value()).contiguous());
    views.push_back({tensor, cpu_tensors.back().const_data_ptr()});
  }
  io::write_checkpoint(sink, views, checkpoint.metadata());
  checkpoint.require_full_size();  // the new checksums would also be valid for zeros past the end of a shortened file
  sink.close();
}

}  // namespace mh::analysis
