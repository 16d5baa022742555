// Collects the attention matrices of a sample and writes them to a .safetensors file for other programs: one tensor per
// layer, such as "decoder.layers.3.self", (blocks, h, Tq, Tk) fp32, after mixing, before dropout, in the order of the
// text.
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
  // Limit on the size of all matrices: they stay in memory until they are written, and writing briefly doubles that.
  static constexpr int64_t kMostBytes = int64_t{2} << 30;
  // Throws Error(usage) if `blocks` blocks with `block` queries and `keys` keys exceed kMostBytes.
  AttentionDump(model::LanguageModel& model, int64_t blocks, int64_t block, int64_t keys);
  void probabilities(const attention::LayerSpec& shape, const at::Tensor& p) override;
  // Writes the matrices with the metadata `about`; does not close the sink.
  void write(ByteSink& sink, const std::map<std::string, std::string>& about) const;

 private:
  std::map<std::pair<int64_t, std::string>, std::vector<at::Tensor>> matrices_;  // by layer and name; one per pass
};

}  // namespace mh::analysis
