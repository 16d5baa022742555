// Models that Hugging Face's transformers and this project share: the names of their settings and tensors on both
// sides. One table of each serves both directions. Each architecture has a file (gpt2.cpp, bert.cpp).
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/registry.h"
#include "io/config_file.h"
#include "text/tokenizers.h"

namespace mh::huggingface {

using io::ConfigFile;
using io::Json;

// Keys of our configuration (model.*, attention.*) with their values.
using Settings = std::map<std::string, Json>;
Settings settings_of(const std::string& toml);  // settings of a whole configuration
std::string toml_of(const Settings& settings);

// A setting of both sides: the key of transformers, and the keys of ours with the same value.
struct Key {
  const char* huggingface_name;
  Json default_value;  // default of transformers
  std::vector<const char*> multihead_names;
};

// A tensor of transformers and the parameters of ours that it contains, one below another.
struct TensorPair {
  std::string huggingface_name;  // without the prefix
  std::vector<std::string> multihead_names;
  bool transposed = false;  // the tensor of transformers is (in, out), as in GPT-2's Conv1D
  std::string part =
      {};  // for messages, the part of the model that a file may lack as a whole, such as a head; "": none
};

struct TensorNames {
  std::vector<TensorPair> pairs;
  // Second names of a tensor, by its name in `pairs`: a file has it under either name, or under both.
  std::map<std::string, std::string> copies;
  // Copies without effect in transformers 5 that transformers 4 expects: they may differ when read, and are written.
  std::set<std::string> ineffective = {};
};

class Architecture {
 public:
  virtual ~Architecture() = default;

  // Converts the settings of transformers. Throws Error(input) about the key of a setting that our models do not have.
  // `tensors`: names of transformers, without the prefix.
  virtual Settings settings(const ConfigFile& config, const std::set<std::string>& tensors) const = 0;
  // Reads the vocabulary files of `folder`. Throws Error(input).
  virtual text::Tokenizers tokenizers(const std::string& folder) const = 0;
  virtual TensorNames names(const Settings& settings) const = 0;
  // Returns the prefix of the names of tensors in a model with a head, except of those of the head: "transformer.".
  virtual std::string prefix() const = 0;
  virtual bool is_of_head(const std::string& tensor) const = 0;
  // Returns whether a tensor is computed by transformers when it loads a model, such as a mask, and is not needed by
  // ours.
  virtual bool is_buffer(const std::string& tensor) const = 0;
  virtual bool is_left_out(const std::string& tensor, const Settings& settings) const = 0;

  // Returns config.json with every setting whose default could differ between versions, without those of the
  // vocabulary. Settings that transformers lacks are found by reading the result back.
  virtual Json config(const Settings& settings) const = 0;
  // Returns the numbers of special tokens by the keys of config.json; null for a role without a token.
  virtual Json token_ids(const text::Tokenizers& tokenizers) const = 0;
  // Returns names and contents of the vocabulary files. Throws Error(input) for another type of vocabulary.
  virtual std::map<std::string, std::string> files_of(const text::Tokenizers& tokenizers, const Settings& settings,
                                                      const std::string& name) const = 0;
  // Returns the name of our backbone.
  virtual std::string backbone() const = 0;
};

// Architectures by the model_type of config.json.
Registry<Architecture>& architectures();

// What the architectures share.

// Returns our activation for that of transformers (hidden_act and similar keys).
Json activation_of(const ConfigFile& config, const char* key, const char* default_value);
std::string huggingface_activation(const Json& activation);
// Converts settings by the table. Throws Error(input) for an integer that is not positive.
void take_keys(const std::vector<Key>& keys, const ConfigFile& config, Settings& settings);
void write_keys(const std::vector<Key>& keys, const Settings& settings, Json& config);

// Returns the name of a tensor without the prefix, with gamma and beta of old files as weight and bias.
std::string plain_name(const std::string& tensor, const std::string& prefix);

}  // namespace mh::huggingface
