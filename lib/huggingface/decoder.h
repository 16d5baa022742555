// The common base class of all decoders except GPT-2. text::read_tokenizer_folder() reads their vocabularies.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "huggingface/architecture.h"

namespace mh::huggingface {

class Decoder : public Architecture {
 public:
  text::Tokenizers tokenizers(const std::string& folder) const override;
  Json token_ids(const text::Tokenizers& tokenizers) const override;
  std::map<std::string, std::string> vocabulary_files(const text::Tokenizers& tokenizers, const Settings& settings,
                                                      const std::string& name) const override;
  std::string backbone() const override { return "decoder"; }
  bool belongs_to_output_head(const std::string& tensor_name) const override {
    return tensor_name.starts_with("lm_head.");
  }
  bool is_unused(const std::string&, const Settings&) const override { return false; }
};

// Adds the weights, and the biases if `has_bias` is set, of a layer of transformers; both names are without ".weight".
// `num_groups`: TensorPair::num_groups.
void add_tensors(TensorNames& names, const std::string& huggingface_name,
                 const std::vector<std::string>& multihead_names, bool has_bias, int64_t num_groups = 1);
// Adds the weights of the output layer, lm_head.weight, as an alternative name of the embedding, the first tensor of
// `names`, if both are tied, and as a tensor otherwise.
void add_output_layer(TensorNames& names, const Settings& settings);
// Adds keys of config.json that do not affect the output of the model, and sets the ids of special tokens to null,
// since the default ids of a class of transformers may exceed the size of the vocabulary.
void add_common_keys(Json& config);

}  // namespace mh::huggingface
