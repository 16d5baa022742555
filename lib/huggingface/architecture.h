// Models of Hugging Face's transformers and of ours that are the same: how either names settings and tensors. One table
// of each serves both directions. An architecture is a file (gpt2.cpp, bert.cpp).
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
Settings settings_of(const std::string& toml);  // of a whole configuration
std::string toml_of(const Settings& settings);

// A setting that both have: the same value has theirs and each of ours.
struct Key {
  const char* theirs;
  Json otherwise;  // what transformers takes where it is left out
  std::vector<const char*> ours;
};

// A tensor of theirs and the parameters of ours that it holds, one below another.
struct TensorPair {
  std::string theirs;  // without the prefix
  std::vector<std::string> ours;
  bool transposed = false;  // theirs is (in, out), as GPT-2's Conv1D has it
  std::string part = {};    // what can be lacking as a whole, such as a head, in words; "": nothing
};

struct TensorNames {
  std::vector<TensorPair> pairs;
  // Names of the same tensor by the name in `pairs`: files hold it under either name, or under both.
  std::map<std::string, std::string> copies;
  // Copies whose values have no effect in transformers 5, but are expected by 4: read they may differ, and they are
  // written.
  std::set<std::string> ineffective = {};
};

class Architecture {
 public:
  virtual ~Architecture() = default;

  // From theirs. Error(input) for what ours is not, by the key. `tensors`: theirs, without the prefix.
  virtual Settings settings(const ConfigFile& config, const std::set<std::string>& tensors) const = 0;
  // Of the files of `folder`. Error(input).
  virtual text::Tokenizers tokenizers(const std::string& folder) const = 0;
  virtual TensorNames names(const Settings& settings) const = 0;
  // What the names of tensors begin with in a model with a head, but for those of the head: "transformer.".
  virtual std::string prefix() const = 0;
  virtual bool is_of_head(const std::string& tensor) const = 0;
  // What transformers makes anew, such as masks, and what our model of these settings has no use for.
  virtual bool is_buffer(const std::string& tensor) const = 0;
  virtual bool is_left_out(const std::string& tensor, const Settings& settings) const = 0;

  // Returns config.json with every setting whose default could differ between versions, without those of the
  // vocabulary. A setting that transformers lacks is found by reading the result.
  virtual Json config(const Settings& settings) const = 0;
  // Returns the numbers of special tokens by the keys of config.json; null for a role that no token has.
  virtual Json token_ids(const text::Tokenizers& tokenizers) const = 0;
  // Names and contents of the files of the vocabulary. Error(input) for another type of vocabulary.
  virtual std::map<std::string, std::string> files_of(const text::Tokenizers& tokenizers, const Settings& settings,
                                                      const std::string& name) const = 0;
  // The backbone of ours.
  virtual std::string backbone() const = 0;
};

// By what config.json calls model_type.
Registry<Architecture>& architectures();

// What the architectures share.

// hidden_act and the like: ours by theirs.
Json activation_of(const ConfigFile& config, const char* key, const char* otherwise);
std::string their_activation(const Json& ours);
// Error(input) for a whole number that is not positive.
void take_keys(const std::vector<Key>& keys, const ConfigFile& config, Settings& settings);
void give_keys(const std::vector<Key>& keys, const Settings& settings, Json& config);

// The name of a tensor of a file without the prefix, and with what old files call gamma and beta as weight and bias.
std::string plain_name(const std::string& tensor, const std::string& prefix);

}  // namespace mh::huggingface
