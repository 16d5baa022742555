// The model architectures that both Hugging Face transformers and multihead support: the names of their settings and
// tensors in transformers and in multihead. The same tables are used to read and to write a model folder. Each
// architecture has its own file (gpt2.cpp, bert.cpp, gpt_neox.cpp), or is a table of differences from Llama
// (llama_form.h).
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/registry.h"
#include "io/json_config.h"
#include "text/tokenizers.h"

namespace mh::huggingface {

using io::Json;
using io::JsonConfig;

// Values of the multihead configuration by key (model.*, attention.*).
using Settings = std::map<std::string, Json>;
Settings settings_of(const std::string& toml);  // `toml`: [model] and [attention] with all their keys
std::string toml_of(const Settings& settings);

// A setting that has the same value in transformers and in multihead: its key in config.json, and its keys in the
// multihead configuration.
struct SettingPair {
  const char* huggingface_key;
  Json default_value;  // default in transformers
  std::vector<const char*> multihead_keys;
  int64_t max_value = 1 << 30;  // maximum of an integer; the minimum is 1
};
// Maximum number of layers, which limits the number of tensor names that are created before the configuration is
// checked.
constexpr int64_t kMaxLayers = 10000;

// A tensor of transformers, and the multihead parameters that it contains, concatenated along their first axis.
// tensor_layout.h converts the elements in both directions.
struct TensorPair {
  std::string huggingface_name;  // without Architecture::tensor_prefix()
  std::vector<std::string> multihead_names;
  bool is_transposed = false;  // whether the tensor of transformers is (in, out), as in GPT-2's Conv1D
  // Name, for messages, of the optional component that the tensor belongs to, such as an output head; a file may have
  // none of the tensors of such a component. "": the tensor is required.
  std::string component = {};
  // Number of equal groups of rows of the tensor. Each group has the same number of rows of each parameter, in the
  // order of `multihead_names`: 1 in the fused projections of GPT-2 and Phi-3 (all queries, then all keys, then all
  // values), the number of heads in GPT-NeoX (queries, keys and values of the first head, then of the second head, …).
  int64_t num_groups = 1;
  // Difference between a weight of the parameter and the same weight of the tensor: 1 for the norms of Gemma, which
  // multiply by 1 + weight in transformers.
  float addend = 0;
  // Number r of first rows of each head in which the tensor has the two rows of a rotary pair side by side, as in
  // GPT-J: the rows 0, r/2, 1, r/2 + 1, … of the head in the parameter. 0: the order of the parameter. Only for a
  // tensor of one parameter.
  int64_t num_interleaved_rows = 0;
  int64_t head_rows = 0;  // with interleaved rows: number of rows of a head
  // Number of rows in front of the rows of the parameter, which the parameter lacks, such as the position embeddings of
  // padding tokens in RoBERTa. They are ignored, and written as zeros. 0 for a transposed tensor and a tensor of
  // groups.
  int64_t num_unused_rows = 0;
  // Advice in the error for a file without the tensor; null: to copy the folder again.
  const char* missing_advice = nullptr;
  // Whether the tensor of transformers has a first axis of size 1 that the parameter lacks, as the bias of the output
  // layer of Marian, (1, V).
  bool has_leading_axis = false;
};

struct TensorNames {
  std::vector<TensorPair> pairs;
  // Alternative names of tensors, each with the tensor's name in `pairs`: a file has the tensor under either name, or
  // under both.
  std::map<std::string, std::string> aliases;
  // Alternative names that transformers 5 ignores and transformers 4 expects. If a file has a tensor under both names,
  // the tensor under the alternative name is ignored and may have other values. conversion::write_folder() writes the
  // tensor under both names.
  std::set<std::string> ignored_aliases = {};
};

class Architecture {
 public:
  virtual ~Architecture() = default;

  // Returns the multihead settings for config.json. Throws Error(input) that names the key if multihead does not
  // support a setting. `tensor_names`: names of the tensors in the folder, without tensor_prefix().
  virtual Settings settings(const JsonConfig& config, const std::set<std::string>& tensor_names) const = 0;
  // Reads the vocabulary files of `folder`. Throws Error(input) if they are missing or invalid.
  virtual text::Tokenizers tokenizers(const std::string& folder) const = 0;
  // Returns the settings that have the same value in transformers and in multihead.
  virtual const std::vector<SettingPair>& setting_pairs() const = 0;
  // Returns the names of all tensors of a model with these settings.
  virtual TensorNames tensor_names(const Settings& settings) const = 0;
  // Returns the prefix that tensor names have in a model with an output head, such as "transformer."; tensors of the
  // output head have no prefix.
  virtual std::string tensor_prefix() const = 0;
  // Returns whether the tensor belongs to an output head. `tensor_name`, in this function and the next two: name
  // without tensor_prefix().
  virtual bool belongs_to_output_head(const std::string& tensor_name) const = 0;
  // Returns whether the tensor is a buffer, such as a causal mask, which transformers recomputes and multihead does not
  // need. Compares whole names, since a parameter may end like a buffer.
  virtual bool is_buffer(const std::string& tensor_name) const = 0;
  // Returns whether the tensor belongs to the architecture, but is not used by a model with these settings.
  virtual bool is_unused(const std::string& tensor_name, const Settings& settings) const = 0;

  // Returns config.json without the settings of the vocabulary, but with every setting whose default could differ
  // between versions of transformers. Does not check that transformers supports all of `settings`; the caller converts
  // the result back and compares.
  virtual Json config(const Settings& settings) const = 0;
  // Returns the ids of the special tokens by the keys of config.json, such as pad_token_id; null for a role without a
  // token. Returns an empty object if the architecture does not support this type of vocabulary.
  virtual Json token_ids(const text::Tokenizers& tokenizers) const = 0;
  // Returns the contents of the vocabulary files by file name. `name`: name of the model, for errors. Throws
  // Error(input) if the architecture does not support this type of vocabulary.
  virtual std::map<std::string, std::string> vocabulary_files(const text::Tokenizers& tokenizers,
                                                              const Settings& settings,
                                                              const std::string& name) const = 0;
  // Returns the value of model.backbone for this architecture.
  virtual std::string backbone() const = 0;
  // Adds the sizes of the vocabularies to config.json. `num_rows`, `num_source_rows`: numbers of rows of the token
  // embedding and of the source token embedding; 0: no embedding of the source alone.
  virtual void set_vocabulary_sizes(Json& config, int64_t num_rows, int64_t /*num_source_rows*/) const {
    config["vocab_size"] = num_rows;
  }
  // Returns whether conversion::write_folder() may choose this architecture for a model that does not state its
  // architecture. False if all its models are models of another architecture, too.
  virtual bool is_default_for_writing() const { return true; }
};

// Architectures by the value of model_type in config.json.
Registry<Architecture>& architectures();

// Functions that the architectures share.

// Advice in the error for a file that lacks the tensor of an output layer.
constexpr const char* kUntiedAdvice =
    "if the output layer is the embedding, set tie_word_embeddings = true in config.json; a base model without an "
    "output layer cannot be converted";

// Returns the name of a tensor within its layer, such as "attn.bias" for "h.3.attn.bias" and the prefix "h."; "" if the
// name is not `layer_prefix`, a number without leading zeros, a dot and more.
std::string name_in_layer(const std::string& tensor_name, const std::string& layer_prefix);
// Returns the setting with this key; `default_value` if there is none.
Json setting_or(const Settings& settings, const std::string& key, const Json& default_value);
// Returns the number of elements of a head: attention.head_size, or the width divided by the number of heads. For a
// model without heads, which no architecture supports, returns the width, so that its config.json, which
// conversion::write_folder() compares with the model, has no head of 0 elements.
int64_t head_size_of(const Settings& settings);

// Returns the multihead name of the activation that config.json has under `key`; `default_value`: transformers name of
// the activation if the key is missing. Throws Error(input) for an activation that multihead does not support.
Json activation_of(const JsonConfig& config, const char* key, const char* default_value);
// Returns the multihead name of an activation of transformers; null if multihead does not support it.
Json multihead_activation(const std::string& huggingface_name);
// Returns the transformers name of a multihead activation; "" if transformers has none.
std::string huggingface_activation(const Json& activation);
// Throws Error(input) for an integer outside 1 … `max_value`. `where`: file and key of the integer, for the message.
void require_size(const Json& value, const std::string& where, int64_t max_value);
// Copies the settings in `pairs` from config.json, or their defaults, to `settings`. Throws Error(input) for a value of
// another type than the default, and for an integer outside 1 … SettingPair::max_value.
void read_keys(const std::vector<SettingPair>& pairs, const JsonConfig& config, Settings& settings);
// Copies the settings in `pairs` from `settings` to `config`, the contents of config.json. If a pair has several
// multihead keys, reads only the first key.
void set_keys(const std::vector<SettingPair>& pairs, const Settings& settings, Json& config);

// Returns the name of a tensor in the form of TensorPair::huggingface_name: without `prefix`, and with the endings
// `.weight` and `.bias` in place of `.gamma` and `.beta`, which old files use.
std::string canonical_name(const std::string& tensor_name, const std::string& prefix);

}  // namespace mh::huggingface
