// Keeps the attention matrices of a sample and writes them as plain tensors (.safetensors) for other programs: for each
// layer "decoder.layers.3.self" (blocks, h, Tq, Tk) fp32, after mixing, before dropout, in the order of the text.
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
  static constexpr int64_t kMostBytes = int64_t{2} << 30;  // held in memory until they are written, for a moment twice
  // Error(usage) for more than kMostBytes, before anything is shown; `keys` of each query.
  AttentionDump(model::LanguageModel& model, int64_t blocks, int64_t block, int64_t keys);
  void probabilities(const attention::Shape& shape, const at::Tensor& p) override;
  // Does not close the sink. `about` goes into the file's metadata.
  void write(ByteSink& sink, const std::map<std::string, std::string>& about) const;

 private:
  std::map<std::pair<int64_t, std::string>, std::vector<at::Tensor>> matrices_;  // by layer and name, one a pass
};

}  // namespace mh::analysis
