#include "huggingface/decoder.h"

#include <string_view>
#include <utility>

#include "huggingface/vocabulary_files.h"
#include "text/folder_tokenizer.h"

namespace mh::huggingface {

text::Tokenizers Decoder::tokenizers(const std::string& folder) const {
  return {text::read_tokenizer_folder(folder), nullptr};
}

Json Decoder::token_ids(const text::Tokenizers& tokenizers) const { return huggingface::token_ids(*tokenizers.target); }

std::map<std::string, std::string> Decoder::vocabulary_files(const text::Tokenizers& tokenizers,
                                                             const Settings& settings, const std::string& name) const {
  return huggingface::vocabulary_files(*tokenizers.target, settings.at("model.max_positions").get<int64_t>(), name);
}

void add_tensors(TensorNames& names, const std::string& huggingface_name,
                 const std::vector<std::string>& multihead_names, bool has_bias, int64_t num_groups) {
  for (const char* suffix : {".weight", ".bias"}) {
    if (suffix == std::string_view(".bias") && !has_bias) continue;
    TensorPair pair{.huggingface_name = huggingface_name + suffix, .multihead_names = {}, .num_groups = num_groups};
    for (const std::string& name : multihead_names) pair.multihead_names.push_back(name + suffix);
    names.pairs.push_back(std::move(pair));
  }
}

void add_output_layer(TensorNames& names, const Settings& settings) {
  if (settings.at("model.tied") == true) names.aliases["lm_head.weight"] = names.pairs.front().huggingface_name;
  else
    names.pairs.push_back({.huggingface_name = "lm_head.weight",
                           .multihead_names = {"decoder.output.weight"},
                           .missing_advice = kUntiedAdvice});
}

void add_common_keys(Json& config) {
  config.update({{"initializer_range", 0.02},
                 {"use_cache", true},
                 {"bos_token_id", nullptr},
                 {"eos_token_id", nullptr},
                 {"pad_token_id", nullptr},
                 {"dtype", "float32"}});
}

}  // namespace mh::huggingface
