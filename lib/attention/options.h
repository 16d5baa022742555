// Options of attention layers: one set for all layers, with overrides per kind (`attention.decoder.self.heads`) and per
// layer (`attention.decoder.self.3.heads`, from 0), so that layers of one model may differ.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "attention/stage.h"
#include "base/config.h"

namespace mh::attention {

// The options of one layer. AttentionOptions::describe() explains each key.
struct AttentionOptions {
  int64_t heads = 8;
  int64_t value_heads = 0;
  int64_t output_heads = 0;
  int64_t head_size = 0;
  int64_t value_size = 0;
  bool bias = true;
  double dropout = 0;
  std::string pairing = "own";
  std::string score = "dot-product";
  std::string normaliser = "softmax";
  std::string mixer = "none";
  std::string combiner = "concatenate";
  // Options of the chosen implementations, by their names (`attention.mixhead-a.dropout`); null: no options.
  std::map<std::string, std::shared_ptr<StageOptions>> stages;

  AttentionOptions() = default;
  AttentionOptions(const AttentionOptions& other);
  AttentionOptions& operator=(const AttentionOptions& other);
  void describe(Fields& f);
};

// The configured options of all layers of a model.
class AttentionConfig {
 public:
  // Reads [attention] and its overrides; `counts` is the number of layers of each kind. Throws Error(usage) for an
  // override of a layer that does not exist.
  void read(Config& config, const std::vector<std::pair<AttentionKind, int64_t>>& counts);
  // Returns the options of one layer.
  const AttentionOptions& layer(AttentionKind kind, int64_t layer) const;
  // Replaces the options of one layer, which must exist; all other options are unchanged.
  void set_layer(AttentionKind kind, int64_t layer, const AttentionOptions& options);
  // If all layers of a kind have equal options, these become the options of the kind; if all kinds have equal options,
  // these become the base options. toml() then writes them once.
  void lift();
  // Returns the options as TOML: [attention], then the differences of each kind and layer. Parses back to equal
  // options.
  std::string toml() const;

 private:
  AttentionOptions base_;
  std::map<AttentionKind, AttentionOptions> kinds_;
  std::map<std::pair<AttentionKind, int64_t>, AttentionOptions> layers_;
};

// Returns the sizes of a layer, with defaults filled in. Throws Error(usage) for inconsistent head counts, for example
// if the heads do not divide the width and head_size is not set.
LayerSpec make_layer_spec(const AttentionOptions& options, AttentionKind kind, int64_t layer, int64_t width,
                          const std::string& name);

}  // namespace mh::attention
