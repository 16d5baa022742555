// Collects and writes attention matrices.
#include "analysis/dump.h"

#include "attention/layer.h"
#include "base/error.h"
#include "base/text.h"
#include "model/load.h"
#include "nn/aten.h"

namespace mh::analysis {

AttentionDump::AttentionDump(model::LanguageModel& model, int64_t num_blocks, int64_t num_queries, int64_t num_keys) {
  int64_t bytes_per_block = 0;
  for (const attention::AttentionLayer* layer : model.attention_layers())
    bytes_per_block += layer->layer_spec().value_heads * num_queries * num_keys * static_cast<int64_t>(sizeof(float));
  const int64_t max_blocks = bytes_per_block > 0 ? kMaxBytes / bytes_per_block : num_blocks;
  if (num_blocks > max_blocks)
    refuse_usage("--dump", str("at most ", human_bytes(kMaxBytes), " of attention matrices"),
                 str(count_of(num_blocks, "block"), " of ", human_bytes(static_cast<uint64_t>(bytes_per_block))),
                 max_blocks > 0 ? str("lower --blocks to ", max_blocks) : "lower --sequence-length");
}

void AttentionDump::observe_probabilities(const attention::LayerSpec& layer_spec, const at::Tensor& p) {
  matrices_[{layer_spec.layer, layer_spec.name}].push_back(p.detach().to(at::kCPU, at::kFloat).clone());
}

void AttentionDump::write(ByteSink& sink, const std::map<std::string, std::string>& metadata) const {
  model::CheckpointTensors tensors;
  for (const auto& [layer, pass_matrices] : matrices_) tensors.add(layer.second, nn::cat(pass_matrices));
  io::write_checkpoint(sink, tensors.views(), {metadata.begin(), metadata.end()});
}

}  // namespace mh::analysis
