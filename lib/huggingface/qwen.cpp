// Qwen 2 and 2.5 (Yang et al. 2024) and Qwen 3 (Yang et al. 2025): Llama with biases of queries, keys and values, or
// with norms of the queries and keys of each head. The last layers may have a window.
#include <algorithm>

#include "huggingface/llama_form.h"

namespace mh::huggingface {

namespace {

constexpr int64_t kDefaultWindow = 4096;
constexpr int64_t kDefaultMaxWindowLayers = 28;

const LlamaFamily kQwen2{.model_type = "qwen2",
                         .model_class = "Qwen2ForCausalLM",
                         .ffn_dim = 22016,
                         .kv_heads = 32,
                         .max_positions = 32768,
                         .attention_bias = AttentionBias::queries_keys_values};

const LlamaFamily kQwen3{.model_type = "qwen3",
                         .model_class = "Qwen3ForCausalLM",
                         .ffn_dim = 22016,
                         .kv_heads = 32,
                         .head_size = 128,
                         .max_positions = 32768,
                         .attention_bias = AttentionBias::attention_bias,
                         .qk_norm_scope = "head"};

class Qwen : public LlamaForm {
 public:
  explicit Qwen(const LlamaFamily& family) : LlamaForm(family) {}

 protected:
  LayerSettings read_layers(const JsonConfig& config, const Settings& layer, const RopeSizes& sizes,
                            size_t num_layers) const override {
    const int64_t window = enabled_window(config, kDefaultWindow);
    const auto max_window_layers = config.value("max_window_layers", kDefaultMaxWindowLayers).get<int64_t>();
    const auto has_window = [&](int64_t i) { return i >= max_window_layers; };
    return layers_of_types(layer_types_or(config, num_layers, has_window),
                           LlamaForm::read_layers(config, layer, sizes, 1).of_layer(0), window);
  }

  void write_layers(const LayerSettings& layers, const RopeSizes& sizes, Json& config) const override {
    LlamaForm::write_layers(layers, sizes, config);
    write_windows(layers, config);
    const auto is_windowed = [&](size_t kind) { return !window_of(layers.kinds[kind]).is_null(); };
    const auto first_windowed = std::ranges::find_if(layers.kind_of_layer, is_windowed);
    config["max_window_layers"] = first_windowed - layers.kind_of_layer.begin();
  }
};

class Qwen2 : public Qwen {
 public:
  Qwen2() : Qwen(kQwen2) {}
};

class Qwen3 : public Qwen {
 public:
  Qwen3() : Qwen(kQwen3) {}
};

const Registration<Qwen2> qwen2_entry(architectures(), "qwen2",
                                      "The form of llama with biases of queries, keys and values, and a window in the "
                                      "last layers: Qwen 2 and 2.5.");
const Registration<Qwen3> qwen3_entry(architectures(), "qwen3",
                                      "The form of llama with norms of the queries and keys of each head, and a window "
                                      "in the last layers.");

}  // namespace

}  // namespace mh::huggingface
