// Collects and writes attention matrices.
#include "analysis/dump.h"

#include "attention/layer.h"
#include "base/error.h"
#include "base/text.h"
#include "model/load.h"
#include "nn/aten.h"

namespace mh::analysis {

AttentionDump::AttentionDump(model::LanguageModel& model, int64_t blocks, int64_t block, int64_t keys) {
  int64_t bytes_per_block = 0;
  for (const attention::AttentionLayer* layer : model.attention_layers())
    bytes_per_block += layer->layer_spec().heads * block * keys * static_cast<int64_t>(sizeof(float));
  if (bytes_per_block > 0 && blocks > kMostBytes / bytes_per_block)
    throw Error(Exit::usage, Problem{"--dump", str("at most ", human_bytes(kMostBytes), " of attention matrices"),
                                     str(blocks, " blocks of ", human_bytes(static_cast<uint64_t>(bytes_per_block))),
                                     str("reduce --blocks to ", kMostBytes / bytes_per_block, " or less")});
}

void AttentionDump::probabilities(const attention::LayerSpec& shape, const at::Tensor& p) {
  matrices_[{shape.layer, shape.name}].push_back(p.detach().to(at::kCPU, at::kFloat).clone());
}

void AttentionDump::write(ByteSink& sink, const std::map<std::string, std::string>& about) const {
  model::CheckpointTensors views;
  for (const auto& [place, passes] : matrices_) views.add(place.second, at::cat(passes));
  io::write_checkpoint(sink, views.all(), {about.begin(), about.end()});
}

}  // namespace mh::analysis
