// Options of attention layers: one set for all, overridden by kind (`attention.decoder.self.heads`) and by layer
// (`attention.decoder.self.3.heads`, from 0), so that layers of one model may differ.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "attention/stage.h"
#include "base/config.h"

namespace mh::attention {

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
  // Options of the chosen implementations that have any, by name: `attention.mixhead-a.dropout`.
  std::map<std::string, std::shared_ptr<StageOptions>> stages;

  AttentionOptions() = default;
  AttentionOptions(const AttentionOptions& other);
  AttentionOptions& operator=(const AttentionOptions& other);
  void describe(Fields& f);
};

// The layers' options as configured.
class AttentionConfig {
 public:
  // Reads [attention] and its overrides; `counts` is how many layers of each kind the model has. Error(usage) for a
  // layer that is not there.
  void read(Config& config, const std::vector<std::pair<Kind, int64_t>>& counts);
  // The options of one layer.
  const AttentionOptions& layer(Kind kind, int64_t layer) const;
  // Of a layer that is there, and of no other.
  void set_layer(Kind kind, int64_t layer, const AttentionOptions& options);
  // Lifts options that all layers of a kind have to the kind, and options that all kinds have to the base, so that
  // toml() writes them once.
  void lift();
  // As TOML: [attention], then only what a kind or a layer changes. Reads back to the same options.
  std::string toml() const;

 private:
  AttentionOptions base_;
  std::map<Kind, AttentionOptions> kinds_;
  std::map<std::pair<Kind, int64_t>, AttentionOptions> layers_;
};

// Head sizes of a layer, the defaults filled in. Error(usage) where heads do not divide the width and no size is given.
Shape make_shape(const AttentionOptions& options, Kind kind, int64_t layer, int64_t width, const std::string& name);

}  // namespace mh::attention
