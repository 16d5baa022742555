// Encoders of the form of BERT (Devlin et al. 2019): post-norm, learned positions and segments, a norm of their sum. A
// family of this form is a table of its differences; each vocabulary has its own file.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "huggingface/architecture.h"
#include "huggingface/encoder_heads.h"

namespace mh::huggingface {

struct BertFamily {
  const char* model_type;
  const char* tensor_prefix;  // Architecture::tensor_prefix()
  OutputHeads heads;
  // Number of rows in front of the position table that no position of a text reads. RoBERTa counts positions from the
  // id of the padding token plus 1.
  int64_t num_unused_positions = 0;
};

class BertForm : public Architecture {
 public:
  const std::vector<SettingPair>& setting_pairs() const override;
  Settings settings(const JsonConfig& config, const std::set<std::string>& tensor_names) const override;
  TensorNames tensor_names(const Settings& settings) const override;
  std::string tensor_prefix() const override { return family_.tensor_prefix; }
  bool belongs_to_output_head(const std::string& tensor_name) const override {
    return family_.heads.contains(tensor_name);
  }
  bool is_buffer(const std::string& tensor_name) const override {
    return tensor_name == "embeddings.position_ids" || tensor_name == "embeddings.token_type_ids";
  }
  bool is_unused(const std::string& tensor_name, const Settings& settings) const override;
  Json config(const Settings& settings) const override;
  std::string backbone() const override { return "bert"; }

 protected:
  explicit BertForm(BertFamily family) : family_(std::move(family)) {}
  const BertFamily& family() const { return family_; }

 private:
  BertFamily family_;
};

// Layer of BERT's pooler. Models without a head that uses it may have the layer nevertheless.
constexpr const char* kPooler = "pooler.dense";

}  // namespace mh::huggingface
