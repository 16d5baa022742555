// Decoders of the form of Llama (Touvron et al. 2023): pre-norm with RMSNorm, rotary positions, grouped-query
// attention, a gated feed-forward sublayer, and no biases. A family of this form is a table of its differences and, if
// its layers differ, functions that read and write the settings of single layers; each family has its own file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "huggingface/decoder.h"
#include "huggingface/layer_settings.h"
#include "huggingface/rope.h"

namespace mh::huggingface {

// Which projections of attention have biases.
enum class AttentionBias {
  none,
  queries_keys_values,  // always, without a key of config.json
  attention_bias        // all projections if the key attention_bias is true
};

// The differences of a family from Llama, and its defaults of config.json, which equal the defaults of its class in
// transformers.
struct LlamaFamily {
  const char* model_type;
  const char* model_class;
  int64_t width = 4096;
  int64_t ffn_dim = 11008;
  int64_t layers = 32;
  int64_t heads = 32;
  int64_t kv_heads = 0;   // 0: as many as heads
  int64_t head_size = 0;  // 0: width / heads
  int64_t max_positions = 2048;
  double norm_epsilon = 1e-6;
  bool is_tied = false;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  // Whether the activation "gelu" in config.json means gelu-tanh, as in the first files of Gemma.
  bool gelu_means_tanh = false;
  AttentionBias attention_bias = AttentionBias::none;
  bool has_mlp_bias = false;            // whether config.json has the key mlp_bias
  const char* norm = "pre";             // model.norm
  const char* qk_norm_scope = nullptr;  // attention.qk-norm.scope; null: no norm of queries and keys
  float norm_addend = 0;                // TensorPair::addend of the norms
  bool scales_embedding = false;        // model.scale_embedding
  bool has_fused_projections = false;   // whether qkv_proj and gate_up_proj replace the single projections
  bool has_dropouts = false;            // whether config.json has the keys resid_pdrop and embd_pdrop
  RopeFormat rope = {};
  std::vector<const char*> ignored_keys = {};  // further keys without effect on the output of the model
};

class LlamaForm : public Decoder {
 public:
  explicit LlamaForm(const LlamaFamily& family);
  const std::vector<SettingPair>& setting_pairs() const override { return pairs_; }
  Settings settings(const JsonConfig& config, const std::set<std::string>& tensor_names) const override;
  TensorNames tensor_names(const Settings& settings) const override;
  std::string tensor_prefix() const override { return "model."; }
  bool is_buffer(const std::string& tensor_name) const override;
  Json config(const Settings& settings) const override;

 protected:
  // Adds the settings of the layers that attention.* keys of config.json state. By default all layers are equal.
  // `layer`: the settings that all layers share, with rotary positions. `sizes`: sizes of config.json.
  virtual LayerSettings read_layers(const JsonConfig& config, const Settings& layer, const RopeSizes& sizes,
                                    size_t num_layers) const;
  // Adds the settings of the layers to config.json, the inverse of read_layers().
  virtual void write_layers(const LayerSettings& layers, const RopeSizes& sizes, Json& config) const;
  const LlamaFamily& family() const { return family_; }

 private:
  LlamaFamily family_;
  std::vector<SettingPair> pairs_;
};

// Functions that the families share.

// Throws Error(input) if layer_types in config.json has other words than full_attention and sliding_attention.
void require_attention_layers(const JsonConfig& config);
// Returns the values of layer_types in config.json, one for each layer; empty if the key is missing or null. Throws
// Error(input) for other words, as require_attention_layers() does, and for another number of layers.
std::vector<std::string> layer_types(const JsonConfig& config, size_t num_layers);
// Returns layer_types() or, if the key is missing or null, the type of each layer by `has_window`, which receives the
// index of the layer and returns whether it has a window.
std::vector<std::string> layer_types_or(const JsonConfig& config, size_t num_layers,
                                        const std::function<bool(int64_t)>& has_window);
// Returns layers of these types with the settings of `layer`: layers of the type sliding_attention have `window` and
// `rope.sliding` as well, the others no window and `rope.full`.
LayerSettings layers_of_types(const std::vector<std::string>& types, const Settings& layer, int64_t window,
                              const RopeOfTypes& rope = {});
// Returns the window that config.json has under the key sliding_window: `if_absent` without the key; 0, no window, for
// null.
int64_t sliding_window(const JsonConfig& config, std::optional<int64_t> if_absent);
// Returns sliding_window() if use_sliding_window in config.json is true, otherwise 0, since transformers then ignores
// sliding_window and the windows of layer_types.
int64_t enabled_window(const JsonConfig& config, std::optional<int64_t> if_absent);
// Adds the windows of the layers to config.json, for a family that reads them with enabled_window() and layer_types().
void write_windows(const LayerSettings& layers, Json& config);
// Returns the window of a layer, 0 for no window, as a value of config.json: null for no window.
Json window_of(const Settings& layer);
// Returns the largest window of the layers, or null if no layer has one, as a value of config.json.
Json largest_window(const LayerSettings& layers);
// Returns the values of layer_types for the windows of the layers.
Json layer_types_of(const LayerSettings& layers);

}  // namespace mh::huggingface
