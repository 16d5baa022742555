// Collects the attention matrices of a sample of text blocks and writes them to a .safetensors file for other programs.
// The file has one tensor per layer, named like "decoder.layers.3.self": the probabilities (blocks, hv, Tq, Tk), fp32,
// after mixing and before dropout, with the blocks in the order of the text.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "attention/stage.h"
#include "base/file.h"
#include "model/language_model.h"

namespace mh::analysis {

class AttentionDump : public attention::Observer {
 public:
  // Limit on the total size of the matrices in bytes. The matrices stay in memory, and write() concatenates them into
  // copies of the same size.
  static constexpr int64_t kMaxBytes = int64_t{2} << 30;
  // Throws Error(usage) if the matrices of `num_blocks` text blocks, with `num_queries` queries and `num_keys` keys
  // each, exceed kMaxBytes.
  AttentionDump(model::LanguageModel& model, int64_t num_blocks, int64_t num_queries, int64_t num_keys);
  void observe_probabilities(const attention::LayerSpec& layer_spec, const at::Tensor& p) override;
  // Writes the matrices with the metadata `metadata`; does not close the sink.
  void write(ByteSink& sink, const std::map<std::string, std::string>& metadata) const;

 private:
  // The matrices (B, hv, Tq, Tk) of each forward pass, by layer index and layer name.
  std::map<std::pair<int64_t, std::string>, std::vector<at::Tensor>> matrices_;
};

}  // namespace mh::analysis
