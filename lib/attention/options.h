// Options of attention layers: one set for all layers, with overrides for each kind (`attention.decoder.self.heads`)
// and each layer (`attention.decoder.self.3.heads`, layers from 0), so that layers of one model may differ.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "attention/stage.h"
#include "base/config.h"

namespace mh::attention {

// Whether the output projection has a bias. same: if the other projections have biases.
enum class OutputBias { same, yes, no };

// Sink of each head: a logit without a value in the denominator of the softmax. none: no sink; learned: a parameter of
// each head; zero: the logit 0, "softmax off by one".
enum class Sink { none, learned, zero };

// The options of one layer. AttentionOptions::describe() explains each key.
struct AttentionOptions {
  int64_t heads = 8;
  int64_t kv_heads = 0;
  std::vector<int64_t> group_sizes = {};
  int64_t value_heads = 0;
  int64_t output_heads = 0;
  int64_t head_size = 0;
  int64_t value_size = 0;
  bool bias = true;
  OutputBias output_bias = OutputBias::same;
  double scale = 0;
  int64_t window = 0;
  double soft_cap = 0;
  Sink sink = Sink::none;
  double dropout = 0;
  std::vector<std::string> transform = {};
  std::string position_bias = "none";
  std::string pairing = "own";
  std::string score = "dot-product";
  std::string normaliser = "softmax";
  std::string mixer = "none";
  std::vector<std::string> combiner = {"concatenate"};  // not empty; describe() replaces an empty list by the default
  // Options of the chosen stage implementations, with the name of the implementation as key ("mixhead-a" has the option
  // `attention.mixhead-a.scope`); null for an implementation without options.
  std::map<std::string, std::shared_ptr<StageOptions>> stages;

  bool has_output_bias() const { return output_bias == OutputBias::same ? bias : output_bias == OutputBias::yes; }

  AttentionOptions() = default;
  AttentionOptions(const AttentionOptions& other);
  AttentionOptions& operator=(const AttentionOptions& other);
  void describe(Fields& f);
};

// The configured options of all layers of a model.
class AttentionConfig {
 public:
  // Reads the section [attention] and its overrides. `layer_counts`: number of layers of each kind. An override of a
  // layer that does not exist is not read, so Config::check_all_known() throws Error(usage) for it.
  void read(Config& config, const std::vector<std::pair<AttentionKind, int64_t>>& layer_counts);
  // Returns the options of the layer with the index `layer`, from 0; the layer must exist.
  const AttentionOptions& layer(AttentionKind kind, int64_t layer) const;
  // Replaces the options of one layer, which must exist; all other options are unchanged.
  void set_layer(AttentionKind kind, int64_t layer, const AttentionOptions& options);
  // Copies the options of a kind's layers to the kind if all layers of the kind have equal options, and then the
  // options of the kinds to the base options if all kinds have equal options, so that toml() writes equal options once.
  void hoist_common_options();
  // Returns the options as TOML: the section [attention], then the options of each kind that differ from [attention],
  // and the options in which a layer differs from its kind. read() restores equal options from this text.
  std::string toml() const;
  // Returns the combiners of all layers, each once, for the part `found` of a Problem:
  // `attention.combiner = "mae", "concatenate"`.
  std::string combiners_text() const;

 private:
  AttentionOptions base_options_;
  std::map<AttentionKind, AttentionOptions> kind_options_;
  std::map<std::pair<AttentionKind, int64_t>, AttentionOptions> layer_options_;
};

// Returns the keys, such as "window" or "rotary.base", of the options that both layers have with different values. A
// stage that only one layer has counts as a difference in the key that chooses the stage, such as "transform".
std::vector<std::string> differing_keys(const AttentionOptions& a, const AttentionOptions& b);

// Returns the assignment, in the syntax of --set, that selects the stage `name` of a type, such as
// `attention.mixer="mean"`; for a transform, a list of one name.
std::string stage_assignment(const std::string& stage_type, const std::string& name);

// Returns the kind, sizes and name of a layer, with default sizes filled in. Throws Error(usage) for inconsistent head
// counts, for example if the number of heads does not divide the width and head_size is not set.
LayerSpec make_layer_spec(const AttentionOptions& options, AttentionKind kind, int64_t layer, int64_t width,
                          const std::string& name);

}  // namespace mh::attention
